"""`LiteGlobal`: settings of the process, and decryption methods."""

import ctypes
import operator
import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from litehouse import LitehouseError, ciphers
from megenginelite._devices import device_count
from megenginelite._errors import check_int, fail
from megenginelite._layout import Array
from megenginelite.struct import LiteBackend

__all__ = ["LiteDecryptionFunc", "LiteGlobal", "decryption_func"]

LiteDecryptionFunc = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint8),
    ctypes.c_size_t,
    ctypes.c_void_p,
)

Decryption = Callable[[Array, Array, Any], int]


class _Bytes(np.ndarray):
    """An array of bytes that is true unless it is empty: decryption functions ask `if not out_arr`."""

    def __bool__(self) -> bool:
        return self.size > 0


def _bytes(content: bytes) -> Array:
    return np.frombuffer(content, np.uint8).view(_Bytes)


def decryption_func(func: Decryption) -> Decryption:
    """Mark a function as a decryption method.

    The function gets the encrypted bytes and the key, as arrays of uint8, and where the plain bytes go. That is None in
    a first call, which asks for their count; the second call fills the array, and returns their count again.

    Example:
        >>> @decryption_func
        ... def mirror(in_arr, key_arr, out_arr):
        ...     if out_arr:
        ...         out_arr[:] = in_arr[::-1]
        ...     return in_arr.size
    """
    return func


class LiteGlobal:
    """Settings of the process. All methods are static."""

    @staticmethod
    def register_decryption_and_key(decryption_name: str, decryption_func: Decryption, key: Iterable[int]) -> None:
        """Add a decryption method, for `LiteConfig.bare_model_cryption_name` and for packed models that name it.

        Args:
            decryption_name: Its name.
            decryption_func: A function as `decryption_func` describes it.
            key: The bytes of its key.

        Raises:
            RuntimeError: There is one of that name.
        """
        _check_name(decryption_name)
        if not callable(decryption_func):
            raise ctypes.ArgumentError(
                f"argument 2: TypeError: expected CFunctionType instance instead of {type(decryption_func).__name__}"
            )

        def cipher(data: bytes, key: bytes) -> bytes:
            source, secret = _bytes(data), _bytes(key)
            count = int(decryption_func(source, secret, None))
            target = np.zeros(count, np.uint8).view(_Bytes)
            return bytes(target[: int(decryption_func(source, secret, target))].tobytes())

        try:
            ciphers.register(decryption_name, cipher, _key(key))
        except ValueError as error:
            fail(f"The decryption method {decryption_name} is already registered.", error)

    @staticmethod
    def update_decryption_key(decryption_name: str, key: Iterable[int]) -> None:
        """Give a decryption method another key, also a built-in one.

        Args:
            decryption_name: Its name; built in are `AES_default`, `RC4_default` and `SIMPLE_FAST_RC4_default`.
            key: The bytes of the key.

        Raises:
            RuntimeError: There is none of that name.
        """
        _check_name(decryption_name)
        try:
            ciphers.update_key(decryption_name, _key(key))
        except LitehouseError as error:
            fail(f"The decryption method {decryption_name} is not registered.", error)

    @staticmethod
    def set_loader_lib_path(path: str) -> NoReturn:
        """Refuse: libraries with operators for other hardware cannot be loaded."""
        name = os.fspath(path)
        reason = "it cannot be used here" if os.path.exists(name) else "No such file or directory"
        fail(f"failed to open c opr lib {name}: {reason}")

    @staticmethod
    def set_persistent_cache(path: str, always_sync: bool = False) -> None:
        """Accept a file with algorithms that the original chose. It is not read: the engines choose theirs."""

    @staticmethod
    def dump_persistent_cache(path: str) -> None:
        """Write a file with the algorithms that were chosen, in the original's form. It is always empty."""
        try:
            with open(path, "wb") as file:
                file.write(bytes(4))
        except OSError as error:
            fail(f"failed to open {path}: {error.strerror}", error)

    @staticmethod
    def set_tensorrt_cache(path: str) -> NoReturn:
        """Refuse: there is no TensorRT."""
        raise AttributeError(f"set_tensorrt_cache({path!r}): there is no TensorRT here")

    @staticmethod
    def dump_tensorrt_cache() -> NoReturn:
        """Refuse: there is no TensorRT."""
        raise AttributeError("dump_tensorrt_cache(): there is no TensorRT here")

    @staticmethod
    def get_device_count(device_type: int) -> int:
        """Give the number of devices of a kind; for the CPU, the number of its cores."""
        return device_count(check_int(device_type, 1))

    @staticmethod
    def try_coalesce_all_free_memory() -> None:
        """Accept the wish to free memory. What is not needed is free already."""

    @staticmethod
    def register_memory_pair(
        vir_ptr: ctypes.c_void_p,
        phy_ptr: ctypes.c_void_p,
        length: int,
        device: int,
        backend: int = LiteBackend.LITE_DEFAULT,
    ) -> NoReturn:
        """Refuse: memory of the host has no physical address."""
        _check_pointers("clear memory pair", vir_ptr, phy_ptr)
        fail("register_memory_pair is not implement yet!")

    @staticmethod
    def clear_memory_pair(
        vir_ptr: ctypes.c_void_p, phy_ptr: ctypes.c_void_p, device: int, backend: int = LiteBackend.LITE_DEFAULT
    ) -> NoReturn:
        """Refuse: memory of the host has no physical address."""
        _check_pointers("clear memory pair", vir_ptr, phy_ptr)
        fail("clear_memory_pair is not implement yet!")

    @staticmethod
    def lookup_physic_ptr(vir_ptr: ctypes.c_void_p, device: int, backend: int = LiteBackend.LITE_DEFAULT) -> NoReturn:
        """Refuse: memory of the host has no physical address."""
        _check_pointers("lookup physic ptr", vir_ptr)
        fail("lookup_physic_ptr is not implement yet!")


def _check_pointers(what: str, *pointers: object) -> None:
    assert all(isinstance(pointer, ctypes.c_void_p) for pointer in pointers), f"{what} only accept c_void_p type."


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise AttributeError(f"{type(name).__name__!r} object has no attribute 'encode'")


def _key(key: Iterable[int]) -> bytes:
    """Give the key's bytes; of a number outside of 0 to 255 the lowest 8 bits count."""
    return bytes(operator.index(number) & 0xFF for number in key)
