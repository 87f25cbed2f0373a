import pytest

torch = pytest.importorskip("torch")


def test_weights_keep_their_order_of_elements():
    from litehouse.engines.torch.arena import Arena

    x = torch.arange(24.0).reshape(2, 3, 4)
    given = {
        "plain": x,
        "turned": x.permute(2, 0, 1),
        "repeated": x[:1, :1].expand(5, 3, 4),
        "apart": x[:, :, 1],
        "scalar": torch.tensor(7),
        "empty": x[:0],
    }
    arena = Arena(given, torch.device("cpu"))
    for name, tensor in given.items():
        assert torch.equal(arena.tensors[name], tensor), name
    assert arena.tensors["turned"].stride() == given["turned"].stride()
    assert arena.tensors["repeated"].is_contiguous()
    assert arena.tensors["apart"].is_contiguous()
