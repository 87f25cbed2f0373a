"""The programs of `make demo`."""

import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
TUTORIAL = REPOSITORY.parent / "shared" / "tutorials" / "mindspore_lite_inference_en.md"


def run(program, folder, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "quick_start" / program, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.zoo
@pytest.mark.skipif(not TUTORIAL.exists(), reason="the published tutorial is not beside the checkout")
def test_the_published_program_is_unmodified():
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    starts = ("import numpy", "# build model", "# set model input", "# execute inference", "# get output")
    published = [line for start in starts for line in next(b for b in blocks if b.startswith(start)).splitlines()]
    program = (EXAMPLES / "quick_start" / "quick_start.py").read_text().splitlines()
    ours = [line for line in program if line and line not in published]
    assert [line.partition(" = ")[0] for line in ours if line[0] != "#"] == ["MODEL_PATH", "IN_DATA_PATH"]
    assert [line for line in program if line in published and line] == [
        line for line in published if line and not re.match("(MODEL|IN_DATA)_PATH =", line)
    ]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_quick_start_prints_what_the_tutorial_says(tmp_path, elsewhere):
    first, second = run("quick_start.py", tmp_path if elsewhere else REPOSITORY).splitlines()
    assert re.fullmatch(r"tensor's name is:\S+ data size is:400 tensor elements num is:100", first)
    assert second.startswith("output data is: ")
    assert np.isfinite(np.array(second.removeprefix("output data is: ").split(), float)).sum() == 50


def test_digits_are_shown_and_read(tmp_path):
    shown = run("digits.py", tmp_path)
    pictures = [line for line in shown.splitlines() if set(line) & set("░▒▓█")]
    assert len(pictures) >= 14
    assert max(map(len, shown.splitlines())) <= 80
    answers = re.findall(r"read (\d), is (\d)", shown)
    assert len(answers) == 8
    right, count, accuracy = re.search(r"(\d+) of (\d+) held-back .* accuracy ([\d.]+)%", shown).groups()
    assert float(accuracy) > 90
    assert float(accuracy) == pytest.approx(100 * int(right) / int(count), abs=0.06)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_digits_without_blocks(tmp_path, encoding):
    shown = run("digits.py", tmp_path, PYTHONIOENCODING=encoding)
    assert shown.isascii()
    assert "##" in shown
    assert len(re.findall(r"read (\d), is (\d)", shown)) == 8


# MegEngine ------------------------------------------------------------------------------------------------------------

MEGENGINE = "../megengine_quick_start"


@pytest.mark.zoo
@pytest.mark.skipif(not TUTORIAL.exists(), reason="the published tutorial is not beside the checkout")
def test_the_published_megengine_program_is_unmodified():
    text = (TUTORIAL.parent / "megengine_lite_quick_start_zh.rst").read_text()
    block = text.partition(":linenos:\n")[2].partition("\n上面代码")[0]
    program = (EXAMPLES / "megengine_quick_start" / "inference.py").read_text()
    published = [line.rstrip() for line in textwrap.dedent(block).strip("\n").splitlines()]
    assert [line.rstrip() for line in program.splitlines() if not line.startswith("#")][1:] == published


def test_megengine_quick_start(tmp_path):
    shown = run(f"{MEGENGINE}/inference.py", tmp_path, EXAMPLES / "megengine_digits" / "digits.mge")
    highest, total = map(float, re.fullmatch(r"shufflenet output max=(\S+), sum=(\S+)\n", shown).groups())
    assert 0.1 < highest <= 1
    assert total == pytest.approx(1, abs=1e-5)  # the network gives probabilities


def test_megengine_reads_the_digits(tmp_path):
    """As many as MegEngine itself got right, which `examples/megengine_digits/README.md` says."""
    assert run(f"{MEGENGINE}/digits.py", tmp_path).startswith("348 of 350 held-back pictures are read right")
