"""Ranks on two machines: network namespaces that a cable connects, a rank in each, brought together by a rank table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import REPOSITORY
from distributed.jobs import PATIENCE, needs_torch
from distributed.rank_processes import Rank, expected, network
from litehouse.distributed.slicing import plan, write

ADDRESSES = ("10.231.7.1", "10.231.7.2")
EXAMPLE = REPOSITORY / "examples" / "distributed"
CABLE = "cable"
CUT_SECONDS = 15.0  # of the only test that must wait for a timeout

pytestmark = [needs_torch, pytest.mark.slow]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=PATIENCE)


class Hosts:
    """Two networks with one address each, and the ranks that run there."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        """Slice a network for two ranks, and write a rank table."""
        self.names, self.started = names, list[Rank]()
        self.whole = folder / "whole.onnx"
        self.whole.write_bytes(network())
        self.parts = [str(path) for path in write(plan(litehouse.read(self.whole), 2), folder / "parts")]
        servers = [
            {"server_id": address, "device": [{"device_id": "0", "device_ip": address, "rank_id": str(rank)}]}
            for rank, address in enumerate(ADDRESSES)
        ]
        table = {"version": "1.0", "server_count": "2", "server_list": servers, "status": "completed"}
        self.table = folder / "rank_table.json"
        self.table.write_text(json.dumps(table), encoding="utf-8")

    def start(self, runs: int | None, timeout: float = PATIENCE) -> list[Rank]:
        """Start a rank on each host, which finds by its address which one it is; all begin at once."""
        for part, name in zip(self.parts, self.names, strict=True):
            order: dict[str, Any] = {"paths": [part], "runs": runs, "whole": str(self.whole)}
            order |= {"job": {"rank_table": str(self.table), "timeout": timeout}, "imports": ["torch"], "waits": True}
            self.started.append(Rank(order, {}, ("ip", "netns", "exec", name)))
        for rank in self.started:
            rank.hear("started")
        for rank in self.started:
            rank.go()
        return self.started


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("networks of their own need root, and the command `ip`")
    names = [f"litehouse-{uuid.uuid4().hex[:12]}-{rank}" for rank in range(2)]
    with ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip("link", "add", CABLE, "netns", names[0], "type", "veth", "peer", "name", CABLE, "netns", names[1])
            for name, address in zip(names, ADDRESSES, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", CABLE)
                for device in ("lo", CABLE):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"networks of their own are not allowed here: {error.stderr.strip()}")
        made = Hosts(tmp_path, names)
        stack.callback(lambda: [rank.close() for rank in made.started])
        yield made


def test_two_machines_compute_what_one_would(hosts: Hosts) -> None:
    for rank in hosts.start(runs=3):
        assert rank.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
        rank.hear("done")
        rank.hear("usable")
        assert rank.end() == 0


def test_the_example_on_two_machines(hosts: Hosts, tmp_path: Path) -> None:
    config = tmp_path / "config_file.ini"
    config.write_text(f"[ascend_context]\nrank_table_file={hosts.table.name}\n", encoding="utf-8")
    ranks = []
    for rank, name in enumerate(hosts.names):
        own = [f"--model_path={EXAMPLE}/Matmul{rank}.mindir", f"--rank_id={rank}", f"--config_file={config}"]
        command = ["ip", "netns", "exec", name, sys.executable, str(EXAMPLE / "by_rank_table.py"), *own]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        found = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], found
    weight = np.concatenate([litehouse.read(EXAMPLE / f"Matmul{rank}.mindir").weights["weight"] for rank in range(2)])
    for printed, _ in found:
        numbers = printed.splitlines()[1].removeprefix("output data is: ").split()
        np.testing.assert_allclose(np.array(numbers, "f"), weight.sum(axis=0)[:10], rtol=1e-5)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_is_named_on_the_other_machine(hosts: Hosts, victim: int) -> None:
    ranks = hosts.start(runs=None)
    for rank in ranks:
        rank.hear("ran")
    ranks[victim].process.kill()
    survivor = ranks[1 - victim]
    told = survivor.hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", victim), told
    assert f"rank {victim} died" in told["text"]
    survivor.hear("usable")
    assert survivor.end() == 0


def test_a_cable_that_is_unplugged_is_noticed_on_both_machines(hosts: Hosts) -> None:
    ranks = hosts.start(runs=None, timeout=CUT_SECONDS)
    for rank in ranks:
        rank.hear("ran")
    ip("-n", hosts.names[1], "link", "set", CABLE, "down")
    for number, rank in enumerate(ranks):
        told = rank.hear("failed")
        assert (told["kind"], told["rank"]) == ("RankError", 1 - number), told
        rank.hear("usable")
        assert rank.end() == 0


def test_a_machine_that_is_not_reached_is_named(hosts: Hosts) -> None:
    ip("-n", hosts.names[1], "link", "set", CABLE, "down")
    for number, rank in enumerate(hosts.start(runs=1, timeout=5.0)):
        told = rank.hear("failed")
        assert (told["kind"], told["rank"]) == ("RankError", 1 - number), told
        assert f"rank {1 - number} of 2 did not begin at {ADDRESSES[0]}" in told["text"]
        rank.hear("usable")
        assert rank.end() == 0
