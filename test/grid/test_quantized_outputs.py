# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with outputs in e4m3 assemble without spills, and round alike on every chip."""

import os
import re

import attn
import numpy
import pytest
from kernels import assemble, assert_nothing_spilled

FULL = bool(os.environ.get("ATTN_FULL"))
DIMS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]
# Targets, and numerics: the merge kernel under a contract spills with and without a scale on others.
KERNELS = [(target, None) for target in ("sm_80", "sm_89", "sm_90a", "sm_120a")]
KERNELS += [("sm_90a", "row"), ("sm_120a", "row")]
PLAIN = {"q_heads": 32, "kv_heads": 4, "dtype": "bfloat16", "see": attn.causal(), "output": "fp8_e4m3"}


def assert_fits(tmp_path, target, **described):
    assert_nothing_spilled(assemble(tmp_path, attn.Spec(**PLAIN, **described).mlir(), target)[1])


@pytest.mark.parametrize("gate", [None, "elementwise"] if FULL else ["elementwise"])
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("target,numerics", KERNELS)
def test_nothing_is_spilled(tmp_path, target, numerics, dims, gate):
    described = {"head_dim": dims[0], "value_dim": dims[1], "kv": [attn.Paged()]}
    assert_fits(tmp_path, target, gate=gate, numerics=numerics, **described)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("key,value", [("int8", "int4"), ("fp8_e4m3", "fp8_e4m3"), ("mxfp4", "mxfp4")])
def test_nothing_is_spilled_beside_quantized_values(tmp_path, target, key, value):
    assert_fits(tmp_path, target, head_dim=128, kv=[attn.Paged(key=key, value=value)])


def bits(numbers):
    return numpy.asarray(numpy.asarray(numbers, numpy.float32)).view(numpy.uint32)


def number(word):
    return numpy.asarray(word, numpy.uint32).view(numpy.float32)


INSTRUCTIONS = {
    "setp.nan.f32": lambda x, y: numpy.isnan(number(x)) | numpy.isnan(number(y)),
    "setp.lt.f32": lambda x, y: number(x) < number(y),
    "abs.f32": lambda x: x & 0x7FFFFFFF,
    "min.f32": lambda x, y: bits(numpy.fmin(number(x), number(y))),
    "add.f32": lambda x, y: bits(number(x) + number(y)),
    "bfe.u32": lambda x, first, count: x >> first & (1 << count) - 1,
    "add.s32": lambda x, y: x + y,
    "sub.s32": lambda x, y: x - y,
    "shr.u32": lambda x, by: x >> by,
    "shl.b32": lambda x, by: x << by,
    "and.b32": lambda x, y: x & y,
    "or.b32": lambda x, y: x | y,
    "xor.b32": lambda x, y: x ^ y,
    "selp.b32": lambda x, y, which: numpy.where(which, x, y),
    "prmt.b32": lambda x, y, which: x & 0xFFFF | y << 16,
}
"""Meanings of the instructions that round, on arrays of 32 bits."""


@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_chips_without_an_instruction_round_to_the_same_bits(tmp_path, target):
    """The four bytes that the merge kernel stores are evaluated from the products before them."""
    torch = pytest.importorskip("torch")
    text = attn.Spec(**PLAIN, head_dim=128, kv=[attn.Packed()]).mlir()
    ptx, _ = assemble(tmp_path, text, target)
    merge = ptx[ptx.index(".visible .entry attention_merge(") :]
    made = {}
    for line in merge.splitlines():
        if found := re.match(r"\s*([a-z][\w.]+)\s+(%\w+), (.*);", line):
            made[found[2]] = found[1], found[3].split(", ")
    words = [name for name, (operation, _) in made.items() if operation == "prmt.b32"]
    high = numpy.arange(2**20, dtype=numpy.uint32) << 12
    given = numpy.concatenate([high | low for low in (0, 1, 0x7FF, 0x800, 0xFFF)]).astype(numpy.uint32)

    def value(name):
        if name.startswith("0f"):
            return numpy.uint32(int(name[2:], 16))
        if not name.startswith("%"):
            return numpy.uint32(int(name.rstrip("U"), 0) % 2**32)
        operation, operands = made[name]
        if operation == "mul.f32":  # by the reciprocal of the scale
            return given
        return INSTRUCTIONS[operation](*map(value, operands))

    numbers = torch.from_numpy(given.view(numpy.float32))
    wanted = numbers.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    wanted = numpy.where(numpy.isnan(given.view(numpy.float32)), 0x7F, wanted).astype(numpy.uint32)
    assert len(words) == 1
    with numpy.errstate(over="ignore", invalid="ignore"):
        assert numpy.array_equal(value(words[0]), wanted * 0x01010101)
