"""The errors of the package."""

import pickle

import pytest

from litehouse import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LitehouseError)]


def made(kind):
    if kind is errors.UnsupportedOpError:
        return kind([("Odd", "a"), ("Odd", "b"), ("Even", "c")], format="mindir", path="m.mindir", reason="it is new")
    more = {"path": "m.mindir"} if issubclass(kind, errors.ModelFormatError) else {}
    more |= {"rank": 3, "op": "AllReduce"} if kind is errors.RankError else {}
    return kind("what is wrong", **more)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_goes_from_one_process_to_another(kind):
    error = made(kind)
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is kind
    assert str(other) == str(error)
    assert vars(other) == vars(error)
