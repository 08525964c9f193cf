# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense tensors [batch, seq, heads, dim], and attention over them by definition, in NumPy and float64."""

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


def numbers(tensor):
    """Return the tensor in float64, for any library and dtype."""
    if hasattr(tensor, "detach"):
        return tensor.detach().double().numpy()
    tensor = numpy.asarray(tensor)
    return (attn.from_bfloat16_bits(tensor) if tensor.dtype == numpy.uint16 else tensor).astype(numpy.float64)


def attention(q, k, v, see=None, score=None, scale=None, sink_logits=None, lengths=None):
    """Return (out, lse). `score` is a function of arrays (s, h, qi, ki)."""
    q, k, v = map(numbers, (q, k, v))
    see = attn.all_tokens() if see is None else see
    batch, rows, heads, dim = q.shape
    out, lse = numpy.zeros((batch, rows, heads, v.shape[-1])), numpy.full((batch, rows, heads), -numpy.inf)
    for b in range(batch):
        length = k.shape[1] if lengths is None else int(lengths[b])
        qi, ki = numpy.arange(length - rows, length)[:, None], numpy.arange(length)[None]
        for h in range(heads):
            kv = h // (heads // k.shape[2])
            s = q[b, :, h] @ k[b, :length, kv].T * (dim**-0.5 if scale is None else scale)
            s = s if score is None else score(s, h, qi, ki)
            s = numpy.where(see.sees(qi, ki), s, -numpy.inf)
            if sink_logits is not None:
                s = numpy.concatenate([s, numpy.full((rows, 1), float(sink_logits[h]))], axis=1)
            with numpy.errstate(divide="ignore"):
                top = numpy.maximum(s.max(axis=1, initial=-1e30), -1e30)
                weights = numpy.exp(s - top[:, None])
                lse[b, :, h] = top + numpy.log(weights.sum(axis=1))
            weights /= numpy.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            out[b, :, h] = weights[:, :length] @ v[b, :length, kv]
    return out, lse


def assert_close(got, wanted, tolerance):
    """Compare by the project's measure: the largest error of the vector of one row and head, relative to that vector."""
    got = numbers(got)
    assert got.shape == wanted.shape and not numpy.isnan(got).any()
    error, norm = numpy.linalg.norm(got - wanted, axis=-1), numpy.linalg.norm(wanted, axis=-1)
    worst = numpy.where(error == 0, 0, error / numpy.maximum(norm, 1e-300)).max(initial=0)
    assert worst <= tolerance, worst


def assert_close_lse(got, wanted, tolerance=2e-3):
    got = numbers(got)
    finite = numpy.isfinite(wanted)
    assert (numpy.isneginf(got) == ~finite).all()
    assert numpy.abs(got[finite] - wanted[finite]).max(initial=0) <= tolerance
