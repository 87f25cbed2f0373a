"""What this machine is: the CPU, and whatever else decides which instructions a native library runs."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
ENOUGH = 8192  # bytes; a CPU is described in some 2000
# Of virtual machines with the same CPU, one may lack what another has: an instruction that is announced need not work.
MAKERS = (Path("/sys/class/dmi/id/sys_vendor"), Path("/sys/class/dmi/id/product_name"))
FACTS = ("vendor_id", "cpu family", "model", "stepping", "microcode", "CPU implementer", "CPU part", "CPU variant")
FLAGS = ("flags", "Features")
# They change what the libraries choose, or what is loaded in their place.
VARIABLES = (
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_CPU_ISA_HINTS",
    "DNNL_CPU_ISA_HINTS",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)


@functools.cache
def cpu_fingerprint() -> str:
    """A digest of what decides which instructions run here. Taken once per process, before anything changes it."""
    facts = _cpu_facts(CPU_INFO)
    about = [platform.machine(), os.uname().release, *(_text(path) for path in MAKERS)]
    about += [facts.get(name, "") for name in FACTS]
    about += [" ".join(sorted(cpu_flags())), *(os.environ.get(name, "") for name in VARIABLES)]
    return hashlib.sha256("\n".join(about).encode(errors="surrogateescape")).hexdigest()


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The features that the CPU announces, by the kernel's names; empty where they are not known."""
    facts = _cpu_facts(CPU_INFO)
    return frozenset(next((facts[name] for name in FLAGS if name in facts), "").split())


def cpu_name() -> str:
    """The CPU's name for people."""
    facts = _cpu_facts(CPU_INFO)
    return facts.get("model name") or facts.get("Hardware") or platform.processor() or platform.machine() or "unknown"


def _cpu_facts(path: Path) -> Mapping[str, str]:
    """What the kernel says of the first CPU."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            break
        found[name.strip()] = value.strip()
    return found


def _text(path: Path) -> str:
    """The beginning of a file: of many CPUs, the kernel takes milliseconds to tell of all."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(ENOUGH).decode(errors="replace").strip()
    except OSError:
        return ""
