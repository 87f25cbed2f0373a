"""Rank table files: what they tell, and that broken and hostile ones are refused."""

import json
import os
import socket
import threading
import time

import pytest

from litehouse import EngineError
from litehouse.distributed import rank_table
from litehouse.distributed.rank_table import read_rank_table


def server(host, *ranks, **more):
    devices = [{"device_id": str(place), "device_ip": "", "rank_id": rank} for place, rank in enumerate(ranks)]
    return {"server_id": host, "device": devices} | more


def content(*servers, **more):
    return {"version": "1.0", "server_count": "1", "server_list": list(servers), "status": "completed"} | more


@pytest.fixture
def write(tmp_path):
    def write(table):
        path = tmp_path / "table.json"
        path.write_bytes(table if isinstance(table, bytes) else json.dumps(table).encode())
        return str(path)

    return write


def instance(rank, host, **more):
    return {"rank_id": rank, "server_id": host, "devices": [{"device_id": "0", "device_ip": "1.2.3.4"}]} | more


@pytest.mark.parametrize(
    ("table", "hosts"),
    [
        (content(server("a", "0", "1")), "a a"),
        (content(server("b", "2", "0"), server("a", "1")), "b a b"),
        (content(server("a", 0, 1)), "a a"),
        (content(server("a", "0", container_ip="c", host_nic_ip="reserve")), "c"),
        (content(server("a", "0", host_nic_ip="n")), "a"),
        (content(server("a", "0"), version="1.2"), "a"),
        ({"server_list": [server("a", "0")]}, "a"),
        (b"\xef\xbb\xbf" + json.dumps(content(server("a", "0"))).encode(), "a"),
        (
            {"status": "completed", "deploy_mode": "lab", "group_list": [{"instance_list": [instance("0", "a")]}]},
            "a",
        ),
        ({"group_list": [{"instance_list": [instance("1", "b"), instance("0", "a")]}]}, "a b"),
    ],
)
def test_hosts(write, table, hosts):
    found = read_rank_table(write(table))
    assert found.hosts == tuple(hosts.split())
    assert found.local == ()


@pytest.mark.parametrize(
    ("more", "is_local"),
    [
        ({"server_id": "127.0.0.1"}, True),
        ({"server_id": "::1"}, socket.has_ipv6),
        ({"server_id": "localhost"}, True),
        ({"server_id": socket.gethostname()}, True),
        ({"server_id": "a", "container_ip": "127.0.0.1"}, True),
        ({"server_id": "127.0.0.1", "container_ip": "192.0.2.1"}, True),
        ({"server_id": "a", "host_nic_ip": "127.0.0.1"}, True),
        ({"server_id": "192.0.2.1"}, False),
        ({"server_id": "0.0.0.0"}, False),
        ({"server_id": "224.0.0.1"}, False),
        ({"server_id": "another-host"}, False),
    ],
)
def test_which_ranks_are_here(write, more, is_local):
    found = read_rank_table(write(content(server("b", "1"), server("", "0") | more)))
    assert found.local == ((0,) if is_local else ())


def test_digest(write):
    first = read_rank_table(write(content(server("a", "0")))).digest
    assert read_rank_table(write(content(server("a", "0")))).digest == first
    assert read_rank_table(write(content(server("b", "0")))).digest != first


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b"[" * 1_000_000, "no JSON"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "no JSON"),
        (b'{"server_list": [{"server_id": "a", "device": [{"rank_id": ' + b"9" * 5000 + b"}]}]}", "no JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        ({}, "'server_list' in it must be a list"),
        (content(version="2.0"), "its version is '2.0'"),
        (content(version=1), "its version is 1"),
        (content(), "0 ranks"),
        (content() | {"server_list": {"a": 1}}, "'server_list' in it must be a list"),
        (content("a"), "'server_list' in it must be a list of objects"),
        (content({"server_id": "a"}), "'device' in it must be a list"),
        (content({"server_id": "a", "device": [1]}), "'device' in it must be a list of objects"),
        (content({"server_id": 5, "device": []}), "'server_id' in it must be the name or address"),
        (content(server("a" * 300, "0")), "must be the name or address"),
        (content(server("a\x1b[2J", "0")), "must be the name or address"),
        (content(server("", "0")), "no server_id"),
        (content({"server_id": "a", "device": [{}]}), "rank_id in it is None"),
        (content(server("a", "-1")), "rank_id in it is '-1'"),
        (content(server("a", "x")), "rank_id in it is 'x'"),
        (content(server("a", "٠")), "rank_id"),
        (content(server("a", True)), "rank_id in it is True"),
        (content(server("a", 1.0)), "rank_id in it is 1.0"),
        (content(server("a", 1e300)), "rank_id"),
        (content(server("a", "9" * 4000)), "rank_id"),
        (content(server("a", 65536)), "rank_id in it is 65536"),
        (content(server("a", "0", "0")), "rank 0 twice"),
        (content(server("a", "0", "2")), "2 ranks, but no rank 1"),
        (content(server("a", "1")), "1 ranks, but no rank 0"),
        ({"group_list": [{"instance_list": [{"server_id": "a", "devices": [{}]}]}]}, "must have a rank_id and one"),
        ({"group_list": [{"instance_list": [instance("0", "a", devices=[{}, {}])]}]}, "must have a rank_id and one"),
        ({"group_list": [{"instance_list": 3}]}, "'instance_list' in it must be a list"),
    ],
)
def test_broken(write, table, text):
    path = write(table)
    with pytest.raises(EngineError, match=text) as caught:
        read_rank_table(path, timeout=0.1)
    assert path in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_files_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match=r"cannot be read: .*No such file"):
        read_rank_table(str(tmp_path / "none"))
    with pytest.raises(EngineError, match=r"cannot be read|no file"):
        read_rank_table(str(tmp_path))
    with pytest.raises(EngineError, match="cannot be read"):
        read_rank_table("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EngineError, match="it is no file"):
        read_rank_table(str(tmp_path / "pipe"))
    monkeypatch.setattr(rank_table, "MAX_BYTES", 2 << 20)
    (tmp_path / "large").write_bytes(b" " * (2 << 20) + b"{}")
    with pytest.raises(EngineError, match="larger than 2 MiB"):
        read_rank_table(str(tmp_path / "large"))


@pytest.mark.parametrize("status", ["initializing", None, ["completed"]])
def test_a_table_that_is_never_completed(write, status):
    path = write(content(status=status))
    before = time.monotonic()
    with pytest.raises(EngineError, match=r"its status is .* after 0.3 seconds, not 'completed'"):
        read_rank_table(path, timeout=0.3)
    assert 0.3 <= time.monotonic() - before < 5


def test_a_table_that_is_completed_meanwhile(write, tmp_path):
    path = write({"status": "initializing"})

    def complete():
        (tmp_path / "new").write_text(json.dumps(content(server("a", "0"))))
        os.replace(tmp_path / "new", path)

    timer = threading.Timer(0.3, complete)
    timer.start()
    assert read_rank_table(path, timeout=20).hosts == ("a",)
    timer.join()
