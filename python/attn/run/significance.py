# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Significance: what tokens are worth to rows, as policies of caches ask for it.

It is the sum over rows of a token's weight, of each query head, and those of a head group as one number. No weights are ever
in memory: a token's value gathers the gradient of the output by the token's weights, dv = sum over rows of p do, so where
`do` is 1 in a feature of its own for each head of the group and 0 in all others, those features of dv are the sums. What
makes gradients, kernels or the reference, makes significance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy

from ..errors import TensorError, closest, expected
from ..memory.tables import int32_array
from ..memory.views import is_traced

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("max", "mean", "sum")


def attend_and_weigh(
    attend: Callable,
    q: Any,
    k: Any,
    v: Any,
    significance: str,
    rows: int | None,
    options: Mapping[str, Any],
) -> tuple:
    """What `attend` gives of these arguments and options, and behind it the significance of every token."""
    check_asked(q, k, v, significance, rows, options)
    found = attend(q, k, v, **options)
    results = found if isinstance(found, tuple) else (found,)
    layout = options["layout"]
    is_packed = options["cu_seqlens"] is not None
    of_rows = dict(options, return_lse=False, out=None)
    last = _last_packed(q, rows, of_rows) if is_packed else _last(q, rows, layout)
    heads = 2 if not is_packed and layout == "bshd" else 1
    weighed = sums_of_weights(attend, last.detach(), k.detach(), v, heads, of_rows)
    return *results, grouped(weighed, significance)


def check_asked(
    q: Any, k: Any, v: Any, significance: object, rows: object, options: Mapping[str, Any]
) -> None:
    """TensorError where there is no significance to be had."""
    if significance not in GROUPS:
        nearest = closest(significance, GROUPS)
        raise expected(TensorError, "significance", "max, mean or sum", significance, nearest=nearest)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        legal = "a number of rows from 1 on, or None for all"
        raise expected(TensorError, "significance_rows", legal, rows, nearest=1)
    if is_traced(q):
        raise TensorError("significance: expected None in compiled code, which has no operator for it")
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        if not type(tensor).__module__.startswith("torch"):
            raise expected(TensorError, name, "a tensor of PyTorch beside significance", tensor)
        if tensor.device.type != "cpu":
            raise TensorError(
                f"{name}: expected CPU memory beside significance, got {tensor.device}: gradients give it, which have "
                f"no kernels on GPUs yet; nearest: {name}.cpu()"
            )
    if options["forest"] is not None:
        raise TensorError("forest: expected None beside significance, whose rows are the last of a sequence")


def _last(q: Tensor, rows: int | None, layout: str) -> Tensor:
    axis = 1 if layout == "bshd" else 2
    return q if rows is None or rows >= q.shape[axis] else q.narrow(axis, q.shape[axis] - rows, rows)


def _last_packed(q: Tensor, rows: int | None, options: dict[str, Any]) -> Tensor:
    """The last rows of each sequence, of which `options` are told."""
    starts = int32_array("cu_seqlens", options["cu_seqlens"])
    if options["cu_seqlens_k"] is None:
        options["cu_seqlens_k"] = starts
    if rows is None:
        return q
    import torch

    counts = numpy.minimum(numpy.diff(starts), rows)
    chosen = [numpy.arange(end - count, end) for end, count in zip(starts[1:], counts, strict=True)]
    options["cu_seqlens"] = numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int32)
    return q[torch.from_numpy(numpy.concatenate([numpy.zeros(0, int), *chosen]))]


def sums_of_weights(
    attend: Callable, q: Tensor, k: Tensor, v: Tensor, heads: int, options: Mapping[str, Any]
) -> Tensor:
    """Over all rows of q: of each token, KV head and head of its group, [..., group], with the other dimensions as k
    has them. `heads`: which of those heads are."""
    import torch

    group, features = q.shape[heads] // k.shape[heads], v.shape[-1]
    head = torch.arange(q.shape[heads])
    found = []
    # Of 16 bits a sum of small weights keeps its digits where it is large: the largest sum is the number of rows.
    rows = max(q[..., 0].numel() // max(q.shape[heads], 1), 1)
    unit = 2.0 ** max(14 - (rows - 1).bit_length(), 0) if q.dtype == torch.float16 else 1.0
    for first in range(0, group, features):
        with torch.enable_grad():
            values = v.detach().requires_grad_()
            out = attend(q, k, values, **options)
            mine = torch.zeros(q.shape[heads], features, dtype=out.dtype)
            member = head % group - first
            inside = (member >= 0) & (member < features)
            mine[head[inside], member[inside]] = unit
            if heads == 1 and q.ndim == 4:
                mine = mine[:, None]
            (dv,) = torch.autograd.grad(out, values, mine.expand(out.shape))
        found.append(
            dv[..., : group - first] / unit
            if dv.dtype == torch.float64
            else dv[..., : group - first].float() / unit
        )
    return torch.cat(found, -1)


def grouped(weights: Tensor, how: str) -> Tensor:
    """Of a head group, [..., group], one number."""
    if how == "max":
        return weights.amax(-1)
    return weights.mean(-1) if how == "mean" else weights.sum(-1)
