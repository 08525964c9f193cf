# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's meaning of its arguments, in float64, for one sequence and with gradients."""

import math

import torch


def tensor(*shape, dtype=torch.bfloat16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def attention(q, k, v, *, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None):
    """Return (out [rows, heads, dim], lse [heads, rows]) of q [rows, heads, dim] over k, v [tokens, heads_k, dim]."""
    q, k, v = (each.double() for each in (q, k, v))
    rows, heads, dim = q.shape
    tokens, group = len(k), heads // k.shape[1]
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) * (dim**-0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(tokens)[None] - (torch.arange(rows)[:, None] + tokens - rows)  # of key and row
    if slopes is not None:
        scores = scores - slopes.double()[:, None, None] * distance.abs()
    left, right = window
    right = 0 if causal else right
    seen = torch.ones(rows, tokens, dtype=torch.bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    scores = scores.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0)[..., None])
    return torch.einsum("hij,jhd->ihd", weights, v), lse


def batched(q, k, v, slopes=None, **options):
    """Return (out [batch, seq, heads, dim], lse [batch, heads, seq])."""
    of = [None] * len(q) if slopes is None else slopes.expand(len(q), -1)
    found = [attention(*each, slopes=slope, **options) for *each, slope in zip(q, k, v, of, strict=True)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True))


def close(found, wanted, dtype=torch.bfloat16):
    """Compare a result with float64's; -inf only where it is wanted."""
    assert found.shape == wanted.shape
    assert torch.equal(found.isinf(), wanted.isinf()) and not found.isnan().any()
    limit = 2e-2 if dtype == torch.bfloat16 else 4e-3
    error = (
        (found.double() - wanted).masked_fill(wanted.isinf(), 0).abs().max().item() if found.numel() else 0.0
    )
    assert error <= limit * max(1.0, wanted.masked_fill(wanted.isinf(), 0).abs().max().item()), error


def rotated(x, cos, sin, positions, interleaved):
    """Rotate x [seq, heads, dim] at positions [seq], in float64, feature by feature."""
    x, found = x.double(), x.double().clone()
    half = cos.shape[1]
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        c, s = (table.double()[positions, i][:, None] for table in (cos, sin))
        found[..., a] = x[..., a] * c - x[..., b] * s
        found[..., b] = x[..., a] * s + x[..., b] * c
    return found
