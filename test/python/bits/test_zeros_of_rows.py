# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A numerics contract covers the sign of zero: a part without tokens changes no bit of a row, not even that of -0.

A result of -0 is a negative number that is too small for f32. Here one token has a value of -2^-133 and a weight of
2^-14, and others have zeros of either sign.
"""

import attn
import numpy
import pytest
from test_row_kernels import SPLIT, STORES, Sequences, check_same, compile_row, run

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

TOKENS = SPLIT + 352


def tiny():
    """Return a sequence whose rows have results of -0, +0, and sums of -0."""
    sequences = Sequences([TOKENS], dtype=numpy.float32)
    q, k, v = (part[0] for part in (sequences.q, sequences.k, sequences.v))
    q[:], k[:], v[:] = 0, 0, 0
    q[..., 0], k[..., 0] = 8, 10
    v[..., 1] = -0.0
    few = slice(100, None, 110)  # each window of 150 tokens has one, and so has the second part
    k[few, :, 0], v[few, :, 0] = 0, -(2.0**-133)
    return sequences


def rows_of(kernel, store, sequences, parts, extra, **options):
    tensors = sequences.batch(store, parts, seed=len(parts))
    for name, tensor in tensors.items():
        if tensor.dtype == numpy.float32:
            tensors[name] = torch.from_numpy(tensor).bfloat16()
    found, out, _ = run(kernel, store, {**tensors, **extra}, torch=torch, **options)
    at = [(s, row) for s, first, end in parts for row in range(first, end)]
    return dict(zip(at, found, strict=True)), out


@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
@pytest.mark.parametrize("see", [attn.causal(), attn.window(150)], ids=["causal", "window"])
@pytest.mark.parametrize("sinks", [False, True])
def test_zeros_keep_their_signs(schedule, see, sinks):
    """Rows that see the first part, the second one, or both: together in tasks of one block, in stored parts that are
    merged, and alone."""
    extra = {"sink_logits": numpy.linspace(-2, 2, 4, dtype=numpy.float32)} if sinks else {}
    sequences, store = tiny(), STORES["pages of 16"]
    kernel = compile_row(store, schedule, see=see, dtype="bfloat16", sink_logits=sinks)
    expected, out = rows_of(kernel, store, sequences, [(0, SPLIT - 20, TOKENS)], extra, blocks=1)
    assert (out.view(numpy.uint16)[..., 1:] == 0).all()
    assert set(out.view(numpy.uint16)[..., 0].flatten()) <= {0, 0x8000}
    signs = (out.view(numpy.uint16)[..., 0] == 0x8000).mean()
    assert sinks or signs > 0.05, "few results are -0: the test tells nothing"
    for blocks in (2, 7, 132):
        found, _ = rows_of(kernel, store, sequences, [(0, SPLIT - 20, TOKENS)], extra, blocks=blocks)
        check_same(expected, found)
    for row in (SPLIT - 20, SPLIT - 1, SPLIT, SPLIT + 30, SPLIT + 200, TOKENS - 1):
        for blocks in (1, 132):
            found, _ = rows_of(kernel, store, sequences, [(0, row, row + 1)], extra, blocks=blocks)
            check_same(expected, found)
    for name in ("dense", "packed"):
        other = compile_row(STORES[name], schedule, see=see, dtype="bfloat16", sink_logits=sinks)
        found, _ = rows_of(other, STORES[name], sequences, [(0, SPLIT + 100, SPLIT + 300)], extra)
        check_same(expected, found)


@pytest.mark.parametrize("schedule", ["wgmma", "mma"])
def test_sums_of_zero_have_one_sign(schedule):
    """A tile that a row does not see makes a sum of -0 one of +0: the row has the same result beside rows that see the
    tile."""
    sequences, store = Sequences([384], dtype=numpy.float32), STORES["pages of 16"]
    q, k, v = (part[0] for part in (sequences.q, sequences.k, sequences.v))
    q[:], k[:], v[:] = 0, 0, 0
    v[:256], v[10] = -0.0, -(2.0**-133)
    q[..., 0], k[128:, :, 0] = 8, 40  # the first tokens lose all weight, and the sum is -2^-190
    kernel = compile_row(store, schedule, dtype="bfloat16")
    expected, out = rows_of(kernel, store, sequences, [(0, 200, 384)], {})
    assert (out[55:].view(numpy.uint16) == 0).all()
    for row in (254, 255, 256, 383):
        found, _ = rows_of(kernel, store, sequences, [(0, row, row + 1)], {})
        check_same(expected, found)
