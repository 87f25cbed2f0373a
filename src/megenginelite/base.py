"""What all parts of the package share: its version, its log level, and the names of ctypes."""

import ctypes
import glob
import logging
import os
import sys
from ctypes import *  # noqa: F403

from megenginelite._errors import check_int, fail, logger
from megenginelite.struct import LiteLogLevel

__all__ = [
    *(name for name in vars(ctypes) if not name.startswith("_")),
    "check_misc",
    "ctypes",
    "get_log_level",
    "glob",
    "logging",
    "os",
    "set_log_level",
    "sys",
    "version",
]

version = "1.13.0"
"""The version of MegEngine Lite whose API this is."""

_LEVELS = {
    LiteLogLevel.DEBUG: logging.DEBUG,
    LiteLogLevel.INFO: logging.INFO,
    LiteLogLevel.WARN: logging.WARNING,
    LiteLogLevel.ERROR: logging.ERROR,
}
_level = LiteLogLevel.DEBUG


def set_log_level(level: int) -> None:
    """Set how much the package logs: the level of the logger `megenginelite`.

    Args:
        level: A LiteLogLevel, or its number.

    Raises:
        ctypes.ArgumentError: It is no int.
        RuntimeError: There is no such level.
    """
    global _level
    if check_int(level, 1) not in _LEVELS:
        fail("unkonw loglevel")
    _level = LiteLogLevel(level)
    logger.setLevel(_LEVELS[_level])


def get_log_level() -> int:
    """Give the level that was set last, 0 if none was."""
    return int(_level)


def check_misc() -> None:
    """Do nothing: the original looks for faults of its native libraries here, and this package has none."""
