"""From a file to a session: `load`; to the model alone: `read`; and to what another process has loaded: `attach`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litehouse import identity
from litehouse.builds import Loaded
from litehouse.cores.budget import thread_budget
from litehouse.device import lack
from litehouse.errors import EngineError, WeightError
from litehouse.identity import Origin
from litehouse.model import Model
from litehouse.options import Limits, Options
from litehouse.session import Session

PLAIN_MODE = "AES-GCM"  # the usual one, which says nothing about a file that is not encrypted
# Compiled models by file and options, as long as a session uses them: the next session of both does, too.
_loaded: weakref.WeakValueDictionary[Hashable, Loaded] = weakref.WeakValueDictionary()


def read(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    limits: Limits | None = None,
    cache: Path | bool = False,
    updatable: Sequence[str] = (),
) -> Model:
    """Read a model file without building it: to inspect or convert it.

    Args:
        source: A path, or the bytes of a file.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`.
        limits: What the file may ask for.
        cache: Where translations are kept, as in `Options`; sessions of the model then use it too. Leave it out for a
            model whose graph or weights you change.
        updatable: The weights that sessions of the model may update, as in `Options`.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    if key is not None and not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {type(key).__name__}; b'...' or text.encode() gives them")
    if cache is not False and key is None and mode == PLAIN_MODE:
        from litehouse import kept

        return kept.read(source, limits or Limits(), cache, tuple(updatable))
    from litehouse import formats, passes

    origin = Origin(identity.find(source))
    model = passes.prepare(formats.read(source, key=key, mode=mode, limits=limits, updatable=updatable))
    model.read_from = origin
    return model


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    options: Options | None = None,
    **fields: Any,
) -> Session:
    """Load a model and make it ready to run.

    Args:
        source: A path, or the bytes of a file: `.mindir`, `.ms`, `.mge` or `.onnx`.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`; for MegEngine files the name of a cipher.
        options: How to run it.
        **fields: Fields of `Options`, as `threads=2`; they win over `options`.

    Sessions of one file with the same options have the compiled model in memory once, as long as one of them is open.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
        EngineError: No engine can run it here.
    """
    options = _with_fields(options, fields)
    wanted = _wanted(source, key, mode, options)
    found = None if wanted is None else _loaded.get(wanted)
    if found is not None and _can_share(found):
        return Session.of(found)
    reading: dict[str, Any] = {"limits": options.limits, "cache": options.cache, "updatable": options.updatable}
    session = Session(read(source, key=key, mode=mode, **reading), options)
    if wanted is not None and wanted == _wanted(source, key, mode, options):  # the file is still that one
        _loaded[wanted] = session.loaded
    return session


def _with_fields(options: Options | None, fields: dict[str, Any]) -> Options:
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"options must be Options, not {type(options).__name__}; fields can be given by name: threads=2"
        )
    unknown = sorted(set(fields) - set(Options.__slots__))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; the options are {', '.join(Options.__slots__)}")
    return replace(options or Options(), **fields)


def _can_share(loaded: Loaded) -> bool:
    """Whether one more session may use a compiled model.

    OpenVINO runs it as often at a time as it was compiled for: where that leaves cores free, each has its own. The
    ranks of a job must all do the same, and what one has open, another may have closed. Live weights that a program
    holds itself are updated for all who use it.
    """
    model, options, capabilities = loaded.model, loaded.options, loaded.built.engine.capabilities
    if "ranks" in capabilities or ("arena" in capabilities and model.live):
        return False
    folder = os.path.dirname(model.path)
    places = {name: identity.marks_at(os.path.join(folder, name)) for name in model.files}
    is_same = None not in places.values() and places == dict(model.files)
    threads = (options.threads or thread_budget()) * options.workers
    return is_same and (loaded.built.choice != "openvino" or threads >= thread_budget())


def _wanted(source: str | os.PathLike[str] | bytes, key: bytes | None, mode: str, options: Options) -> Hashable | None:
    """What tells that two sessions are of one model; None where that cannot be told, or they must not share."""
    if isinstance(source, bytes) or options.device_kind != "cpu":
        return None
    marks = identity.marks_at(os.fsdecode(identity.find(source)))
    return None if marks is None or not identity.is_still(marks) else (marks, key, mode, repr(options), thread_budget())


def attach(
    handle: int,
    source: str | os.PathLike[str] | None = None,
    *,
    options: Options | None = None,
    **fields: Any,
) -> Session:
    """A session of a model that another process has loaded and shares, on that process's memory.

    Args:
        handle: What `Session.share` gave there.
        source: The model's file, which must be the one that was loaded there: for sizes that the model must be built
            for. Without it, such sizes are refused.
        options: How to run it; what concerns reading, compiling and updating it is as it is there.
        **fields: Fields of `Options`, as for `load`.

    Raises:
        TypeError: The handle is no number, or an option is none, or is settled by the other process.
        WeightError: Nobody offers weights under the handle, not to this process, or not of this model; or they are on
            a GPU, and `device` is none; or they are not, and ONNX Runtime cannot use `device`.
        EngineError: They are on a GPU, and this process cannot run there.
    """
    from litehouse import sharing as memory

    if not isinstance(handle, int):
        raise TypeError(f"handle must be the number that share() gave, not {type(handle).__name__}; int() makes one")
    settled = sorted(fields.keys() & {"engine", "updatable", "updatable_mode"})
    if settled:
        raise TypeError(f"{settled[0]} is as in the process that shares the model; leave it out")
    options = replace(_with_fields(options, fields), engine="onnxruntime", updatable=(), updatable_mode="")
    attached = memory.Attached(handle)

    def again() -> Model:
        assert source is not None
        attached.check_file(source)
        return read(source, limits=options.limits, updatable=attached.now.base.facts["updatable"])

    try:
        if source is not None:
            attached.check_file(source)
        if memory.is_on_device(attached.now.base):
            return _attached_on_device(attached, source, options)
        memory.check_device(options)
        model = attached.model(attached.now, None if source is None else again)
        with attached.understood():
            built = memory.thaw(attached.now.base, model, options)
        return Session.of(Loaded(model, options, built), attached)
    except BaseException:
        attached.close()
        raise


def _attached_on_device(attached: Any, source: str | os.PathLike[str] | None, options: Options) -> Session:
    """A session over the memory that another process has on a device; the file tells what to compute with it."""
    from litehouse import sharing as memory

    if options.device_kind != "gpu":
        raise WeightError(f"the weights are on a GPU, and device is {options.device!r}; use device='gpu'")
    if (reason := lack(options.device)) is not None:
        raise EngineError(f"the weights are on a GPU, and nothing can run on {options.device!r}: {reason}")
    now, options = attached.now, replace(options, engine="torch")
    with attached.understood():
        facts = now.base.facts
        path = facts["path"] if source is None else source
        if source is None:
            attached.check_file(path)
        model = read(path, limits=options.limits, updatable=facts["updatable"])
        model.live, model.shelf = tuple(facts["live"]), {}
        built = memory.on_device(now.base, model, now.arrays, options)
    return Session.of(Loaded(model, options, built), attached)
