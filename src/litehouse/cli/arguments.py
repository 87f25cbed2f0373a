"""Arguments and options that several commands take, and what they stand for."""

from pathlib import Path
from typing import Annotated, Any

import typer

from litehouse.cli.console import CommandError, stdout, working
from litehouse.loading import read
from litehouse.model import Model
from litehouse.options import DEVICES, ENGINES, PRECISIONS, PROVIDERS, TUNINGS, Options
from litehouse.session import Session

KEY_SIZES = (16, 24, 32)

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file: .mindir, .ms, .mge or .onnx.")]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="HEX|text:TEXT|@FILE",
        envvar="LITEHOUSE_KEY",
        help="The key of an encrypted model: hex digits, text: and the key as text, or @ and a file. A file of 16, 24 "
        "or 32 bytes, less one newline at the end, is the key itself; any other holds hex digits.",
    ),
]
MODES = ("AES-GCM", "AES-CBC", "SM4-CBC", "AES_default", "RC4_default", "SIMPLE_FAST_RC4_default")


def _check_mode(mode: str) -> str:
    if mode not in MODES:
        raise typer.BadParameter(f"{mode!r} is no mode; the modes are {', '.join(MODES)}")
    return mode


Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        callback=_check_mode,
        help="How it is encrypted: AES-GCM, AES-CBC or SM4-CBC; a MegEngine file: AES_default, RC4_default or "
        "SIMPLE_FAST_RC4_default, which need no key.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Engine = Annotated[str, typer.Option(metavar="|".join(ENGINES), help="The engine that runs the model.")]
Device = Annotated[str, typer.Option(metavar="|".join(DEVICES), help="The device; gpu:1 for the second one.")]
Threads = Annotated[int, typer.Option(min=0, metavar="N", help="Threads inside one op; 0 takes the process's budget.")]
Provider = Annotated[
    str,
    typer.Option(
        metavar="|".join(filter(None, PROVIDERS)),
        help="What ONNX Runtime uses on a GPU; without it, torch runs the model.",
        show_default=False,
    ),
]
Precision = Annotated[
    str,
    typer.Option(metavar="|".join(PRECISIONS), help="fp16 allows lower precision; tf32 only that of a GPU's products."),
]
Tune = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(TUNINGS),
        help="How long to look for the fastest engine: fast takes a second or two, full about six.",
        show_default=False,
    ),
]
BuildSeconds = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="About how long a build may take for what only makes runs faster, as kernels for a GPU; 120 unless given.",
        show_default=False,
    ),
]
Resize = Annotated[bool, typer.Option("--resize", help="Give the model's inputs the shapes of the arrays first.")]


def make_options(engine: str, device: str, threads: int, precision: str, **more: str | float | None) -> Options:
    """The options, or a usage error that says what is allowed. None stands for what is usual."""
    given: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    try:
        return Options(engine=engine, device=device, threads=threads, precision=precision, **given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def read_model(path: Path, key: str | None, mode: str, *, cache: bool = False) -> Model:
    """Read a model file, with a spinner on a terminal."""
    with working(f"Reading {path.name}"):
        return read(path, key=parse_key(key), mode=mode, cache=cache)


def show_engine(session: Session, *, with_race: bool = False) -> None:
    """Print what the model ran on, and why that is not in the lower precision that was allowed."""
    text = f"engine: {session.engine}  device: {session.options.device}  precision: {session.precision}"
    stdout().print(text, style="dim", soft_wrap=True)
    is_missed = session.precision == "fp32" != session.options.precision
    if is_missed or (with_race and session.engine.figures):
        label = "timed" if session.engine.figures else "reason"
        stdout().print(f"{label}: {session.engine.reason}", style="dim", soft_wrap=True)


def parse_key(text: str | None) -> bytes | None:
    """The key that `--key` stands for. No message shows any of it."""
    if text is None:
        return None
    if text.startswith("@"):
        return _key_of_file(Path(text[1:]))
    if text.startswith("text:"):
        return _sized(text.removeprefix("text:").encode(), "the text after text:")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise CommandError(
            "--key must be hex digits, as 30313233…, or text: and the key as text, or @ and the name of a key file"
        ) from None
    return _sized(key, "--key, read as hex digits,", "; a key that is text is given as --key text:TEXT")


def _sized(key: bytes, what: str, advice: str = "") -> bytes:
    if len(key) not in KEY_SIZES:
        raise CommandError(f"{what} has {len(key)} bytes, but a key has 16, 24 or 32{advice}")
    return key


def _key_of_file(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: cannot read the key file ({error.strerror}); check the path after @") from error
    if len(content) in KEY_SIZES:
        return content
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if len(content) in KEY_SIZES:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        raise CommandError(
            f"{path}: the key file has {len(content)} bytes and does not hold hex digits; "
            "a key has 16, 24 or 32 bytes, and one newline may follow"
        ) from None
    return _sized(key, f"{path}: the key file, read as hex digits,")
