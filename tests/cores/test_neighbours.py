"""Sessions that live side by side do not keep each other's cores busy."""

import gc

import onnxruntime

import litehouse
from litehouse.cores import neighbours
from litehouse.engines import onnxruntime as engine
from onnx_models import mlp


def _spins(threads: int) -> bool:
    settings = engine.make_settings(onnxruntime, litehouse.Options(threads=threads))
    try:
        return settings.get_session_config_entry("session.force_spinning_stop") != "1"
    except RuntimeError:  # it was not set
        return True


def test_a_lone_session_waits_for_its_next_run_and_several_do_not() -> None:
    gc.collect()
    while neighbours.are_there():  # of other tests
        neighbours.leave(next(iter(neighbours._living)))
    assert _spins(2)
    single = litehouse.load(mlp(), threads=1)
    assert _spins(2)  # it has no threads of its own
    first = litehouse.load(mlp(), threads=2)
    assert not _spins(2)
    first.close()
    assert _spins(2)
    second = litehouse.load(mlp(), threads=2)
    assert not _spins(2)
    del second
    gc.collect()
    assert _spins(2)
    single.close()
