"""The examples on device memory run on a GPU; without one they do nothing."""

import re

from conftest import REPOSITORY


def test_examples(gpu, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    _, _, section = (REPOSITORY / "docs" / "gpu.md").read_text().partition("\n## Device memory\n")
    names = {"__name__": "example"}
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        exec(compile(block, "gpu.md example", "exec"), names)
    assert capsys.readouterr().out.splitlines() == ["(2, 10)", "gpu:0 (10, 10)"]
