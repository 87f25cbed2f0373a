"""The benchmark of ranks, on a tiny network."""

from benchmarks import ranks
from benchmarks.networks import plain


def test_ranks(results, monkeypatch):
    monkeypatch.setitem(ranks.NETWORKS, "bert", ("tiny", lambda: plain.bert(hidden=256, count=4, length=4)))
    ranks.main(["--networks", "bert", "--ranks", "2", "--rounds", "2"])
    (found,) = results("ranks")["results"]
    assert 0.5 <= found["weights"] < 0.6
    assert found["error"] < 1e-4
    assert found["exchanges"]["AllReduce"] > 0
    assert found["sent_bytes"] > 0
    assert found["ratio"]["median"] > 0
    assert len(found["rounds"]) == 2
