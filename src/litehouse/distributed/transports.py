"""Finds what connects the ranks of a job: memory on one machine, gloo between several. One connection per process."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from pathlib import Path

from litehouse.distributed.local import LocalMail
from litehouse.distributed.mail import Mail
from litehouse.distributed.memory import MemoryMail
from litehouse.distributed.ranks import Place
from litehouse.options import Job

_opening = threading.Lock()
_mails: dict[tuple[str, int, int, str], Mail] = {}


def open_mail(place: Place, job: Job) -> Mail:
    """The connection to the other ranks: the one that is open, or a new one.

    Raises:
        RankError: Another rank does not come.
        EngineError: What is needed to reach it is not installed, or not told.
    """
    kind = job.transport or ("memory" if place.is_one_machine else "gloo")
    wanted = place.job, place.rank, place.size, kind
    with _opening:
        for known in list(_mails):
            if _mails[known].using.acquire(blocking=False):  # else a run of another thread finds out
                try:
                    _mails[known].look()  # the end of a job may not be known here yet
                finally:
                    _mails[known].using.release()
            if _mails[known].failure is not None:
                del _mails[known]
        mail = _mails.get(wanted)
        if mail is None:
            mail = _mails[wanted] = _open(place, job, kind)
        mail.timeout = job.timeout
        return mail


def _open(place: Place, job: Job, kind: str) -> Mail:
    if place.size == 1:
        return LocalMail.world(1, job.timeout)[0]
    if kind == "memory":
        return MemoryMail(place.rank, place.size, place.job, job.timeout)
    from litehouse.distributed.gloo import GlooMail

    return GlooMail(place, job.timeout)


def own_machine() -> str:
    """What tells this machine from others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def own_cores() -> set[str]:
    """The cores that this process may use, with what tells the machine from others."""
    machine = own_machine()
    return {f"{machine}/{core}" for core in os.sched_getaffinity(0)}


def _leave() -> None:
    for mail in list(_mails.values()):
        mail.close()


def _forget() -> None:
    """This process was forked off a rank, and is none."""
    global _opening
    _opening = threading.Lock()
    _mails.clear()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forget)
