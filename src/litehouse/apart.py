"""Torch, apart from what a program has told it for its own work: that must not change what a network computes."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Compute as torch does by itself, whatever holds in the caller's thread.

    Autocast would compute in other types, and what is captured meanwhile would do so for ever. Memory that is made in
    inference mode could not be written to behind it. Where tensors are made by default, ours need not be.
    """
    import torch

    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


@contextlib.contextmanager
def unwarned(*texts: str) -> Iterator[None]:
    """Without those warnings of torch that begin so: for what was done on purpose, and cannot be done otherwise.

    What else is filtered is the whole process's, and stays as other threads set it meanwhile.
    """
    filters, own = warnings.filters, [("ignore", re.compile(text, re.IGNORECASE), Warning, None, 0) for text in texts]
    filters[:0] = own  # type: ignore[index]
    try:
        yield
    finally:
        # Another thread may have set others meanwhile, or be about to set these again.
        for some in [filters] if warnings.filters is filters else [filters, warnings.filters]:
            for each in own:
                with contextlib.suppress(ValueError):
                    some.remove(each)  # type: ignore[attr-defined]
