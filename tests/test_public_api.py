"""What is public is listed, documented, typed, and cheap to import."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import litehouse
import megenginelite
import mindspore_lite

HEAVY = ("onnx", "onnx_ir", "onnxruntime", "openvino", "google.protobuf", "cryptography", "typer", "rich")


def test_all_is_what_there_is() -> None:
    assert litehouse.__all__ == sorted(litehouse.__all__)
    for name in litehouse.__all__:
        assert getattr(litehouse, name) is not None


@pytest.mark.parametrize("package", [litehouse, mindspore_lite])
def test_public_things_have_docstrings(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        thing = getattr(package, name)
        if name.startswith("__"):
            continue
        assert inspect.getdoc(thing), f"{name} has no docstring"
        if inspect.isclass(thing):
            for member, function in inspect.getmembers(thing, inspect.isfunction):
                if not member.startswith("_"):
                    assert inspect.getdoc(function), f"{name}.{member} has no docstring"


@pytest.mark.parametrize("package", ["litehouse", "megenginelite", "mindspore_lite"])
def test_import_is_light(package: str) -> None:
    program = f"import {package}, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", [litehouse, megenginelite, mindspore_lite])
def test_typed(package: object) -> None:
    assert (Path(package.__file__).parent / "py.typed").exists()  # type: ignore[attr-defined]
