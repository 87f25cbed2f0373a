"""Functions that a network calls, and the C types that the original gives them."""

import ctypes
from collections.abc import Callable
from typing import Any

from megenginelite._config import LiteIO
from megenginelite.tensor import LiteTensor

AsyncCallback = Callable[[], int | None]
TensorCallback = Callable[[dict[LiteIO, LiteTensor]], int | None]

LiteAsyncCallback = ctypes.CFUNCTYPE(ctypes.c_int)
LiteStartCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(LiteIO), ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t
)
LiteFinishCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(LiteIO), ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t
)


def start_finish_callback(func: TensorCallback) -> TensorCallback:
    """Mark a function as one for `set_start_callback` or `set_finish_callback`, which take any function."""
    return func


def wrap_async_callback(func: AsyncCallback) -> AsyncCallback:
    """Mark a function as one for `async_with_callback`, which takes any function."""
    return func


def check_callable(function: Any) -> Any:
    """Give the function, or raise TypeError if it is none."""
    if not callable(function):
        raise TypeError(f"a callback must be a function, not {type(function).__name__}")
    return function
