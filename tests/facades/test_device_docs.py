"""The examples of the page on GPUs run on one; without one they do nothing."""

import re

from conftest import REPOSITORY


def test_examples(gpu, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    names = {"__name__": "example"}
    for block in re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / "docs/gpu.md").read_text(), re.MULTILINE | re.DOTALL
    ):
        exec(compile(block, "gpu.md example", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "16 bits were allowed, and tuning is off"
    assert [line for line in lines if "10)" in line] == ["(2, 10)", "gpu:0 (10, 10)"]
