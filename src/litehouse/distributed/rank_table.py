"""The rank table file: a JSON file that tells on which host each rank of a job runs."""

import hashlib
import ipaddress
import json
import os
import reprlib
import socket
import stat
import time
from dataclasses import dataclass
from typing import Any

from litehouse.errors import EngineError
from litehouse.options import MAX_RANKS

MAX_BYTES = 16 << 20
MAX_HOST = 255
MAX_DIGITS = 9
COMPLETED = "completed"
PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class RankTable:
    """What a rank table file tells.

    Attributes:
        hosts: The host of each rank, by rank.
        local: The ranks on this machine.
        digest: A digest of the file's content.
    """

    hosts: tuple[str, ...]
    local: tuple[int, ...]
    digest: str


def read_rank_table(path: str, *, timeout: float = 30.0) -> RankTable:
    """Read a rank table file; wait for one that is not completed yet.

    Args:
        path: The file, of version 1 (`server_list`), or of the older form (`group_list`) where that gives each rank.
        timeout: Seconds to wait for its `status` to be `"completed"`.

    Returns:
        What it tells.

    Raises:
        EngineError: It cannot be read, is broken, or is not completed in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        data = _read(path)
        table = _parse(path, data)
        status = table.get("status", COMPLETED)
        if status == COMPLETED:
            break
        if time.monotonic() >= deadline:
            raise _broken(path, f"its status is {_shown(status)} after {timeout:g} seconds, not {COMPLETED!r}")
        time.sleep(min(PAUSE, timeout))
    found = _old_ranks(path, table) if "group_list" in table and "server_list" not in table else _ranks(path, table)
    if sorted(found) != list(range(len(found))) or not found:
        missing = next((rank for rank in range(len(found)) if rank not in found), 0)
        raise _broken(path, f"it has {len(found)} ranks, but no rank {missing}; ranks count from 0 without gaps")
    hosts = tuple(found[rank][0] for rank in range(len(found)))
    here: dict[str, bool] = {}
    for names in found.values():
        here |= {name: _is_here(name) for name in names if name not in here}
    local = tuple(rank for rank in range(len(found)) if any(here[name] for name in found[rank]))
    return RankTable(hosts, local, hashlib.sha256(data).hexdigest())


def _broken(path: str, what: str) -> EngineError:
    return EngineError(f"{path}: {what}; correct the rank table file, or make it anew")


def _shown(value: object) -> str:
    return reprlib.repr(value)  # short, however long or deep the value is


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make it wait
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _broken(path, "it is no file")
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise EngineError(f"the rank table file {path!r} cannot be read: {error}; correct its path") from error
    if len(data) > MAX_BYTES:
        raise _broken(path, f"it is larger than {MAX_BYTES >> 20} MiB")
    return data


def _parse(path: str, data: bytes) -> dict[str, Any]:
    try:
        table = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"it is no JSON ({error})") from error
    if not isinstance(table, dict):
        raise _broken(path, "it is no JSON object")
    return table


def _ranks(path: str, table: dict[str, Any]) -> dict[int, tuple[str, ...]]:
    """Give the names of the host of each rank, the one to reach it by first."""
    version = table.get("version", "1.0")
    if not isinstance(version, str) or not version.startswith("1."):
        raise _broken(path, f"its version is {_shown(version)}, and only '1.0' is known")
    found: dict[int, tuple[str, ...]] = {}
    for server in _list(path, table, "server_list"):
        names = [_text(path, server, name) for name in ("container_ip", "server_id", "host_ip", "host_nic_ip")]
        hosts = tuple(name for name in names if name and name != "reserve")
        if not hosts:
            raise _broken(path, "a server in it has no server_id")
        for device in _list(path, server, "device"):
            _add(path, found, device, hosts)
    return found


def _old_ranks(path: str, table: dict[str, Any]) -> dict[int, tuple[str, ...]]:
    """Read the form with groups of instances, each of one device, as lab set-ups of the first devices used it."""
    found: dict[int, tuple[str, ...]] = {}
    for group in _list(path, table, "group_list"):
        for instance in _list(path, group, "instance_list"):
            host = _text(path, instance, "server_id")
            if "rank_id" not in instance or not host or len(_list(path, instance, "devices")) != 1:
                raise _broken(
                    path, "it has the old form with 'group_list', where an instance must have a rank_id and one device"
                )
            _add(path, found, instance, (host,))
    return found


def _list(path: str, owner: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = owner.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _broken(path, f"{name!r} in it must be a list of objects, not {_shown(items)}")
    return items


def _text(path: str, owner: dict[str, Any], name: str) -> str:
    text = owner.get(name, "")
    if not isinstance(text, str) or len(text) > MAX_HOST or not text.isprintable():
        raise _broken(path, f"{name!r} in it must be the name or address of a host, not {_shown(text)}")
    return text.strip()


def _add(path: str, found: dict[int, tuple[str, ...]], device: dict[str, Any], hosts: tuple[str, ...]) -> None:
    text = device.get("rank_id")
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
        text = int(text)
    if not isinstance(text, int) or isinstance(text, bool) or not 0 <= text < MAX_RANKS:
        raise _broken(path, f"a rank_id in it is {_shown(text)}, not a number from 0 to {MAX_RANKS - 1}")
    rank = text
    if rank in found:
        raise _broken(path, f"it has rank {rank} twice")
    found[rank] = hosts


def _is_here(name: str) -> bool:
    """Whether a name or address is this machine's own; asks nobody else for it."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        own = socket.gethostname()
        return name in ("localhost", own, own.partition(".")[0])
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((name, 0))  # the system refuses addresses that are not its own
    except OSError:
        return False
    return True
