"""Every example in README and the docs runs, and what is generated is up to date."""

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import litehouse
from conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of a page run one after another, as a reader would type them; what they write is not left behind."""
    for folder in ("examples", "tests"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for block in _blocks(page, "python"):
        exec(compile(block, f"{page.name} example", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_examples(page: Path, tmp_path: Path) -> None:
    commands = [
        line[2:].partition(" #")[0]
        for block in _blocks(page, "console")
        for line in block.splitlines()
        if line[:2] == "$ "
    ]
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), command
            continue
        assert program == "litehouse", f"{command}: an example of an unknown program is not checked"
        # What an example writes goes to a folder of the test; what it reads lies in the repository.
        arguments = [str(REPOSITORY / word) if (REPOSITORY / word).exists() else word for word in arguments]
        done = subprocess.run(
            [sys.executable, "-m", "litehouse", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, *REPOSITORY.glob("*.md")]:
        for target, _, heading in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", page.read_text()):
            if "://" not in target:
                other = page.parent / target if target else page
                assert other.exists(), f"{page.name} links to {target}"
                assert not heading or heading in _headings(other), f"{page.name} links to {target}#{heading}"


def _headings(page: Path) -> set[str]:
    """What links call the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("tool", ["make_operator_table.py", "make_mge_operator_table.py"])
def test_operator_table_is_up_to_date(tool: str) -> None:
    subprocess.run([sys.executable, REPOSITORY / "tools" / tool, "--check"], check=True)


def _modules() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(litehouse.__path__, "litehouse.")]
    return ["litehouse", *(name for name in found if not name.endswith(("__main__", "schema_pb2")))]


@pytest.mark.parametrize("name", _modules())
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
