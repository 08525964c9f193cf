# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of a padded batch when autograd records, for a model that trains.

The batch becomes instances of a packed store, as in padded_calls.py. Every mask that attn describes has gradients:
windows, chunks, packed sequences and images, too. Keys that a sequence hides get zeros.
"""

from __future__ import annotations

import threading

import numpy
from torch import Tensor

from ...describe.visibility import read_visibility
from ...memory.devices import stream_number
from ...run.kernel import Kernel
from ...run.plan import Plan
from . import spans as of_batch
from .padded_calls import Scores, Visible, padded_kernel

_MOST_PLANS = 64  # In a thread.
_local = threading.local()


def _kernel_of(q: Tensor, k: Tensor, v: Tensor, sinks: bool, see: str, scores: Scores) -> Kernel:
    """Return the kernel of the forward pass, for tensors [batch, heads, rows or tokens, dim]."""
    dims = q.shape[3], v.shape[3]
    shape = q.shape[1], k.shape[1], dims, q.dtype
    sees = scores.scale, see, scores.softcap, sinks
    return padded_kernel(*shape, *sees, (), str(q.device), return_lse=True, numerics=scores.numerics)


def missing_gradient(q: Tensor, k: Tensor, v: Tensor, sinks: bool, see: str, scores: Scores) -> str | None:
    """Say why there is no kernel of a layer's gradients; None if there is one."""
    rows, tokens = q.shape[2], k.shape[2]
    filled = {"q_pos": numpy.arange(tokens - rows, tokens), "kv.lengths": numpy.full(1, tokens)}
    found = _kernel_of(q, k, v, sinks, see, scores)._backward((), filled)
    if isinstance(found, Kernel):
        return None
    return f"a backward pass of heads of {q.shape[3]} and {v.shape[3]} features"


def attend_with_gradients(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, visible: Visible, scores: Scores
) -> Tensor:
    """Compute attention with gradients: `q [batch, q_heads, rows, dim]` over `k, v [batch, kv_heads, tokens, dim]`,
    `sinks f32[q_heads]` or None. Returns `[batch, rows, q_heads, value_dim]`. All of them may require gradients."""
    batch, _, rows, _ = q.shape
    kernel = _kernel_of(q, k, v, sinks is not None, visible.see, scores)
    flat = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (q, k, v)]
    plan = _plan(kernel, flat, sinks, visible, (batch, 1, rows, k.shape[2]))
    extras = {} if sinks is None else {"sink_logits": sinks}
    return kernel.run(flat[0], (flat[1], flat[2]), plan, **extras).unflatten(0, (batch, rows))


def _plan(
    kernel: Kernel, flat: list[Tensor], sinks: Tensor | None, visible: Visible, sizes: tuple[int, ...]
) -> Plan:
    """Return the plan of a kernel, thread and stream; layers of a step share it. Autograd keeps what the backward pass
    needs of it."""
    positions = None if visible.positions is None else visible.positions.numpy()
    told = (visible.spans.numpy().tobytes(), None if positions is None else positions.tobytes())
    wanted = (*told, visible.see, sizes, tuple(tensor.shape for tensor in flat))
    known = _local.__dict__.setdefault("plans", {})
    key = kernel, stream_number(kernel.device, None)
    if key in known and known[key][1] == wanted:
        return known[key][0]
    given = dict(zip(("q", "kv.k", "kv.v"), flat, strict=True))
    if sinks is not None:
        given["sink_logits"] = sinks
    described: dict[str, object] = {
        name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()
    }
    described |= of_batch.tables(visible.spans.numpy(), positions, read_visibility(visible.see), *sizes)
    plan = kernel.plan(described)
    known[key] = plan, wanted
    if len(known) > _MOST_PLANS:
        del known[next(iter(known))]
    return plan
