# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors for tests of attn.attend."""

import attn
import numpy

RANDOM = numpy.random.default_rng(7)
SLOPES = (-(2.0 ** -numpy.arange(1, 9))).astype(numpy.float32)  # of ALiBi, for eight heads


def normal(*shape, dtype="float16"):
    values = RANDOM.standard_normal(shape).astype(numpy.float32)
    return attn.bfloat16_bits(values) if dtype == "uint16" else values.astype(dtype)


def qkv(batch=2, rows=5, tokens=70, heads=8, kv_heads=2, dim=64, value_dim=None, dtype="float16"):
    return (
        normal(batch, rows, heads, dim, dtype=dtype),
        normal(batch, tokens, kv_heads, dim, dtype=dtype),
        normal(batch, tokens, kv_heads, value_dim or dim, dtype=dtype),
    )


def swap(tensor):
    return tensor.transpose(1, 2) if hasattr(tensor, "detach") else tensor.swapaxes(1, 2)
