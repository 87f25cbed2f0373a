"""What a network writes about its runs. The expected texts are those of 1.13.0."""

import json
import re
import struct

import numpy as np
import pytest
from facades.megenginelite.support import ROW, arrays, feed, load, path, run

from megenginelite import LiteNetwork

# Name, layout and value of every variable, as the original writes them.
RECORDS = {
    "many": {
        "index": ("{2(1) Int32}", "[1, 2]min=1 max=2 mean=1.5 l2=1.58 sd=0.707 s"),
        "right": ("{2(4),4(1) Float32}", "[1, 2, 3, 4, 5, ...]min=1 max=8 mean=4.5 l2=5.05 sd=2.45 s"),
        "left": ("{2(4),4(1) Float32}", "[0, 1, 2, 3, 4, ...]min=0 max=7 mean=3.5 l2=4.18 sd=2.45 s"),
        "IndexingOneHot": ("{2(1),1(1) Float32}", "[1, 6]min=1 max=6 mean=3.5 l2=4.3 sd=3.54 s"),
        "picked": ("{2(1) Float32}", "[1, 6]min=1 max=6 mean=3.5 l2=4.3 sd=3.54 s"),
        "difference": ("{2(4),4(1) Float32}", "[-1, -1, -1, -1, -1, ...]min=-1 max=-1 mean=-1 l2=1 sd=0 s"),
        "total": ("{2(4),4(1) Float32}", "[1, 3, 5, 7, 9, ...]min=1 max=15 mean=8 l2=9.22 sd=4.9 s"),
    },
    "shrink": {
        "data": ("{6(1) Float32}", "[1, -1, 2, -3, 4, ...]min=-3 max=5 mean=1.33 l2=3.06 sd=3.01 s"),
        "const<0>[2]": ("{1(1) Float32}", "[0]min=0 max=0 mean=0 l2=0 sd=N/A s"),
        "const<2>[4]": ("{1(1) Float32}", "[2]min=2 max=2 mean=2 l2=2 sd=N/A s"),
        "double": ("{6(1) Float32}", "[2, -2, 4, -6, 8, ...]min=-6 max=10 mean=2.67 l2=6.11 sd=6.02 s"),
        "LT(const<0>[2],data)[14]": (
            "{6(1) Float32}",
            "[1, 0, 1, 0, 1, ...]min=0 max=1 mean=0.667 l2=0.816 sd=0.516 s",
        ),
        "asBool(LT[14])[16]": ("{6(1) Bool}", "[1, 0, 1, 0, 1, ...]min=0 max=1 mean=0.667 l2=0.816 sd=0.516 s"),
        "kept": ("{4(1) Float32}", "[1, 2, 4, 5]min=1 max=5 mean=3 l2=3.39 sd=1.83 d"),
        "CondTake:o1": ("{4(1) Int32}", "[0, 2, 4, 5]min=0 max=5 mean=2.75 l2=3.35 sd=2.22 d"),
    },
    "tiny": {
        "const{4,3}[2]": ("{4(3),3(1) Float32}", "[-5, -4, -3, -2, -1, ...]min=-5 max=6 mean=0.5 l2=3.49 sd=3.61 s"),
        "data": ("{1(4),4(1) Float32}", "[0, 1, 2, 3]min=0 max=3 mean=1.5 l2=1.87 sd=1.29 s"),
        "MatrixMul": ("{1(3),3(1) Float32}", "[12, 18, 24]min=12 max=24 mean=18 l2=18.7 sd=6 s"),
        "const{3}[4]": ("{3(1) Float32}", "[1, 2, 3]min=1 max=3 mean=2 l2=2.16 sd=1 s"),
        "score": ("{1(3),3(1) Float32}", "[13, 20, 27]min=13 max=27 mean=20 l2=20.8 sd=7 s"),
    },
}
TEXT = re.compile(r"var=\{id:(\d+), layout:\{.*?\}, (\w+), name:(.*), slot:0, [sd]\}")
RECORD = re.compile(r"var(\d+) produced: name=(.*) layout=(\{.*?\})\n val: (.*)\n")


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_text_dump(name, tmp_path):
    network, target = load(name), tmp_path / "dump.txt"
    network.io_txt_dump(str(target))
    feed(network, arrays(name)[0])
    run(network)
    text = target.read_text()
    assert RECORD.sub("", text) == ""
    assert {match[2]: (match[3], match[4]) for match in RECORD.finditer(text)} == RECORDS[name]


def test_text_dump_goes_on_with_other_shapes(tmp_path):
    network = LiteNetwork()
    target = tmp_path / "dump.txt"
    network.io_txt_dump(target)
    assert target.read_text() == ""
    network.load(path("tiny"))
    for rows in (1, 2):
        feed(network, {"data": np.repeat(ROW, rows, 0)})
        run(network)
    layouts = [match[3] for match in RECORD.finditer(target.read_text()) if match[2] == "score"]
    assert layouts == ["{1(3),3(1) Float32}", "{2(3),3(1) Float32}"]


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_binary_dump(name, tmp_path):
    network = load(name)
    network.io_bin_dump(str(tmp_path))
    inputs, outputs = arrays(name)
    feed(network, inputs)
    run(network)
    found = {}
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        length, code, ranks, *shape = struct.unpack("<10I", content[:40])
        assert ranks == 7
        text = content[40 : 40 + length].decode()
        number, kind, key = re.fullmatch(
            r"var=\{id:(\d+), layout:\{.*?\}, (\w+), name:(.*), slot:0, [sd]\}", text
        ).groups()
        assert file.name == f"{int(number):06x}"
        assert code == {"Float32": 0, "Int32": 4, "Bool": 18}[kind]
        sizes = [size for size in shape if size]
        found[key] = np.frombuffer(content[40 + length :], kind.lower()).reshape(sizes)
    assert found.keys() == RECORDS[name].keys()
    for key, expected in (inputs | outputs).items():
        np.testing.assert_array_equal(found[key], expected)


def test_dumps_that_cannot_be_written(tmp_path):
    with pytest.raises(RuntimeError, match=r"failed to open .*nowhere.*: No such file or directory"):
        LiteNetwork().io_txt_dump(tmp_path / "nowhere" / "dump.txt")
    network = load()
    network.io_bin_dump(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match=r"failed to open .*nowhere/000000: No such file or directory"):
        network.forward()
    network = load()
    network.enable_profile_performance(tmp_path / "nowhere" / "profile.json")
    network.forward()
    with pytest.raises(RuntimeError, match=r"failed to open .*profile\.json: No such file or directory"):
        network.wait()


def test_profile(tmp_path):
    network, target = load("many"), tmp_path / "profile.json"
    network.enable_profile_performance(str(target))
    network.forward()
    assert not target.exists()
    network.wait()
    content = json.loads(target.read_text())
    assert content["profiler"].keys() == {"host", "device", "opr_footprint", "opr_internal_pf"}
    assert content["graph_exec"].keys() == {"comp_seq", "mem_chunk", "var", "operator"}
    (operator,) = content["graph_exec"]["operator"].values()
    names = {number: entry["name"] for number, entry in content["graph_exec"]["var"].items()}
    assert [names[number] for number in operator["input"]] == ["index", "right", "left"]
    assert [names[number] for number in operator["output"]] == ["total", "difference", "picked"]
    (interval,) = content["profiler"]["device"]["0"].values()
    assert 0 <= interval["start"] <= interval["kern"] < interval["end"]
    assert content["profiler"]["opr_footprint"]["0"]["out_shapes"] == [[2, 4], [2, 4], [2]]
