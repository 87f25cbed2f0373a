"""The numbers that MegEngine files have for operators."""

import pytest

from litehouse.formats.mge.operators import NAMES, names_by_number, number_of, output_count, plain_name, renewed

# As MegEngine 1.13 writes them.
VERSIONED = {
    398888935463796127: "ConvolutionV2",
    13553933750987029374: "Convolution",
    16984089995691734746: "Elemwise",
    13712197338634655662: "MultipleDeviceTensorWithFormatHolder",
    6435244233096308347: "RegionRestrictedConvolutionBackwardData",
    1059971726246193068: "LRN",
}
UNVERSIONED = {
    1005859804226725325: "Convolution",
    15475644582354676744: "Elemwise",
    60799855031704737: "MultipleDeviceTensorWithFormatHolder",
    16815269931273165784: "Reduce",
    340606220358368278: "Dot",
}


@pytest.mark.parametrize("number", VERSIONED)
def test_numbers(number: int) -> None:
    assert names_by_number(versioned=True)[number] == VERSIONED[number]
    assert number_of(VERSIONED[number].encode() + b"\0") == number


@pytest.mark.parametrize("number", UNVERSIONED)
def test_numbers_of_the_oldest_files(number: int) -> None:
    assert names_by_number(versioned=False)[number] == UNVERSIONED[number]


def test_no_number_stands_for_two_names() -> None:
    assert len(names_by_number(versioned=True)) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("ConvolutionV2", "Convolution"), ("ConvBiasForwardV4", "ConvBias"), ("LSTMForward", "LSTM"), ("LRN", "LRN")],
)
def test_plain_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_old_operators_say_no_axis_in_another_way() -> None:
    assert renewed("Reduce", {"axis": -1, "mode": "SUM"}) == {"axis": 2147483647, "mode": "SUM"}
    assert renewed("ReduceV2", {"axis": -1}) == {"axis": -1}
    assert renewed("Reshape", {"axis": 2}) == {"axis": 2}


def test_output_count() -> None:
    assert output_count("Split", {}, 4, 0) == 3
    assert output_count("TopK", {"mode": "KTH_ONLY"}, 2, 0) == 1
    assert output_count("TopK", {"mode": "VALUE_IDX_SORTED"}, 2, 0) == 2
    assert output_count("MultipleDeviceTensorHolder", {}, 0, 5) == 5
    assert output_count("LSTM", {}, 4, 0) == 4
    assert output_count("BatchNorm", {"fwd_mode": "INFERENCE"}, 5, 0) == 4
    assert output_count("BatchNorm", {"fwd_mode": "TRAINING"}, 5, 0) == 6
    assert output_count("BatchNorm", {"fwd_mode": "TRAINING"}, 3, 0) == 4
    assert output_count("Elemwise", {}, 2, 0) == 1
