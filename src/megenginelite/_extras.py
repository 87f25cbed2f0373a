"""`Extras`: what a run of a network can be besides a run. Callbacks, another thread, dumps, a profile."""

import time
from collections.abc import Mapping

from litehouse import Options
from litehouse.cores.gate import core_places
from megenginelite._callbacks import AsyncCallback, TensorCallback
from megenginelite._config import LiteIO
from megenginelite._dumps import BinaryDump, Profile, TextDump, Variables
from megenginelite._loaded import Loaded
from megenginelite._worker import Worker
from megenginelite.tensor import LiteTensor


class Extras:
    """What happens before, beside and after a run.

    Attributes:
        start: Called with the inputs before a run.
        finish: Called with the outputs after it, by `wait`.
        dumps: Where all variables are written.
        profile: Where the time of the runs is written.
    """

    def __init__(self) -> None:
        self.start: TensorCallback | None = None
        self.finish: TensorCallback | None = None
        self.dumps: list[TextDump | BinaryDump] = []
        self.profile: Profile | None = None
        self._callback: AsyncCallback | None = None
        self._worker: Worker | None = None
        self._variables: Variables | None = None
        self._is_waited_for = True

    @property
    def are_needed(self) -> bool:
        """Whether a run is more than a run."""
        return any((self.start, self.finish, self.dumps, self.profile, self._callback))

    def run_beside(self, callback: AsyncCallback) -> None:
        """Run in another thread from now on, and call something at the end of each run."""
        self.join()
        self._callback = callback
        self._worker = self._worker or Worker()

    def join(self) -> None:
        """Wait for the run in another thread, and raise the error that it had."""
        if self._worker is not None:
            self._worker.join()

    def forget(self) -> None:
        """Be ready for another model."""
        self._variables = None
        self._is_waited_for = True

    def forward(self, loaded: Loaded) -> None:
        """Run, or begin to run in another thread. What is wrong with the inputs is raised here in any case."""
        self.join()
        if loaded.pieces:
            loaded.join_pieces()
        if self.start is not None:
            self.start(_by_io(loaded, loaded.inputs))
        loaded.fit()
        if self._worker is None:
            self._run(loaded)
            self._is_waited_for = False
        else:
            self._worker.start(lambda: self._run_beside(loaded))

    def wait(self, loaded: Loaded) -> None:
        """Wait for the run, and do what comes after it."""
        self.join()
        if not self._is_waited_for:
            self._is_waited_for = True
            self._end(loaded)

    def _run(self, loaded: Loaded) -> None:
        start = time.perf_counter()
        loaded.run()
        if self.profile is not None:
            loaded.wait()
            self.profile.seconds = time.perf_counter() - start
        if self.dumps:
            if self._variables is None:
                self._variables = Variables(loaded.model, Options(threads=loaded.session.options.threads))
            variables = self._variables.compute(loaded.arrays())
            for dump in self.dumps:
                dump.write(variables)

    def _run_beside(self, loaded: Loaded) -> None:
        with core_places.inside(loaded.session.options.threads):  # many networks may run at once
            self._run(loaded)
            loaded.wait()
        self._end(loaded)
        if self._callback is not None:
            self._callback()

    def _end(self, loaded: Loaded) -> None:
        if self.profile is not None:
            self.profile.write(loaded.inputs, loaded.outputs)
        if self.finish is not None:
            self.finish(_by_io(loaded, loaded.outputs))


def _by_io(loaded: Loaded, tensors: Mapping[str, LiteTensor]) -> dict[LiteIO, LiteTensor]:
    ios = loaded.settings.ios
    return {ios.get(name) or LiteIO(name): tensor for name, tensor in tensors.items()}
