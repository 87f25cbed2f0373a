"""The examples on device memory run on a GPU that is made of the CPU's memory; without a GPU they do nothing."""

import re

from conftest import REPOSITORY


def test_examples(rehearsed_gpu, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    _, _, section = (REPOSITORY / "docs" / "gpu.md").read_text().partition("\n## Device memory\n")
    names = {"__name__": "example"}
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        exec(compile(block, "gpu.md example", "exec"), names)
    assert capsys.readouterr().out.splitlines() == ["(2, 10)", "gpu:0 (10, 10)"]
