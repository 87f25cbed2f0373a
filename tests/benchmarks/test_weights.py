"""The benchmarks of updates and of shared memory, on tiny networks."""

import threading

import numpy as np
import pytest

from benchmarks import mixtures, shared_memory, updates


def test_updates(tiny, results):
    updates.main(["--networks", "mlp", "--rounds", "2"])
    found = results("updates")["results"]["mlp"]
    assert len(found["shape"]) > 1
    assert all(found[name]["median"] > 0 for name in updates.FIGURES)


def test_an_update_that_is_not_visible_is_told():
    class Still:
        def update_weights(self, new):
            """Nothing changes."""

        def run(self, inputs):
            return inputs

    with pytest.raises(SystemExit, match="is not visible"):
        updates.update(Still(), "w", np.ones((2, 2), "f"), [np.ones(3)], [np.ones(3)])


@pytest.mark.slow
@pytest.mark.openvino
def test_shared_memory(tiny, results):
    shared_memory.main(["--network", "mlp", "--processes", "2", "--rounds", "1"])
    (found,) = results("shared_memory")["rounds"]
    # What a process shares with others of the machine counts in part: two may seem to have less than one had before.
    assert all(found[name] > 10 for name in ("one", "by_handle", "by_cache", *shared_memory.ENGINES))
    assert found["attached_to_usual"] > 0
    assert all(found[f"{engine}_ratio"] > 0 for engine in shared_memory.ENGINES)


def test_mixtures(results):
    mixtures.main(["--runs", "400", "--threads", "2"])
    for own in results("mixtures")["results"].values():
        assert own["wrong"] == 0
        assert own["updates"] > 0


def test_a_mixture_is_counted():
    class Mixing:
        def __init__(self):
            self._turn = threading.local()

        def run(self, _):
            values = [np.full((1, mixtures.SIZE), number**mixtures.WEIGHTS, "f") for number in mixtures.NUMBERS]
            mixed = values[0].copy()
            mixed[0, 3] = 2.0
            self._turn.count = getattr(self._turn, "count", 0) + 1
            return [(*values, mixed, values[0] * 4)[self._turn.count % 5]]

    assert mixtures.run(Mixing(), 100, threads=2) == 40
