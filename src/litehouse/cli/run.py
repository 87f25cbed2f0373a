"""`litehouse run`: run a model once, or several times, on arrays from files."""

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from litehouse.cli.arguments import (
    BuildSeconds,
    Debug,
    Device,
    Engine,
    Key,
    Mode,
    ModelPath,
    Precision,
    Provider,
    Resize,
    Threads,
    Tune,
    make_options,
    read_model,
    show_engine,
)
from litehouse.cli.arrays import gather_inputs, output_paths, save_outputs
from litehouse.cli.console import (
    CommandError,
    number_text,
    progress,
    reporting,
    seconds_text,
    shape_text,
    stdout,
    table,
    working,
)
from litehouse.cli.fitted import show_fitted
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.session import Session

if TYPE_CHECKING:
    from litehouse.parallel.launched import Launched

SHOWN_VALUES = 5


@reporting
def run_command(
    model: ModelPath,
    input: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="An input: .npy, .npz, or .bin with bare values. In order, or by name. Repeat for each input.",
        ),
    ] = None,
    zeros: Annotated[bool, typer.Option("--zeros", help="Fill the inputs that are not given with zeros.")] = False,
    random: Annotated[
        int | None, typer.Option(min=0, metavar="SEED", help="Fill them with random values of this seed.")
    ] = None,
    resize: Resize = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the outputs there, as output_0.npy and so on.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in --output.")] = False,
    repeat: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run N times more and print the times.")
    ] = None,
    ranks: Annotated[
        int, typer.Option("--ranks", "-n", min=1, metavar="N", help="Slice it, and run it over N processes.")
    ] = 1,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Give each process some of the layers, instead of a part of each.")
    ] = False,
    engine: Engine = "auto",
    device: Device = "cpu",
    provider: Provider = "",
    threads: Threads = 0,
    precision: Precision = "fp32",
    tune: Tune = None,
    build_seconds: BuildSeconds = None,
    key: Key = None,
    mode: Mode = "AES-GCM",
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Run a model on arrays from files, and show what it returns."""
    options = make_options(
        engine, device, threads, precision, provider=provider, tune=tune, build_seconds=build_seconds
    )
    if pipeline and ranks == 1:
        raise typer.BadParameter("--pipeline says how a model is sliced; say over how many processes with --ranks")
    if ranks > 1 and options.device_kind != "cpu":
        raise typer.BadParameter(
            f"--ranks runs on the CPU, not on {device!r}; for GPUs, cut the model with `litehouse slice` and start a "
            "program for each rank (docs/gpu.md, Ranks)"
        )
    if zeros and random is not None:
        raise typer.BadParameter("--zeros and --random exclude each other")
    if output is not None:
        _refuse_file(output)
    network = read_model(model, key, mode, cache=ranks == 1)
    if output is not None and not force:
        _refuse_overwriting(output_paths(output, len(network.outputs)))
    fill = "zeros" if zeros else np.random.default_rng(random) if random is not None else None
    arrays = gather_inputs(network.inputs, input or (), fill)
    with _opened(network, options, ranks, pipeline) as runner:
        session = runner if isinstance(runner, Session) else runner.session
        if resize:
            runner.resize([array.shape for array in arrays])
        results = runner.run(arrays)
        _show_outputs(network.outputs, results)
        show_engine(session, with_race=True)
        if output is not None:
            paths = save_outputs(output, results)
            stdout().print(f"wrote {paths[0]}" + (f" to {paths[-1].name}" if len(paths) > 1 else ""), soft_wrap=True)
        if repeat:
            _show_times(_measure(runner, arrays, repeat))


@contextlib.contextmanager
def _opened(network: Model, options: Options, ranks: int, pipeline: bool) -> Iterator["Session | Launched"]:
    """The model, ready to run: in this process, or sliced and in several."""
    if ranks == 1:
        with Session(network, options) as session:
            yield session
        return
    from litehouse.cli.slice import show_totals, sizes_of
    from litehouse.distributed.slicing import plan, write
    from litehouse.parallel.launched import Launched

    if network.is_secret:
        raise CommandError(
            f"{network.path}: the model is encrypted, and its parts would lie on the disk as they are; write them "
            "where you want them with `litehouse slice`, and start the ranks yourself"
        )
    with working("Planning"):
        made = plan(network, ranks, pipeline=pipeline)
    show_totals(sizes_of(made), Counter(each.op for each in made.exchanges))
    with tempfile.TemporaryDirectory(prefix="litehouse-") as folder:
        with progress("Slicing") as step:
            paths = write(made, Path(folder), step)
        with working(f"Starting {ranks} ranks"):
            launched = Launched(paths, options)
    with launched:  # all have read their files, which are gone
        yield launched


def _refuse_file(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise CommandError(f"{path}: this is a file; --output names the folder to write the outputs to")


def _refuse_overwriting(paths: Sequence[Path]) -> None:
    present = [path for path in paths if path.exists()]
    if present:
        raise CommandError(f"{present[0]}: the file exists; choose another folder, or overwrite it with --force")


def _show_outputs(infos: Sequence[TensorInfo], arrays: Sequence[np.ndarray]) -> None:
    rows = [
        (info.name, array.dtype.name, shape_text(array.shape), *_statistics(array), _first_values(array))
        for info, array in zip(infos, arrays, strict=True)
    ]
    columns = ("output", "dtype", "shape", "min", "max", "mean", "first values")
    show_fitted(columns, rows, right=("min", "max", "mean"), cut="first values", droppable=("first values", "dtype"))


def _statistics(array: np.ndarray) -> tuple[str, str, str]:
    """Least, greatest and mean value. Where some are not finite, those that are; the mean tells how many are not."""
    if array.size == 0 or array.dtype.kind not in "biufV":
        return ("-", "-", "-")
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    strange = array.size - finite.size
    note = f" ({strange} not finite)" if strange else ""
    if finite.size == 0:
        return ("-", "-", f"-{note}")
    return number_text(finite.min()), number_text(finite.max()), f"{number_text(finite.mean())}{note}"


def _first_values(array: np.ndarray) -> str:
    values = array.reshape(-1)[: SHOWN_VALUES + 1].tolist()
    texts = [number_text(value) if isinstance(value, float) else str(value) for value in values[:SHOWN_VALUES]]
    return " ".join(texts) + (" …" if len(values) > SHOWN_VALUES else "")


def _measure(runner: "Session | Launched", arrays: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The seconds of each of `count` runs. The first run, which the caller made, was the warm-up."""
    times = np.empty(count)
    with progress("Running") as step:
        for index in range(count):
            start = time.perf_counter()
            runner.run(arrays)
            times[index] = time.perf_counter() - start
            step(index + 1, count)
    return times


def _show_times(times: np.ndarray) -> None:
    columns = ("runs", "median", "mean", "least", "90 %", "most", "runs/s")
    shown = table(*columns, right=columns)
    parts = (np.median(times), times.mean(), times.min(), np.percentile(times, 90), times.max())
    shown.add_row(str(times.size), *(seconds_text(float(part)) for part in parts), number_text(1 / times.mean()))
    stdout().print(shown)
