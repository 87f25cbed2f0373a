"""The ops, one file per family; each function is registered under its ONNX name."""

import functools
import importlib
import pkgutil


@functools.cache
def load() -> None:
    """Import all families, so that the table is full."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
