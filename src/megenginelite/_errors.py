"""Errors in the form that the original gives them."""

import ctypes
import logging
from typing import NoReturn

logger = logging.getLogger("megenginelite")


def fail(text: str, cause: BaseException | None = None) -> NoReturn:
    """Log an error and raise it as RuntimeError, with the core's own error as its cause."""
    message = f"Error: {text}, Error Code: 1"
    logger.error("%s", message)
    raise RuntimeError(message) from cause


def check_int(value: object, place: int) -> int:
    """Give the value if it is an int, as the original's ctypes calls want it.

    Args:
        value: What was given.
        place: Which argument of the original's call it is.

    Raises:
        ctypes.ArgumentError: It is no int.
    """
    if not isinstance(value, int):
        raise ctypes.ArgumentError(f"argument {place}: TypeError: wrong type")
    return value


def check_struct(value: object, kind: type, place: int) -> None:
    """Raise ctypes.ArgumentError unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise ctypes.ArgumentError(
            f"argument {place}: TypeError: expected {kind.__name__} instance instead of {type(value).__name__}"
        )
