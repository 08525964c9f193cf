# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results are made in the library of the inputs; bfloat16 by its bits."""

import math

import attn
import numpy
import pytest
from attn.memory.dtypes import DTYPES, short_name
from attn.memory.tensors import empty
from hypothesis import given
from hypothesis import strategies as st

TIES = st.builds(
    lambda high, low: float(numpy.uint32(high << 16 | low).view(numpy.float32)),
    st.integers(0, 0xFFFF),
    st.sampled_from([0x7FFF, 0x8000, 0x8001]),
)


@given(st.floats(width=32) | TIES)
def test_bfloat16_is_the_nearest_even(value):
    """In exact arithmetic no other 16-bit number is nearer, and ties go to the even one."""
    bits = int(attn.bfloat16_bits(numpy.float32(value)))
    back = float(attn.from_bfloat16_bits(numpy.uint16(bits)))
    if math.isnan(value):
        assert math.isnan(back)
        return
    exact = float(numpy.float32(value))
    assert math.copysign(1, back) == math.copysign(1, exact)
    if math.isinf(back):
        assert abs(exact) >= 2.0**127 * (2 - 2.0**-8)
        return
    for other in (bits - 1, bits + 1):
        if other & 0x7FFF not in (0x7FFF, 0x7F80) and 0 <= other < 1 << 16 and (other ^ bits) < 1 << 15:
            distance = abs(float(attn.from_bfloat16_bits(numpy.uint16(other))) - exact)
            assert abs(back - exact) < distance or (abs(back - exact) == distance and bits % 2 == 0)


def test_every_bfloat16_survives():
    bits = numpy.arange(1 << 16, dtype=numpy.uint16)
    values = attn.from_bfloat16_bits(bits)
    kept = ~numpy.isnan(values)
    assert (attn.bfloat16_bits(values)[kept] == bits[kept]).all()
    assert numpy.isnan(attn.from_bfloat16_bits(attn.bfloat16_bits(values[~kept]))).all()


def test_bfloat16_agrees_with_pytorch():
    torch = pytest.importorskip("torch")
    values = numpy.random.default_rng(0).standard_normal(10000, numpy.float32) * 1e3
    theirs = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    assert (attn.bfloat16_bits(values) == theirs).all()


def test_dtypes_are_those_of_the_runtime():
    extension = pytest.importorskip("attn._attn", reason="the extension is not built")
    assert {short: size for short, (_, size) in DTYPES.items()} == extension.dtypes()


@pytest.mark.parametrize("short", DTYPES)
def test_dtype_names(short):
    long = DTYPES[short][0]
    assert short_name(short) == short_name(long) == short
    if hasattr(numpy, long if short != "bool" else "bool_"):  # NumPy has no bf16 and no floats of 8 bits
        assert (
            short_name(numpy.dtype(long))
            == short_name(getattr(numpy, long if short != "bool" else "bool_"))
            == short
        )
    torch = pytest.importorskip("torch")
    if hasattr(torch, long):
        assert short_name(getattr(torch, long)) == short


@pytest.mark.parametrize("other", [None, "complex64", numpy.complex64, object, 4, [], numpy.dtype("U4")])
def test_other_dtypes_have_no_name(other):
    assert short_name(other) is None


def test_results_for_numpy():
    out = empty(numpy.zeros(3, numpy.float16), (2, 4), "f16")
    assert out.dtype == numpy.float16 and out.shape == (2, 4)
    assert empty(numpy.zeros(3, numpy.uint16), (2,), "bf16").dtype == numpy.uint16
    assert empty(numpy.zeros(3, numpy.uint16), (2,), "f32").dtype == numpy.float32


def test_results_for_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert empty(numpy.zeros(3, ml_dtypes.bfloat16), (2,), "bf16").dtype == ml_dtypes.bfloat16


def test_results_for_pytorch():
    torch = pytest.importorskip("torch")
    out = empty(torch.zeros(3, dtype=torch.bfloat16), (2, 4), "bf16")
    assert out.dtype == torch.bfloat16 and out.shape == (2, 4) and out.device.type == "cpu"
    assert empty(torch.zeros(3, device="meta"), (2,), "f32").device.type == "meta"


class OnDevice:
    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return (self.kind, 0)


def test_results_for_other_libraries():
    assert isinstance(empty(OnDevice(1), (2,), "bf16"), numpy.ndarray)
    with pytest.raises(attn.TensorError, match="out: expected where results go"):
        empty(OnDevice(2), (2,), "bf16")
