"""MegEngine Lite's Python API, served by Litehouse: `from megenginelite import *` runs with no MegEngine installed.

Example:
    >>> from megenginelite import *
    >>> network = LiteNetwork()
    >>> network.get_all_input_name() is None
    True
"""

from megenginelite import base, global_setting, network, struct, tensor, utils
from megenginelite.base import *
from megenginelite.global_setting import *
from megenginelite.network import *
from megenginelite.struct import *
from megenginelite.tensor import *
from megenginelite.utils import *

__version__ = base.version

_MODULES = ("base", "global_setting", "network", "struct", "tensor", "utils")

__all__ = [*_MODULES, "config_env"]
__all__ += base.__all__ + global_setting.__all__ + network.__all__ + struct.__all__ + tensor.__all__ + utils.__all__


def config_env() -> None:
    """Do nothing: the original prepares the search for its native libraries here, and this package has none."""
