# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formats by their names, and quantized rows against the definition, written again here in NumPy."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.memory.formats import NAMES, describe_store  # noqa: E402

INTEGERS = {"int8": 8, "int4": 4, "int2": 2}
BLOCKS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4")  # test/grid/test_blocks.py has their definition
FLOATS = {"fp8_e4m3": (4, 3, 448.0), "fp8_e5m2": (5, 2, 57344.0)}


def rows(*shape, seed=0):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


def unpack(codes, bits):
    """Unpack little-endian bits."""
    each = numpy.arange(8 // bits) * bits
    return (codes[..., None] >> each & (1 << bits) - 1).reshape(*codes.shape[:-1], -1)


def floats(exponent_bits, mantissa_bits):
    """Return, by definition, the number of each code without its sign that is a finite number."""
    code = numpy.arange(128)
    exponent, mantissa = code >> mantissa_bits, code & (1 << mantissa_bits) - 1
    bias, one = (1 << exponent_bits - 1) - 1, 1 << mantissa_bits
    return numpy.where(
        exponent == 0, mantissa * 2.0 ** (1 - bias) / one, (one + mantissa) * 2.0 ** (exponent - bias) / one
    )


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("group", [None, 16, 64])
def test_integers(name, group):
    bits, x = INTEGERS[name], rows(3, 2, 128)
    codes, meta = attn.quantize(x, name, group=group)
    size = group or 128
    assert codes.dtype == numpy.uint8 and codes.shape == (3, 2, 16 * bits)
    assert meta.dtype == numpy.float16 and meta.shape == (3, 2, 128 // size, 2)
    scale, zero = meta.astype(numpy.float32)[..., None, :].transpose(4, 0, 1, 2, 3)
    parts = x.reshape(3, 2, -1, size)
    assert numpy.array_equal(zero[..., 0], parts.min(-1).astype(numpy.float16))
    step = (parts.max(-1) - parts.min(-1)) / (2**bits - 1)
    assert numpy.allclose(scale[..., 0], step, rtol=1e-3)
    dequantized = (unpack(codes, bits).reshape(parts.shape) * scale + zero).reshape(x.shape)
    assert numpy.array_equal(attn.dequantize(codes, meta, name, group=group), dequantized)
    # Values are rounded to nearest; the f16 of scale and zero moves the ends by a little.
    assert (numpy.abs(dequantized.reshape(parts.shape) - parts) <= scale * 0.5 + 2e-3).all()


def test_constant_rows_and_those_that_are_not_finite():
    x = numpy.full((1, 1, 32), 0.75, numpy.float32)
    assert numpy.array_equal(attn.dequantize(*attn.quantize(x, "int4"), "int4"), x)
    x[..., 3], x[..., 4] = numpy.nan, numpy.inf
    assert numpy.isfinite(attn.dequantize(*attn.quantize(x, "int8"), "int8")).all()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "scales,shape", [(None, (5, 2)), ("token", (5, 2)), ("head", (2,)), ("tensor", (1,))]
)
def test_floats(name, scales, shape):
    exponent_bits, mantissa_bits, largest = FLOATS[name]
    x = rows(5, 2, 32) * numpy.array([1, 30], numpy.float32)[:, None]
    codes, found = attn.quantize(x, name, scales=scales)
    assert codes.dtype == numpy.uint8 and codes.shape == x.shape
    assert found.dtype == numpy.float32 and found.shape == shape
    axes = {(5, 2): 2, (2,): (0, 2), (1,): None}[shape]
    assert numpy.allclose(found, numpy.abs(x).max(axes) / largest, rtol=1e-6)
    numbers = floats(exponent_bits, mantissa_bits)[codes & 127] * numpy.where(codes & 128, -1, 1)
    wanted = numbers.astype(numpy.float32) * found[..., None]
    assert numpy.array_equal(attn.dequantize(codes, found, name, scales=scales), wanted)
    assert (
        numpy.abs(wanted - x) <= numpy.abs(x) * 2.0 ** -(mantissa_bits + 1) + found[..., None] * 1e-2
    ).all()


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = rows(4, 2, 32)
    codes, meta = attn.quantize(torch.from_numpy(x).bfloat16(), "fp8_e4m3")
    assert codes.dtype == torch.float8_e4m3fn and meta.dtype == torch.float32
    again = attn.dequantize(codes, meta, "fp8_e4m3")
    assert isinstance(again, torch.Tensor) and numpy.abs(again.numpy() - x).max() < 0.2
    codes, meta = attn.quantize(torch.from_numpy(x), "int4")
    assert numpy.array_equal(codes.numpy(), attn.quantize(x, "int4")[0])


@pytest.mark.parametrize("page", [0, 16])
def test_what_a_store_has(page):
    store = "paged" if page else "packed"
    found = describe_store(store, page, False, 8, 128, 64, "i8", "i4 per 32")
    assert (found.key.text(), found.value.text()) == ("i8 per 128", "i4 per 32")
    assert found.token_bytes == 128 + 4 + 32 + 8
    tensors = {name: (dtype, dims) for name, dtype, dims in found.tensors}
    if page:
        assert tensors["k_pages"] == ("u8", ("pages", 8, 16, 128))
        assert tensors["v_meta"] == ("f16", ("pages", 8, 16, 2, 2))
    else:
        assert tensors["v"] == ("u8", ("tokens", 8, 32)) and tensors["k_meta"] == ("f16", ("tokens", 8, 1, 2))


@pytest.mark.parametrize(
    "given,said",
    [
        (dict(format="int3"), r"format: expected 'int8', .* got 'int3'$"),
        (dict(format="int4", group=0), "group: expected 16, 32, 64, 128 or all .* got 0$"),
        (dict(format="int4", group=48), "divides the dim of 128.* got 48; nearest legal: (32|64)"),
        (dict(format="int4", scales="head"), "scales: expected None beside 'int4', got 'head'"),
        (dict(format="fp8_e4m3", group=32), "group: expected None beside 'fp8_e4m3', got 32"),
        (dict(format="fp8_e4m3", scales="row"), "'tensor', 'head' or 'token', got 'row'"),
    ],
)
def test_what_is_refused(given, said):
    with pytest.raises(attn.SpecError, match=said):
        attn.quantize(rows(2, 128), **given)


def test_tensors_that_are_refused():
    codes, meta = attn.quantize(rows(2, 128), "int4")
    with pytest.raises(attn.TensorError, match="codes: expected quantized values, uint8"):
        attn.dequantize(codes.astype(numpy.int32), meta, "int4")
    with pytest.raises(attn.TensorError, match="meta: expected float16"):
        attn.dequantize(codes, meta.astype(numpy.float32), "int4")
    with pytest.raises(attn.TensorError, match=r"meta: expected \[2, 1, 2\], got \[3, 1, 2\]"):
        attn.dequantize(codes, numpy.zeros((3, 1, 2), numpy.float16), "int4")


def test_lines_of_latents():
    """512 e4m3 with the scales of their groups, and 64 bf16, in one row of bytes."""
    numbers = rows(3, 1, 576)
    numbers[..., 128:256] *= 1000
    lines, meta = attn.quantize(numbers, "fp8_ds_mla")
    assert lines.shape == (3, 1, 656) and lines.dtype == numpy.uint8 and meta.shape == (3, 1, 0)
    scales = numpy.ascontiguousarray(lines[..., 512:528]).view(numpy.float32)
    largest = abs(numbers[..., :512]).reshape(3, 1, 4, 128).max(axis=-1)
    numpy.testing.assert_allclose(scales, largest / 448, rtol=1e-6)
    again = attn.dequantize(lines, meta, "fp8_ds_mla")
    error = abs(again - numbers)
    assert (error[..., :512] <= 2**-4 * abs(numbers[..., :512]) + scales.repeat(128, axis=-1) / 512).all()
    assert (error[..., 512:] <= 2**-8 * abs(numbers[..., 512:])).all()
    with pytest.raises(
        attn.SpecError, match="expected rows of 576 features, 512 of .* got 512; nearest legal: 576"
    ):
        attn.quantize(rows(2, 512), "fp8_ds_mla")
    for wrong in (640, 657):
        with pytest.raises(attn.TensorError, match=rf"codes: expected uint8 \[..., 656\], got .*{wrong}"):
            attn.dequantize(numpy.zeros((3, wrong), numpy.uint8), meta[:, 0], "fp8_ds_mla")


def test_names():
    assert set(NAMES) == {*INTEGERS, *FLOATS, *BLOCKS, "fp8_ds_mla"}
