"""From a `Context` and a configuration to the `Options` of Litehouse."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from litehouse import Job, Options
from mindspore_lite.context import PRECISION_MODES, Context

Sections = dict[str, dict[str, str]]

SECTION = "litehouse"
PLAN = "execution_plan"
KEYS: Mapping[str, Callable[[str], Any]] = {
    "engine": str,
    "threads": int,
    "inter_op": int,
    "precision": str,
    "tune": str,
    "updatable_mode": str,
    "cache": lambda text: {"on": True, "off": False}.get(text, Path(text)),
    "provider": str,
    "build_seconds": float,
}
RANK_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "rank_id": ("rank", int),
    "rank_size": ("size", int),
    "rank_address": ("address", str),
    "rank_port": ("port", int),
    "rank_timeout": ("timeout", float),
    "rank_transport": ("transport", str),
}
GPU_SECTION, MODE = "gpu_context", "precision_mode"
STORE_SECTION, STORE = "ms_cache", "serialize_path"
TABLE_SECTION, TABLE = "ascend_context", "rank_table_file"
OTHER_KEYS = ("variable_weights_file", "shareable_weight_pid_list", "shareable_weight_mem_handle")  # taken out before

_AFFINITIES: tuple[tuple[()] | str, ...] = ((), "big", "mid")
_LOWER_PRECISIONS = ("preferred_fp16", "enforce_fp16", "preferred_optimal")


def read_sections(path: str) -> Sections:
    """Read a configuration file; as in the original, lines that are no `[section]` and no `key=value` do no harm."""
    sections: Sections = {}
    entries: dict[str, str] = {}
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        key, equals, value = text.partition("=")
        if text.startswith("[") and text.endswith("]"):
            entries = sections.setdefault(text[1:-1].strip(), {})
        elif equals and not text.startswith(("#", ";")):
            entries[key.strip()] = value.strip().strip("\"'")
    return sections


def merge_sections(path: str, sections: Sections) -> Sections:
    """Read a configuration file, if there is one, and lay the given sections over it.

    Raises:
        OSError: The file cannot be read.
    """
    merged = read_sections(path) if path else {}
    for name, entries in sections.items():
        merged.setdefault(name, {}).update(entries)
    return merged


def make_options(context: Context, sections: Sections, config_path: str = "") -> Options:
    """Give the options that a context asks for; the section `[litehouse]` of a configuration wins over the context.

    Args:
        context: The context.
        sections: The configuration.
        config_path: Its file, beside which files that it names are looked for, too.

    Raises:
        ValueError: A value is out of its range, or the section has an unknown key.
    """
    cpu = context.cpu
    device, precision_mode = _device(context)
    fields: dict[str, Any] = {
        "device": device,
        "threads": cpu.thread_num,
        "inter_op": cpu.inter_op_parallel_num,
        "precision": "fp16" if precision_mode in _LOWER_PRECISIONS else "fp32",
        "affinity": tuple(cpu.thread_affinity_core_list) or _AFFINITIES[cpu.thread_affinity_mode],
    }
    if device.startswith("gpu"):
        fields |= _gpu_fields(context, sections)
    fields["op_precision"] = _plan(sections.get(PLAN, {}))
    fields["job"] = _job(context, sections, config_path)
    for key, text in sections.get(SECTION, {}).items():
        if key in RANK_KEYS:
            continue
        if key not in KEYS:
            known = ", ".join((*KEYS, *RANK_KEYS, *OTHER_KEYS))
            raise ValueError(f"[{SECTION}] has no key {key!r}; use one of {known}")
        fields[key] = _value(key, KEYS[key], text)
    if fields["inter_op"] > fields["threads"] > 0:
        raise ValueError(
            f"inter_op_parallel_num {fields['inter_op']} is more than thread_num {fields['threads']}; "
            "lower the one or raise the other"
        )
    return Options(**fields)


def _gpu_fields(context: Context, sections: Sections) -> dict[str, Any]:
    """Give what only a GPU has: a provider, and the original's sections for TensorRT, which win over the context."""
    fields: dict[str, Any] = {"provider": context.gpu.provider}
    mode = sections.get(GPU_SECTION, {}).get(MODE)
    if mode is not None:
        if mode not in PRECISION_MODES:
            raise ValueError(f"[{GPU_SECTION}] {MODE} must be {' or '.join(PRECISION_MODES)}, not {mode!r}")
        fields["precision"] = "fp16" if mode in _LOWER_PRECISIONS else "fp32"
    folder = sections.get(STORE_SECTION, {}).get(STORE)
    return fields | ({"cache": Path(folder)} if folder else {})


def _job(context: Context, sections: Sections, config_path: str) -> Job:
    """Give what the context and the configuration say about ranks."""
    table = sections.get(TABLE_SECTION, {}).get(TABLE, "")
    fields: dict[str, Any] = {
        "rank": context.ascend._rank_id,
        "rank_table": find_file(table, config_path),
        "groups": context.group_info_file,
    }
    for key, text in sections.get(SECTION, {}).items():
        if key in RANK_KEYS:
            name, kind = RANK_KEYS[key]
            fields[name] = _value(key, kind, text)
    return Job(**fields)


def find_file(path: str, config_path: str) -> str:
    """Give the path of a file that a configuration names: as it is, or beside the configuration's file."""
    beside = os.path.join(os.path.dirname(config_path), path)
    return beside if path and config_path and not os.path.exists(path) and os.path.exists(beside) else path


def _value(key: str, kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"[{SECTION}] {key} must be a number, not {text!r}") from None


def _plan(entries: Mapping[str, str]) -> dict[str, str]:
    """Give what the section `[execution_plan]` says of single ops: `op_name=data_type:float16`."""
    plan = {}
    for name, text in entries.items():
        key, colon, precision = text.partition(":")
        if key.strip() != "data_type" or not colon:
            raise ValueError(f"[{PLAN}] {name} must be data_type:float16 or data_type:float32, not {text!r}")
        plan[name] = precision.strip()
    return plan


def _device(context: Context) -> tuple[str, str]:
    """Give the first target that is not the CPU, else the CPU, with its precision mode."""
    for name in map(str.lower, context.target):
        if name == "gpu":
            return f"gpu:{context.gpu.device_id}", context.gpu.precision_mode
        if name == "ascend":
            return f"ascend:{context.ascend.device_id}", context.ascend.precision_mode
    return "cpu", context.cpu.precision_mode
