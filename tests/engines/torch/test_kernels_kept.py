"""Where torch's compiler has its files: in a folder of the user's own while kernels are made, and nowhere else."""

import contextlib
import errno
import getpass
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
from litehouse import Options
from litehouse.cache import LAYOUT, Cache
from litehouse.engines.torch import kernels_kept
from litehouse.engines.torch.compiled import Kernels
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.kernels_kept import FOLDER_VARIABLE, TRITON_VARIABLE, Workplace, used, workplace_of
from onnx_models import mlp, mlp_result

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
SECONDS = 600
X = np.ones((2, 4), "f")


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has set where the compiler's files are."""
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "1G")
    for name in (FOLDER_VARIABLE, TRITON_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    kernels_kept._warn.cache_clear()


def _folder() -> Path:
    """Where the compiler would write now; Triton's is inside."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    assert Path(os.environ[TRITON_VARIABLE]).parent == folder
    return folder


def _make() -> Path:
    (_folder() / "kernel.bin").write_bytes(b"made")
    return _folder()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_the_variables_are_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with used(tmp_path):
        assert _folder() == tmp_path
    assert FOLDER_VARIABLE not in os.environ
    assert TRITON_VARIABLE not in os.environ
    monkeypatch.setenv(FOLDER_VARIABLE, "/elsewhere")
    with pytest.raises(KeyError), used(tmp_path):
        raise KeyError
    assert os.environ[FOLDER_VARIABLE] == "/elsewhere"
    assert TRITON_VARIABLE not in os.environ


def test_what_is_made_stays_for_the_next_start(cache: Cache) -> None:
    folder = Workplace(cache, "key", "net.onnx").make(_make)
    assert folder == cache.folder / LAYOUT / "kernels" / "key"
    assert Workplace(cache, "key", "net.onnx").make(lambda: (_folder() / "kernel.bin").read_bytes()) == b"made"
    (entry,) = cache.entries()
    assert entry.facts == {"what": "kernels", "path": "net.onnx"}


def test_without_a_cache_nothing_stays() -> None:
    folder = Workplace().make(_make)
    assert not folder.exists()
    assert folder.name.startswith("litehouse-kernels-")


def test_what_is_too_much_does_not_stay(cache: Cache) -> None:
    cache.limit = 15  # of which a quarter is for kernels
    assert not Workplace(cache, "key").make(_make).exists()


@pytest.mark.parametrize("inner", ["kernels", "kernels/key"])
def test_a_folder_that_others_can_open_is_refused_once_aloud(
    cache: Cache, inner: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Workplace(cache, "key").make(_make)
    (cache.folder / LAYOUT / inner).chmod(0o755)
    (kept / "kernel.bin").write_bytes(b"of a stranger")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not Workplace(cache, "key").make(_make).exists()
    (record,) = caplog.records
    assert "no kernels are kept for the next start" in record.message
    assert "is open to others" in record.message
    assert (kept / "kernel.bin").read_bytes() == b"of a stranger"  # nobody has touched it


def test_a_folder_that_cannot_be_written_is_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_kept, "is_writable", lambda folder: False)
    assert not Workplace(cache, "key").make(_make).exists()


def test_a_folder_that_is_removed_meanwhile_is_no_error(cache: Cache) -> None:
    tried: list[Path] = []

    def make() -> Path:
        tried.append(_folder())
        if len(tried) == 1:
            cache.clear()
        return _make()

    Workplace(cache, "key").make(make)
    assert len(tried) == 2
    assert not tried[1].exists()


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("remove", [Cache.clear, lambda cache: cache.drop_workplace("key")])
def test_a_folder_that_the_compiler_has_made_anew(
    cache: Cache, remove: Callable[[Cache], object], fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As `litehouse cache clear`, or the bound of the cache, takes it away: the compiler's own are open to others."""
    tried: list[Path] = []

    def make() -> bool:
        tried.append(_folder())
        if len(tried) == 1:
            remove(cache)
        was_there = (_folder() / "inner" / "kernel.bin").exists()
        before = os.umask(0o022)
        try:
            os.makedirs(_folder() / "inner", exist_ok=True)
        finally:
            os.umask(before)
        (_folder() / "inner" / "kernel.bin").write_bytes(b"made")
        if fails and len(tried) == 1:
            raise FileNotFoundError("another file of the compiler")
        return was_there

    found = [Workplace(cache, "key").make(make) for _ in range(3)]
    assert found == [False, False, True]
    assert not caplog.records


def test_a_folder_with_damaged_files_is_removed(cache: Cache) -> None:
    kept = Workplace(cache, "key").make(_make)

    def make() -> None:
        if (_folder() / "kernel.bin").exists():
            raise ValueError("damaged")

    Workplace(cache, "key").make(make)
    assert not kept.exists()


def _cut(kept: Path) -> None:
    (kept / "inner" / "kernel.so").write_bytes(b"ma")


def _zero(kept: Path) -> None:
    (kept / "inner" / "kernel.so").write_bytes(bytes(4))


def _remove(kept: Path) -> None:
    (kept / "inner" / "kernel.so").unlink()


def _add(kept: Path) -> None:
    (kept / "inner" / "other.so").write_bytes(b"made")


def _unlist(kept: Path) -> None:
    (kept / kernels_kept.LIST).unlink()


@pytest.mark.parametrize("change", [_cut, _zero, _remove, _add, _unlist])
def test_files_that_are_not_as_they_were_left_are_not_used(cache: Cache, change: Callable[[Path], None]) -> None:
    """The compiler would load them as libraries, which can end the process."""

    def make() -> bool:
        (_folder() / "inner").mkdir(exist_ok=True)
        was_there = (_folder() / "first").exists()
        for name in ("first", "inner/kernel.so"):
            (_folder() / name).write_bytes(b"made")
        return was_there

    workplace = Workplace(cache, "key")
    assert [workplace.make(make), workplace.make(make), Workplace(cache, "key").make(make)] == [False, True, True]
    change(cache.folder / LAYOUT / "kernels" / "key")
    assert [Workplace(cache, "key").make(make), Workplace(cache, "key").make(make)] == [False, True]


DYING = """
import os, pathlib, sys
from litehouse.cache import Cache
from litehouse.engines.torch.kernels_kept import Workplace

Workplace(Cache(pathlib.Path(sys.argv[1])), "key").make(lambda: os._exit(7))
"""


def test_what_a_process_left_that_died_is_not_used(cache: Cache) -> None:
    kept = Workplace(cache, "key").make(_make)
    assert set(os.listdir(kept)) == {"kernel.bin", kernels_kept.LIST}
    command = [sys.executable, "-c", DYING, str(cache.folder)]
    assert subprocess.run(command, timeout=SECONDS, check=False).returncode == 7
    assert [name for name in os.listdir(kept) if name.startswith(kernels_kept.MARK)]
    assert Workplace(cache, "key").make(lambda: os.path.exists(_folder() / "kernel.bin")) is False


def test_processes_make_kernels_side_by_side(cache: Cache) -> None:
    kept = Workplace(cache, "key").make(_make)
    with kernels_kept._marked(kept):  # another process does
        assert Workplace(cache, "key").make(lambda: (_folder() / "kernel.bin").read_bytes()) == b"made"
    assert set(os.listdir(kept)) == {"kernel.bin", kernels_kept.LIST}


def test_a_file_that_is_cut_short_is_not_used_beside_another_process(cache: Cache) -> None:
    """Nor listed as it is now; and the other process, which is at work there, keeps its folder."""
    kept = Workplace(cache, "key").make(_make)
    (kept / "kernel.bin").write_bytes(b"m")
    with kernels_kept._marked(kept):
        (kept / "new.bin").write_bytes(b"made")
        assert Workplace(cache, "key").make(lambda: (_folder() / "kernel.bin").exists()) is False
        assert (kept / "new.bin").exists()
    assert Workplace(cache, "key").make(lambda: (_folder() / "kernel.bin").exists()) is False


@pytest.mark.parametrize("is_beside", [True, False])
def test_files_that_cannot_be_read_are_not_used(cache: Cache, is_beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else is at work there; kernels are made all the same."""
    kept = Workplace(cache, "key").make(_make)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk fails")

    with kernels_kept._marked(kept) if is_beside else contextlib.nullcontext():
        monkeypatch.setattr(kernels_kept.hashlib, "file_digest", fail)
        assert Workplace(cache, "key").make(_make) != kept


def test_no_process_finds_files_that_are_not_listed_yet(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, was_listed = kernels_kept.unlink, []

    def watched(path: Path) -> None:
        was_listed.append((Path(path).parent / kernels_kept.LIST).exists())
        unlink(path)

    monkeypatch.setattr(kernels_kept, "unlink", watched)
    Workplace(cache, "key").make(_make)
    assert was_listed == [True]  # when the mark went


def test_a_process_that_begins_while_another_one_looks(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, digests, begun = Workplace(cache, "key").make(_make), kernels_kept._digests, []
    with contextlib.ExitStack() as stack:

        def watched(folder: Path, known: Any) -> Any:
            if not begun:
                begun.append(True)
                stack.enter_context(kernels_kept._marked(kept))
                (kept / "begun.bin").write_bytes(b"be")
            return digests(folder, known)

        monkeypatch.setattr(kernels_kept, "_digests", watched)
        assert Workplace(cache, "key").make(_make) == kept
        assert (kept / "begun.bin").exists()


def test_a_process_that_ends_while_another_one_lists(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    digests, was_there = kernels_kept._digests, []

    def watched(folder: Path, known: Any) -> Any:
        found = digests(folder, known)
        if not (folder / "other.bin").exists():
            (folder / "other.bin").write_bytes(b"other")
            kernels_kept._list(folder, kernels_kept._shown(digests(folder, {})))
        return found

    monkeypatch.setattr(kernels_kept, "_digests", watched)
    Workplace(cache, "key").make(_make)
    monkeypatch.undo()
    Workplace(cache, "key").make(lambda: was_there.append((_folder() / "other.bin").exists()))
    assert was_there == [True]


def test_a_folder_that_another_process_has_put_in_the_place_of_ours(cache: Cache) -> None:
    """As where both find damaged files: one drops them, begins anew, and is dropped by the other."""
    tried: list[Path] = []

    def make() -> str:
        tried.append(_folder())
        if len(tried) == 1:
            cache.drop_workplace("key")
            other = cache.workplace("key", "")
            assert other is not None
            (other / "kernel.bin").write_bytes(b"its own")
            raise FileNotFoundError("a file of the compiler")
        return "made"

    assert Workplace(cache, "key").make(make) == "made"
    assert (tried[0] / "kernel.bin").read_bytes() == b"its own"


def test_a_mark_that_goes_while_another_process_looks_at_it(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Workplace(cache, "key").make(_make)
    mark = kept / f"{kernels_kept.MARK}-5"
    for is_left in (True, False):
        mark.touch()
        assert kernels_kept._is_left(mark) is is_left
        monkeypatch.setattr(kernels_kept.fcntl, "flock", lambda *_: mark.unlink())


def test_two_processes_look_at_a_mark_at_a_time(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all workers start anew behind one that died: none takes the other for the one that left the mark."""
    mark = Workplace(cache, "key").make(_make) / f"{kernels_kept.MARK}-5"
    mark.touch()
    flock, found = kernels_kept.fcntl.flock, []

    def locked(file: Any, how: int) -> None:
        flock(file, how)
        if not found:
            found.append(None)
            found.append(kernels_kept._is_left(mark))

    monkeypatch.setattr(kernels_kept.fcntl, "flock", locked)
    assert kernels_kept._is_left(mark)
    assert found == [None, True]


def test_links_do_no_harm(cache: Cache) -> None:
    def make() -> bool:
        was_there = (_folder() / "kernel.bin").exists()
        if not was_there:
            (_folder() / "link").symlink_to("nowhere")
            os.mkfifo(_folder() / "pipe")
        _make()
        return was_there

    assert [Workplace(cache, "key").make(make) for _ in range(3)] == [False, True, True]


def test_an_error_of_the_maker_is_told_once(cache: Cache) -> None:
    calls: list[Path] = []

    def make() -> None:
        calls.append(_folder())
        raise ValueError("no compiler")

    with pytest.raises(ValueError, match="no compiler"):
        Workplace(cache, "key").make(make)
    assert len(calls) == 1


@pytest.mark.parametrize("is_secret", [False, True])
def test_which_models_have_a_folder(tmp_path: Path, is_secret: bool) -> None:
    model = litehouse.read(mlp(), cache=tmp_path / "cache")
    model.is_secret = is_secret
    assert workplace_of(model, Options(cache=False)).make(_make).parent == Path(tempfile.gettempdir())
    folder = workplace_of(model, Options(cache=tmp_path / "cache")).make(_make)
    assert folder.exists() != is_secret
    assert not is_secret or not (tmp_path / "cache" / LAYOUT / "kernels").exists()


def test_each_model_has_its_own(tmp_path: Path) -> None:
    options = Options(cache=tmp_path)
    models = [litehouse.read(mlp(seed=seed), cache=tmp_path) for seed in (1, 2, 1)]
    first, second, again = [workplace_of(model, options).make(_make) for model in models]
    assert first == again != second


def test_kernels_that_cannot_be_made_are_an_error_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler\nfurther lines")

    monkeypatch.setattr("litehouse.engines.torch.compiled.compiled", fail)
    with pytest.raises(litehouse.EngineError, match=r"kernels cannot be made: RuntimeError: no compiler$"):
        Kernels(is_last=False).find("key", list, [])
    program = TorchEngine().compile(litehouse.read(mlp(), cache=False), Options(cache=False), form="compiled")
    with pytest.raises(litehouse.EngineError, match="kernels cannot be made"):
        program.bind().run([X])


# With the compiler itself ---------------------------------------------------------------------------------------------

START = """
import json, os, sys
from pathlib import Path
import numpy as np
import litehouse
from litehouse import Options
from litehouse.engines.torch.engine import TorchEngine
from torch._dynamo.utils import counters

data, cache = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]) if sys.argv[2] else False
model = litehouse.read(data, cache=cache)
before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
program = TorchEngine().compile(model, Options(cache=cache), form="compiled")
(y,) = program.bind().run([np.ones((2, 4), "f")])
again = program.bind().run([np.ones((2, 4), "f")])[0]
assert (y == again).all() and os.environ.get("TORCHINDUCTOR_CACHE_DIR") == before
print(json.dumps({"y": y.tolist(), **counters["inductor"]}))
"""


def _start(file: Path, cache: Path | None, temporary: Path) -> dict[str, Any]:
    """What a new process computes, and what its compiler has counted."""
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(temporary), FOLDER_VARIABLE: str(temporary / "usual")}
    command = [sys.executable, "-c", START, str(file), str(cache or "")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(found["y"], mlp_result(X), rtol=1e-5, atol=1e-6)
    return found


def _files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@needs_compiler
@pytest.mark.slow
def test_a_second_process_finds_the_kernels(tmp_path: Path) -> None:
    file, cache, temporary = tmp_path / "net.onnx", tmp_path / "cache", tmp_path / "temporary"
    file.write_bytes(mlp())
    usual = temporary / f"torchinductor_{getpass.getuser()}" / "cache" / "should_pad" / "of the user"
    usual.parent.mkdir(parents=True)
    usual.touch()
    first = _start(file, cache, temporary)
    assert (first.get("fxgraph_cache_miss"), first.get("fxgraph_cache_hit")) == (1, None)
    kernels = cache / LAYOUT / "kernels"
    made = _files(kernels)
    assert any(path.suffix == ".so" for path in made)
    for _ in range(2):
        later = _start(file, cache, temporary)
        assert (later.get("fxgraph_cache_miss"), later.get("fxgraph_cache_hit")) == (None, 1)
        assert _files(kernels) == made
    assert _files(temporary) == {usual.relative_to(temporary)}  # nothing came to any other place, or was removed there


@needs_compiler
@pytest.mark.slow
def test_without_a_cache_a_process_leaves_nothing(tmp_path: Path) -> None:
    file, temporary = tmp_path / "net.onnx", tmp_path / "temporary"
    file.write_bytes(mlp())
    assert _start(file, None, temporary).get("fxgraph_cache_hit") is None
    assert _files(temporary) == set()


@needs_compiler
@pytest.mark.slow
def test_damaged_kernels_are_made_anew(tmp_path: Path) -> None:
    file, cache, temporary = tmp_path / "net.onnx", tmp_path / "cache", tmp_path / "temporary"
    file.write_bytes(mlp())
    _start(file, cache, temporary)
    for path in (cache / LAYOUT / "kernels").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _start(file, cache, temporary)


@needs_compiler
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_whole_way_on_a_rehearsed_gpu(tmp_path: Path, rehearsed_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(mlp())
    os.utime(file, (1e9, 1e9))
    monkeypatch.setattr("litehouse.identity.YOUNG_SECONDS", -1.0)
    monkeypatch.setattr("litehouse.engines.select.TINY_SECONDS", 0.0)
    monkeypatch.setattr(TorchEngine, "forms", lambda *_: ("compiled",))
    load = {"device": "gpu", "engine": "torch", "tune": "fast", "cache": tmp_path / "cache"}
    first = litehouse.load(file, **load)
    assert [figure.form for figure in first.engine.figures] == ["", "compiled"]
    second = litehouse.load(file, **load)
    assert second.engine.facts() == first.engine.facts()
    np.testing.assert_allclose(second.run([X])[0], mlp_result(X), rtol=1e-5, atol=1e-6)
    assert [entry.facts["what"] for entry in Cache(tmp_path / "cache").entries()].count("kernels") == 1
