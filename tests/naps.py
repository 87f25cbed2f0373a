"""A step of a benchmark that takes some time, where another process finds it."""

import time
from collections.abc import Callable
from typing import Any


def nap(_: object, seconds: float) -> Callable[[], dict[str, Any]]:
    """Take some seconds to be made ready."""
    time.sleep(seconds)
    return lambda: {"napped": seconds}
