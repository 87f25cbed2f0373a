"""Sessions of several processes on one copy of the weights."""

import gc
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import litehouse
from conftest import FIXTURES, REPOSITORY, assert_close
from litehouse import Session, WeightError
from litehouse.weights import handover
from litehouse.weights.segments import Segment
from onnx_models import mlp, mlp_result, mlp_weights, model, node

X = np.random.default_rng(1).normal(size=(2, 4)).astype("f")
SECONDS = 600  # for what must happen: a machine may take long to start a process, and who waits longer hangs
DIGITS = REPOSITORY / "examples" / "digits" / "model" / "digits.mindir"

# A process that does what it is told, a line at a time.
CHILD = """
import json, os, sys
import numpy as np
import litehouse
from litehouse.weights import handover

handover.SECONDS = 60.0  # on a busy machine the other may take long to answer

def weights(seed):
    random = np.random.default_rng(seed)
    return {"w1": random.normal(size=(4, 300)).astype("f"), "w2": random.normal(size=(300, 3)).astype("f")}

session = None
x = np.random.default_rng(1).normal(size=(2, 4)).astype("f")
for line in sys.stdin:
    command, *arguments = json.loads(line)
    try:
        if command == "attach":
            session = litehouse.attach(*arguments, threads=1)
            answer = "attached"
        elif command == "load":
            session = litehouse.load(*arguments[:1], updatable="all", updatable_mode=arguments[1], threads=1)
            answer = "loaded"
        elif command == "share":
            answer = session.share(*arguments)
        elif command == "run":
            answer = session(x)[0].tolist()
        elif command == "update":
            session.update_weights(weights(arguments[0]))
            answer = "updated"
        elif command == "fork":
            begun, begins = os.pipe()
            pid = os.fork()
            if pid == 0:
                import time
                os.write(begins, b".")
                time.sleep(600)
                os._exit(0)
            os.read(begun, 1)  # it has let go of what it inherited
            answer = pid
        elif command == "loop":
            print(json.dumps("looping"), flush=True)
            while True:
                session(x)
        elif command == "updates":
            print(json.dumps("updating"), flush=True)
            seed = 0
            while True:
                seed = seed % 7 + 1
                session.update_weights(weights(seed))
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
"""


class Child:
    """Another process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self.process.pid

    def do(self, command: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)


@pytest.fixture
def children() -> Iterator[Any]:
    made: list[Child] = []

    def make() -> Child:
        made.append(Child())
        return made[-1]

    yield make
    for child in made:
        child.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(mlp())
    return tmp_path / "m.onnx"


def _load(path: Path, mode: str) -> Session:
    return litehouse.load(path, updatable="all" if mode else (), updatable_mode=mode, threads=1)


MODES = ("", "in_place", "swap")


@pytest.mark.parametrize("mode", MODES)
def test_another_process_computes_the_same(path: Path, children: Any, mode: str) -> None:
    child = children()
    with _load(path, mode) as session:
        handle = session.share([child.pid])
        assert 0 < handle < 2**63
        assert_close(session(X)[0], mlp_result(X))
        assert session.engine.reason == "its weights are shared with other processes"
        assert child.do("attach", handle) == "attached"
        assert_close(np.array(child.do("run"), "f"), mlp_result(X))
    assert_close(np.array(child.do("run"), "f"), mlp_result(X))  # the owner is gone, the memory is not


@pytest.mark.parametrize("mode", MODES[1:])
def test_updates_reach_the_others(path: Path, children: Any, mode: str) -> None:
    first, late = children(), children()
    with _load(path, mode) as session:
        session.update_weights(mlp_weights(3))
        handle = session.share([first.pid, late.pid])
        assert first.do("attach", handle) == "attached"
        assert_close(np.array(first.do("run"), "f"), mlp_result(X, seed=3))
        for seed in range(40):
            session.update_weights(mlp_weights(seed))
            assert_close(np.array(first.do("run"), "f"), mlp_result(X, seed=seed))
        for seed in range(40, 80):
            session.update_weights({"w2": mlp_weights(39)["w2"]} if seed % 2 else {"w1": mlp_weights(39)["w1"]})
        assert late.do("attach", handle) == "attached"
        assert_close(np.array(late.do("run"), "f"), mlp_result(X, seed=39))
        assert "the weights belong to process" in late.do("update", 1)["error"]
        assert "the weights belong to process" in late.do("share", [])["error"]
        assert_close(session(X)[0], mlp_result(X, seed=39))


def test_a_process_outside_the_list_is_refused_and_logged(
    path: Path, children: Any, caplog: pytest.LogCaptureFixture
) -> None:
    friend, stranger = children(), children()
    with _load(path, "in_place") as session, caplog.at_level(logging.WARNING):
        handle = session.share([friend.pid])
        answer = stranger.do("attach", handle)
        assert f"process {stranger.pid} is not in the list of those that may have them" in answer["error"]
        assert answer["error"].startswith("UnavailableError")
        deadline = time.monotonic() + SECONDS
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
        assert f"process {stranger.pid}" in caplog.text
        assert friend.do("attach", handle) == "attached"
        assert session.share([stranger.pid]) == handle  # now it may
        assert stranger.do("attach", handle) == "attached"


def test_who_got_the_number_of_a_process_that_ended_is_refused(path: Path, children: Any, monkeypatch: Any) -> None:
    child, other = children(), children()
    with _load(path, "") as session:
        handle = session.share([child.pid])
        child.kill()
        monkeypatch.setattr(handover, "peer", lambda _: (child.pid, os.getuid()))  # as if another had its number
        assert "is not the one that was in the list" in other.do("attach", handle)["error"]


def test_a_process_of_another_user_is_refused(path: Path, children: Any, monkeypatch: Any) -> None:
    child = children()
    with _load(path, "") as session:
        handle = session.share([child.pid])
        monkeypatch.setattr(handover, "peer", lambda _: (child.pid, 12345))
        assert "belongs to user 12345" in child.do("attach", handle)["error"]


def test_handles_that_lead_nowhere(path: Path, monkeypatch: Any) -> None:
    with _load(path, "") as session:
        handle = session.share([])
    monkeypatch.setattr(handover.Asker, "ask", lambda _: pytest.fail("somebody is asked"))  # it is told at once
    for wrong in (handle, 12345, 0, -1, 2**63, 2**64):
        with pytest.raises(WeightError, match="nobody offers weights under the handle"):
            litehouse.attach(wrong)
    with _load(path, "") as session, pytest.raises(WeightError, match=r"there is no process \d+ to share"):
        session.share([2**22 + 1])


def test_an_owner_that_hangs_is_told_in_time(path: Path, children: Any, monkeypatch: Any) -> None:
    child = children()
    assert child.do("load", str(path), "in_place") == "loaded"
    handle = child.do("share", [os.getpid()])
    os.kill(child.pid, signal.SIGSTOP)
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(handover, "SECONDS", 0.5)
            with pytest.raises(WeightError, match="does not answer"):
                litehouse.attach(handle)
    finally:
        os.kill(child.pid, signal.SIGCONT)
    litehouse.attach(handle).close()


def test_the_file_must_be_the_one_that_is_shared(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(mlp(seed=1))
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(path.read_bytes())
    with _load(path, "in_place") as session:
        handle = session.share([])
        with pytest.raises(WeightError, match=r"other\.onnx is not the model whose weights process \d+ shares"):
            litehouse.attach(handle, other)
        with litehouse.attach(handle, copy) as attached:
            wide = np.random.default_rng(2).normal(size=(5, 4)).astype("f")
            attached.resize([(5, 4)])
            assert_close(attached(wide)[0], mlp_result(wide))
            session.update_weights(mlp_weights(4))
            assert_close(attached(wide)[0], mlp_result(wide, seed=4))
        with litehouse.attach(handle, copy) as attached:
            copy.write_bytes(other.read_bytes())
            with pytest.raises(WeightError, match=r"copy\.onnx is not the model"):
                attached.resize([(7, 4)])
        path.write_bytes(other.read_bytes())
        with pytest.raises(WeightError, match=r"m\.onnx has changed since process \d+ loaded it"):
            litehouse.attach(handle, path)
        with pytest.raises(WeightError, match=r"nowhere\.onnx, or a file beside it .* cannot be read"):
            litehouse.attach(handle, tmp_path / "nowhere.onnx")
        with litehouse.attach(handle) as attached:
            attached.resize([(2, 4)])
            with pytest.raises(litehouse.ShapeError, match="attached without its file"):
                attached.resize([(5, 4)])
            assert_close(attached(X)[0], mlp_result(X, seed=4))


def test_arguments_that_cannot_be(path: Path) -> None:
    with _load(path, "in_place") as session:
        handle = session.share([])
        for wrong in (str(handle), None, 1.5):
            with pytest.raises(TypeError, match="handle must be the number that share"):
                litehouse.attach(wrong)  # type: ignore[arg-type]
        for name, value in (("engine", "openvino"), ("updatable", "all")):
            with pytest.raises(TypeError, match=f"{name} is as in the process that shares the model"):
                litehouse.attach(handle, **{name: value})
        with pytest.raises(TypeError, match="there is no option 'nonsense'"):
            litehouse.attach(handle, nonsense=1)
        for pids in (5, None, "12", ["12"], [True]):
            with pytest.raises(TypeError, match="pids must be a list of process numbers"):
                session.share(pids)  # type: ignore[arg-type]
        with pytest.raises(WeightError, match="the weights belong to process"):
            litehouse.attach(handle).use_arena(litehouse.Arena())


def test_thousands_of_live_weights_are_handed_over(tmp_path: Path) -> None:
    """Their names are more than a message can take."""
    from litehouse import sharing

    names = [f"{'a long name of a weight':_^100}{number}" for number in range(5000)]
    live = Segment.make({name: np.full(1, number, "f") for number, name in enumerate(names)}, {})
    shared = sharing.Sharing(Segment.make({}, {"runtime": sharing.runtime()}), live, "m.onnx", "")
    try:
        arrays = sharing.Attached(shared.handle).now.arrays
        assert [float(arrays[name][0]) for name in names] == list(range(5000))
    finally:
        shared.close()


def test_another_version_is_refused(path: Path, monkeypatch: Any) -> None:
    from litehouse import sharing

    with _load(path, "") as session:
        handle = session.share([])
        monkeypatch.setattr(sharing, "runtime", lambda: ["0.0", "x", "1.0"])
        with pytest.raises(WeightError, match=r"shares weights as Litehouse .* this one has 0\.0 and 1\.0"):
            litehouse.attach(handle)


def test_what_was_attached_describes_the_model(path: Path) -> None:
    with _load(path, "in_place") as session:
        with litehouse.attach(session.share([])) as attached:
            assert attached.inputs == session.inputs
            assert attached.outputs == session.outputs
            assert {name: (own.dtype, own.shape) for name, own in attached.weights.items()} == {
                name: (own.dtype, own.shape) for name, own in session.weights.items()
            }
            assert not any(own.is_updatable for own in attached.weights.values())  # the owner updates them
            assert attached.model.format == "onnx"
        with pytest.raises(litehouse.EngineError, match="closed"):
            attached(X)


def test_a_forked_process_keeps_no_offer_alive(path: Path, children: Any) -> None:
    child = children()
    assert child.do("load", str(path), "in_place") == "loaded"
    handle = child.do("share", [os.getpid()])
    forked = child.do("fork")
    try:
        attached = litehouse.attach(handle)
        child.kill()
        with pytest.raises(WeightError, match="nobody offers"):
            litehouse.attach(handle)
        assert_close(attached(X)[0], mlp_result(X))
    finally:
        os.kill(forked, signal.SIGKILL)


def test_updates_that_nobody_can_hand_over_any_more(path: Path, children: Any, caplog: Any) -> None:
    """The owner dies behind an update, before it was fetched: what there was stays, and that is logged once."""
    child = children()
    assert child.do("load", str(path), "in_place") == "loaded"
    attached = litehouse.attach(child.do("share", [os.getpid()]))
    assert_close(attached(X)[0], mlp_result(X))
    assert child.do("update", 3) == "updated"
    child.kill()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert_close(attached(X)[0], mlp_result(X))
    assert caplog.text.count("no longer followed") == 1


def test_killing_any_of_them_harms_no_other(path: Path, children: Any) -> None:
    moments = random.Random(0)
    owner, receiver = children(), children()
    for turn in range(50):
        if owner.process.poll() is not None:
            owner = children()
        if receiver.process.poll() is not None:
            receiver = children()
        assert owner.do("load", str(path), "in_place" if turn % 2 else "swap") == "loaded"
        handle = owner.do("share", [receiver.pid, os.getpid()])
        attached = litehouse.attach(handle)
        assert receiver.do("attach", handle) == "attached"
        expected = [mlp_result(X)] + [mlp_result(X, seed=seed) for seed in range(1, 8)]
        if turn % 3 == 0:
            assert receiver.do("loop") == "looping"
            receiver_loops = True
        else:
            receiver_loops = False
        assert owner.do("updates") == "updating"
        end = time.monotonic() + moments.uniform(0, 0.1)
        while time.monotonic() < end:
            _is_one_of(attached(X)[0], expected)
        victim = owner if turn % 3 else receiver
        victim.kill()
        for _ in range(5):
            _is_one_of(attached(X)[0], expected)
        if not receiver_loops:
            _is_one_of(np.array(receiver.do("run"), "f"), expected)
        attached.close()
        owner.kill()


def _is_one_of(y: np.ndarray, expected: list[np.ndarray]) -> None:
    assert min(np.abs(y - each).max() for each in expected) < 1e-3


def test_nothing_is_left_open(path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def once() -> None:
        with _load(path, "in_place") as session:
            with litehouse.attach(session.share([])) as attached:
                for seed in range(3):
                    session.update_weights(mlp_weights(seed))
                    attached(X)
            del attached
        del session

    once()
    gc.collect()
    before = descriptors()
    for _ in range(3):
        once()
    gc.collect()
    assert descriptors() == before


OWNER = """
import gc, sys
import numpy as np
import litehouse

session, x = litehouse.load(sys.argv[1], threads=1, engine="onnxruntime"), np.ones((1, 1024), "f")
session(x)
session.share([])
session(x)
gc.collect()
with open("/proc/self/status") as lines:
    print(next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")))
"""


def test_what_is_shared_is_no_second_copy_in_its_owner(tmp_path: Path) -> None:
    weights = {f"w{step}": np.full((1024, 1024), 1e-3 * step, "f") for step in range(48)}
    nodes = [node("MatMul", f"h{step} w{step}", f"h{step + 1}") for step in range(48)]
    (tmp_path / "m.onnx").write_bytes(model(nodes, {"h0": [1, 1024]}, {"h48": [1, 1024]}, weights))
    command = [sys.executable, "-c", OWNER, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 0.8 * sum(array.nbytes for array in weights.values())  # half of it is the libraries


def test_one_copy_in_an_arena(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(mlp(5))  # another size, the same weights
    arena = litehouse.Arena()
    first, second = litehouse.load(path), litehouse.load(tmp_path / "other.onnx")
    first.use_arena(arena)
    alone = arena.nbytes
    second.use_arena(arena)
    assert alone == arena.nbytes == 4 * (4 * 300 + 300 * 3)
    wide = np.random.default_rng(2).normal(size=(5, 4)).astype("f")
    assert_close(first(X)[0], mlp_result(X))
    assert_close(second(wide)[0], mlp_result(wide))


def test_sizes_of_what_was_swapped_are_refused(path: Path) -> None:
    with _load(path, "swap") as session:
        handle = session.share([])
        session.update_weights(mlp_weights(5))
        with litehouse.attach(handle, path) as attached:
            assert_close(attached(X)[0], mlp_result(X, seed=5))
            with pytest.raises(litehouse.ShapeError, match="its weights are built into what the other process shares"):
                attached.resize([(5, 4)])


def test_other_sizes_of_a_megengine_model() -> None:
    path = FIXTURES / "mge" / "shape" / "flatten_range.mge"
    with litehouse.load(path, threads=1) as session:
        handle = session.share([])
        shapes = [(info.shape[0] + 2, *info.shape[1:]) for info in session.inputs]  # type: ignore[operator]
        arrays = [np.random.default_rng(0).normal(size=shape).astype("f") for shape in shapes]
        with litehouse.load(path, threads=1) as alone, litehouse.attach(handle, path) as attached:
            for each in (alone, attached, session):
                each.resize(shapes)
            expected = alone.run(arrays)
            for each in (attached, session):
                for found, wanted in zip(each.run(arrays), expected, strict=True):
                    assert_close(found, wanted)
        with (
            litehouse.attach(handle) as attached,
            pytest.raises(litehouse.ShapeError, match="attached without its file"),
        ):
            attached.resize(shapes)


def test_large_constants_in_branches_are_shared_with_their_graph() -> None:
    large = np.arange(300, dtype="f").reshape(1, 300)
    branches = {}
    for name, factor in (("then_branch", 1), ("else_branch", 2)):
        constant = onnx.numpy_helper.from_array(large * factor, f"{name}_c")
        made = onnx.helper.make_tensor_value_info(f"{name}_y", onnx.TensorProto.FLOAT, (1, 300))
        add = onnx.helper.make_node("Add", ["x", f"{name}_c"], [f"{name}_y"])
        branches[name] = onnx.helper.make_graph([add], name, [], [made], [constant])
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "is_large"),
        onnx.helper.make_node("If", ["is_large"], ["y"], **branches),
    ]
    source = model(nodes, {"x": (1, 300)}, {"y": (1, 300)}, {"zero": np.array(0, "f")})
    with litehouse.load(source, engine="onnxruntime") as session, litehouse.attach(session.share([])) as attached:
        for x in (np.ones((1, 300), "f"), -np.ones((1, 300), "f")):
            assert_close(attached(x)[0], x + large * (1 if x.sum() > 0 else 2))


def test_a_twin_of_what_was_attached_follows_too(path: Path) -> None:
    for mode in ("in_place", "swap"):
        with _load(path, mode) as session, litehouse.attach(session.share([])) as first:
            second = first.twin()
            session.update_weights(mlp_weights(5))
            for each in (first, second, first):
                assert_close(each(X)[0], mlp_result(X, seed=5))


def test_closing_twice_and_updating_behind_it_closes_no_other_file(path: Path, tmp_path: Path) -> None:
    session = _load(path, "in_place")
    twin = session.twin()
    session.share([])
    session.close()
    session.close()
    files = [open(tmp_path / f"{place}.txt", "w") for place in range(12)]  # noqa: SIM115
    twin.update_weights(mlp_weights(5))
    for file in files:
        file.write("x")
        file.close()
    assert_close(twin(X)[0], mlp_result(X, seed=5))


def test_sharing_with_nobody_that_exists_changes_nothing(path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with _load(path, "") as session:
        loaded = session.loaded
        for wrong in ([os.getpid(), 2**22 + 1], [-5], [2**40]):
            with pytest.raises(WeightError, match="process"):
                session.share(wrong)
            assert session.loaded is loaded
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == before


def test_naming_a_process_again_takes_no_more(path: Path, children: Any) -> None:
    child = children()
    with _load(path, "") as session:
        session.share([child.pid])
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            session.share([child.pid])
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_was_changed_before_it_is_shared_is_not_taken_for_the_model(path: Path) -> None:
    with _load(path, "") as session:
        path.write_bytes(mlp(seed=1))
        handle = session.share([])
        with pytest.raises(WeightError, match="from no file that is still there"):
            litehouse.attach(handle, path)
        litehouse.attach(handle).close()


def test_an_encrypted_model_is_shared_by_its_file() -> None:
    path = FIXTURES / "mindir" / "containers" / "sm4_cbc.mindir"
    with litehouse.load(path, key=b"litehouse-key-16", mode="SM4-CBC", threads=1) as session:
        handle = session.share([])
        with litehouse.attach(handle, path) as attached:
            assert attached.inputs == session.inputs


def test_a_process_that_the_owner_forks_off_shares_nothing(path: Path) -> None:
    with _load(path, "in_place") as session, litehouse.attach(session.share([])) as attached:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                session.update_weights(mlp_weights(7))
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert_close(attached(X)[0], mlp_result(X))
        session.update_weights(mlp_weights(5))
        assert_close(attached(X)[0], mlp_result(X, seed=5))


def test_a_process_that_a_receiver_forks_off_does_not_spoil_its_connection(path: Path, children: Any) -> None:
    owner = children()
    assert owner.do("load", str(path), "in_place") == "loaded"
    attached = litehouse.attach(owner.do("share", [os.getpid()]), threads=1)
    assert owner.do("update", 3) == "updated"
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            attached(X)  # it is not in the list, and goes on with what it has
            status = 0
        finally:
            os._exit(status)
    assert_close(attached(X)[0], mlp_result(X, seed=3))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert owner.do("update", 4) == "updated"
    assert_close(attached(X)[0], mlp_result(X, seed=4))


def test_an_arena_gives_up_what_nobody_uses(path: Path) -> None:
    arena = litehouse.Arena()
    session = litehouse.load(path)
    session.use_arena(arena)
    assert arena.nbytes
    session.close()
    del session
    gc.collect()
    assert arena.nbytes == 0


# Within a process -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sibling_sessions")
def test_sessions_of_one_file_share_the_compiled_model() -> None:
    first, second = (litehouse.load(DIGITS, threads=1) for _ in range(2))
    assert first.loaded is second.loaded
    assert litehouse.load(DIGITS, threads=2).loaded is not first.loaded
    images = np.random.default_rng(0).normal(size=(10, 1, 8, 8)).astype("f")
    before = first(images)[0]
    first.close()
    np.testing.assert_array_equal(second(images)[0], before)
    third = litehouse.load(DIGITS, threads=1)
    assert third.loaded is second.loaded
    third.resize([(3, 1, 8, 8)])
    assert second.inputs[0].shape == (10, 1, 8, 8)


@pytest.mark.usefixtures("sibling_sessions")
def test_what_one_session_updates_the_next_does_not_see() -> None:
    images = np.random.default_rng(0).normal(size=(10, 1, 8, 8)).astype("f")
    expected = litehouse.load(DIGITS)(images)[0]
    for mode in ("in_place", "swap"):
        first = litehouse.load(DIGITS, updatable="all", updatable_mode=mode, engine="onnxruntime")
        bias = np.array(first.model.weights["network.scores.bias"])
        first.update_weights({"network.scores.bias": bias + np.arange(10, dtype="f")})
        second = litehouse.load(DIGITS, updatable="all", updatable_mode=mode, engine="onnxruntime")
        assert_close(second(images)[0], expected)
        assert np.abs(first(images)[0] - expected).max() > 0.1


@pytest.mark.usefixtures("sibling_sessions")
def test_a_file_that_was_changed_is_another(path: Path) -> None:
    first = litehouse.load(path)
    path.write_bytes(mlp(seed=1))
    assert_close(litehouse.load(path)(X)[0], mlp_result(X, seed=1))
    assert_close(first(X)[0], mlp_result(X))
