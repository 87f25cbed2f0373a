"""ONNX's own cases on a GPU that is there: the kernels that torch lacks for some type have a way round."""

import pytest
from engines.torch.onnx_cases import all_cases, run_case

from conftest import REAL_GPU


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
def test_all_cases() -> None:
    """One test, as it is skipped nearly everywhere."""
    wrong = {}
    for name in all_cases():
        if not _error(name, "cpu") and (error := _error(name, "gpu:0")):  # other tests say what the CPU must pass
            wrong[name] = error
    assert not wrong, f"{len(wrong)} cases: {wrong}"


def _error(name: str, device: str) -> str:
    try:
        run_case(name, may_lack=True, device=device)
    except Exception as error:  # noqa: BLE001  (whatever it is, the next case runs)
        return f"{type(error).__name__}: {error}"[:300]
    return ""
