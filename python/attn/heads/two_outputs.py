# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention and streaming attention in one pass over the scores.

The softmax's state over the first and the last tokens gives the streaming result; merged with the state over the tokens
between them it gives the full one. So each score is computed once, for two outputs and two LSEs. Kernels do so for half
precision (two_output_kernels.py); this module does it in PyTorch, in float32 (float64 for float64), on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import TensorError, closest, expected
from ..memory.views import needs_gradient, refuse_tangents, refuse_transformed
from ..run.torch_rules import differentiable_once

WAYS = ("auto", "kernels", "torch")
ROWS = 256  # Rows of scores that are in memory at once.


def attend_both(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    sink: int,
    recent: int,
    window: int = 0,
    scale: float | None = None,
    by: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute full attention, its LSE, streaming attention, and its LSE.

    q        [batch, q_heads, tokens, dim]; floats
    k, v     [batch, kv_heads, tokens, dim]; q_heads is a multiple of kv_heads
    sink     first tokens that the streaming output also sees
    recent   the last ones, 1 or more
    window   of both; 0: they see back to the first token
    scale    by default dim ** -0.5
    by       kernels: one launch, on a GPU or for CPU tensors on the host device; for bfloat16 and float16. torch: operations
             of PyTorch in float32, for any dtype. auto: kernels on a GPU if they take these heads (dims of multiples of 8 up
             to 256, of 320 together if gradients are wanted), else torch

    Outputs are of q's dtype, [batch, q_heads, tokens, value_dim]; LSEs float32 (float64 for float64) [batch, q_heads,
    tokens]. All four have gradients by q, k and v. Memory grows with tokens, not with their square. Raises TensorError,
    also for tensors that requested kernels do not take.
    """
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4 or q.shape[1] % k.shape[1]:
        shapes = f"{list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        raise expected(
            TensorError, "q, k, v", "[batch, heads, tokens, dim], in groups of query heads", shapes
        )
    if not (q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]):
        raise expected(TensorError, "k, v", f"{q.shape[0]} sequences and as many heads each", list(v.shape))
    if not q.shape[2] == k.shape[2] == v.shape[2]:
        raise expected(TensorError, "k, v", f"a line for each of {q.shape[2]} tokens", list(k.shape))
    if recent < 1 or sink < 0 or window < 0:
        raise expected(
            TensorError, "sink, recent, window", "0, 1 and 0 or more tokens", (sink, recent, window)
        )
    if by not in WAYS:
        raise expected(TensorError, "by", ", ".join(WAYS), by, nearest=closest(by, WAYS))
    _refuse_transforms(q, k, v)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if by == "kernels" or by == "auto" and _takes_kernels(q, k, v):
        from .two_output_kernels import Streaming, attend_both_by_kernels

        return attend_both_by_kernels(q, k, v, scale, Streaming(sink, recent, window))
    return _Both.apply(q, k, v, scale, (sink, recent, window))


def _refuse_transforms(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a TensorError under transforms of torch.func and in forward mode."""
    refuse_tangents(q, k, v)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        refuse_transformed(name, tensor)


def _takes_kernels(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether "auto" uses kernels for these tensors."""
    dims = q.shape[3], v.shape[3]
    halves = all(x.dtype == q.dtype for x in (k, v)) and q.dtype in (torch.bfloat16, torch.float16)
    return (
        q.is_cuda
        and halves
        and all(d % 8 == 0 and d <= 256 for d in dims)
        and (sum(dims) <= 320 or not needs_gradient(q, k, v))
    )


def attend_streaming(
    q: Tensor, k: Tensor, v: Tensor, scale: float, sink: int, recent: int, by: str = "auto"
) -> Tensor:
    """Compute streaming attention alone: time and memory grow with tokens. A window is `recent` without a sink. `by`
    is as in `attend_both`: kernels take one launch, PyTorch several for each `recent` rows."""
    if by == "kernels" or by == "auto" and _takes_kernels(q, k, v):
        from .two_output_kernels import attend_near_by_kernels

        return attend_near_by_kernels(q, k, v, scale, sink, recent)
    rows, tokens, outs = max(recent, 64), q.shape[2], []
    for first in range(0, tokens, rows):
        end = min(first + rows, tokens)
        low = max(first - recent + 1, 0)
        left = min(sink, low)
        at = torch.cat([torch.arange(left), torch.arange(low, end)]).to(q.device)
        behind = torch.arange(first, end, device=q.device)[:, None] - at
        seen = (behind >= 0) & ((at < sink) | (behind < recent))
        keys, values = (torch.cat([x[:, :, :left], x[:, :, low:end]], 2) for x in (k, v))
        part = functional.scaled_dot_product_attention(
            q[:, :, first:end], keys, values, attn_mask=seen, scale=scale, enable_gqa=True
        )
        outs.append(part)
    return torch.cat(outs, 2) if len(outs) > 1 else outs[0]


def mix(full: Tensor, streaming: Tensor, gates: Tensor) -> Tensor:
    """Compute gate * full + (1 - gate) * streaming, [batch, q_heads, tokens, dim], with `gates` [kv_heads]. It is in
    the gates' dtype, so that their gradient, the sum of <d_out, full - streaming>, is added up in it."""
    of_heads = gates.repeat_interleave(full.shape[1] // len(gates))[:, None, None]
    full, streaming = full.to(gates.dtype), streaming.to(gates.dtype)
    return streaming + of_heads * (full - streaming)


class _Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, sizes):
        exact = torch.float64 if q.dtype == torch.float64 else torch.float32
        groups = q.shape[1] // k.shape[1]
        outs = [q.new_empty(*q.shape[:3], v.shape[3], dtype=exact) for _ in range(2)]
        lses = [q.new_empty(q.shape[:3], dtype=exact) for _ in range(2)]
        for rows, tokens, seen, near in _parts(q, sizes, ROWS):
            scores, values = _scores(q, k, scale, rows, tokens, exact), v[:, :, tokens].to(exact)
            states = []
            for mask in (near, seen & ~near):
                masked = scores.masked_fill(~mask.repeat(groups, 1), -torch.inf)
                top = masked.amax(-1, keepdim=True)
                weights = (masked - top.masked_fill(top == -torch.inf, 0)).exp()
                states.append((top, weights.sum(-1, keepdim=True), weights @ values))
            (top, total, acc), (other_top, other_total, other_acc) = states
            both = torch.maximum(top, other_top)
            mine, others = (top - both).exp(), (other_top - both).exp()
            sums = mine * total + others * other_total
            found = (
                ((mine * acc + others * other_acc) / sums, both + sums.log()),
                (acc / total, top + total.log()),
            )
            for out, lse, (part, lse_part) in zip(outs, lses, found, strict=True):
                out[:, :, rows] = part.unflatten(2, (groups, -1)).flatten(1, 2)
                lse[:, :, rows] = lse_part.unflatten(2, (groups, -1)).flatten(1, 2)[..., 0]
        ctx.save_for_backward(q, k, v, *outs, *lses)
        ctx.scale, ctx.sizes, ctx.exact = scale, sizes, exact
        return outs[0].to(q.dtype), lses[0], outs[1].to(q.dtype), lses[1]

    @staticmethod
    @differentiable_once
    def backward(ctx, saved, *gradients):
        q, k, v, *saved = saved
        exact, groups = ctx.exact, q.shape[1] // k.shape[1]
        d_outs = [gradient.to(exact) for gradient in gradients[::2]]
        # dS = P * (dP - delta), with the gradient of the LSE subtracted from delta.
        deltas = [
            (d_out * out).sum(-1) - d_lse
            for d_out, out, d_lse in zip(d_outs, saved[:2], gradients[1::2], strict=True)
        ]
        dq, dk, dv = (torch.zeros(x.shape, dtype=exact, device=x.device) for x in (q, k, v))
        for rows, tokens, seen, near in _parts(q, ctx.sizes, ROWS):
            scores, values = _scores(q, k, ctx.scale, rows, tokens, exact), v[:, :, tokens].to(exact)
            d_scores = torch.zeros_like(scores)
            for mask, d_out, lse, delta in zip((seen, near), d_outs, saved[2:], deltas, strict=True):
                d_part = _grouped(d_out[:, :, rows], groups)
                of_rows = (_grouped(x[:, :, rows, None], groups) for x in (lse, delta))
                lse_part, delta_part = of_rows
                shares = (scores - lse_part).masked_fill(~mask.repeat(groups, 1), -torch.inf).exp()
                d_scores += shares * (d_part @ values.transpose(2, 3) - delta_part)
                dv[:, :, tokens] += shares.transpose(2, 3) @ d_part
            of_q = d_scores @ k[:, :, tokens].to(exact) * ctx.scale
            dq[:, :, rows] = of_q.unflatten(2, (groups, -1)).flatten(1, 2)
            queries = _grouped(q[:, :, rows].to(exact), groups)
            dk[:, :, tokens] += d_scores.transpose(2, 3) @ queries * ctx.scale
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def _parts(q, sizes, rows):
    """Yield rows, the tokens that any of them sees, and masks [rows, tokens]: tokens that a row sees, and those of them
    that are near."""
    sink, recent, window = sizes
    for first in range(0, q.shape[2], rows):
        end = min(first + rows, q.shape[2])
        low = max(first - window + 1, 0) if window else 0
        at = torch.arange(low, end, device=q.device)
        behind = torch.arange(first, end, device=q.device)[:, None] - at
        seen = behind >= 0
        if window:
            seen &= behind < window
        yield slice(first, end), slice(low, end), seen, seen & ((at < sink) | (behind < recent))


def _grouped(x, groups):
    """Return [batch, q_heads, rows, ...] as [batch, kv_heads, groups * rows, ...]."""
    return x.unflatten(1, (-1, groups)).flatten(2, 3)


def _scores(q, k, scale, rows, tokens, exact):
    queries = _grouped(q[:, :, rows].to(exact), q.shape[1] // k.shape[1])
    return queries @ k[:, :, tokens].to(exact).transpose(2, 3) * scale
