# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of padded batches as operators of PyTorch: torch.ops.attn.spans, .seen and .attend_spans."""

from __future__ import annotations

import functools
import os
import threading

import torch
from torch import Tensor

from ..describe.classes import heads
from ..describe.functions import softcap as capped
from ..describe.spec import Spec
from ..describe.stores import Packed, Store
from ..describe.visibility import all_tokens, causal, recent, sink, window
from ..errors import TensorError
from ..run.kernel import Kernel
from ..run.kernels import compile
from ..run.plan import Plan
from ..run.torch_rules import PLANS_ANEW, refuse_later
from . import spans as of_batch


@torch.library.custom_op("attn::spans", mutates_args=(), tags=PLANS_ANEW)
def spans(
    mask: Tensor | None,
    q_offset: Tensor,
    kv_offset: Tensor,
    batch: int,
    q_length: int,
    kv_length: int,
    causal: bool,
) -> Tensor:
    """The keys that the rows of each sequence may see at all, i32[batch, 4] in CPU memory (spans.py).

    mask       bool[batch, positions] or None: which positions are not padding; the others lie before or behind them
    q_offset   position of the first query row; kv_offset of the first key: integers, 0-d or of one element
    q_length, kv_length  rows and keys of each sequence
    causal     no row sees keys behind the last row

    Reads a GPU's tensors, so it waits for them: once for all layers of a step. Errors: TensorError where padding has
    holes.
    """
    given = None if mask is None else mask.cpu().numpy()
    first_row, first_key = int(q_offset), int(kv_offset)
    hole = of_batch.first_hole(of_batch.shown_tokens(given, kv_length, first_key))
    if hole is not None:
        raise TensorError(
            f"attention_mask[{hole[0]}]: expected padding before and behind the tokens only, got padding at position "
            f"{first_key + hole[1]} between tokens"
        )
    made = of_batch.make_spans(given, first_row, first_key, batch, q_length, kv_length, causal)
    return torch.from_numpy(made)


@spans.register_fake
def _(mask, q_offset, kv_offset, batch, q_length, kv_length, causal):
    return torch.empty((batch, 4), dtype=torch.int32, device="cpu")


@torch.library.custom_op("attn::seen", mutates_args=())
def seen(
    spans: Tensor,
    positions: Tensor | None,
    batch: int,
    causal: bool,
    window: int,
    shift: int,
    rows: int,
    tokens: int,
) -> Tensor:
    """The mask that spans stand for, bool[batch, 1, rows, tokens] in CPU memory: for those who cannot do without."""
    given = None if positions is None else positions.numpy()
    made = of_batch.seen(spans.numpy(), given, batch, causal, window, shift, rows, tokens)
    return torch.from_numpy(made)[:, None].clone()


@seen.register_fake
def _(spans, positions, batch, causal, window, shift, rows, tokens):
    return torch.empty((batch, 1, rows, tokens), dtype=torch.bool, device="cpu")


@torch.library.custom_op("attn::attend_spans", mutates_args=(), tags=PLANS_ANEW)
def attend_spans(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spans: Tensor,
    scale: float,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    sink_logits: Tensor | None = None,
    classes: list[int] | None = None,
    streaming: list[int] | None = None,
    shift: int = 0,
    positions: Tensor | None = None,
) -> Tensor:
    """Attention of a padded batch: `q [batch, q_heads, rows, dim]` over `k, v [batch, kv_heads, tokens, dim]`, of which
    each sequence sees its span (`attn::spans`). Gives `[batch, rows, q_heads, value_dim]`, 0 where a row sees nothing.

    scale, softcap  of the scores; a cap of 0 is none
    causal, window  what rows see; a window of 0 is none
    sink_logits     f32[q_heads], a logit that joins each head's softmax
    classes         of each KV head: 0 sees all that, 1 (streaming) of it the first `streaming[0]` tokens and the
                    `streaming[1]` most recent ones
    shift           rows stand that much further behind than the spans say
    positions       of rows, where `spans` are segments (spans.py)

    Keys and values are read where they are if they are contiguous in this order or in `[batch, tokens, kv_heads, dim]`
    (without sink_logits and classes; with them only in the latter), and are copied otherwise.
    """
    batch, q_heads, rows, dim = q.shape
    kv_heads, tokens = k.shape[1], k.shape[2]
    # Where each KV head's keys lie together, a head is a sequence of its own.
    per_head = sink_logits is None and not classes and not k.transpose(1, 2).is_contiguous()
    inside = 1 if per_head else kv_heads
    kernel = padded_kernel(
        q_heads // kv_heads * inside,
        inside,
        (dim, v.shape[3]),
        q.dtype,
        scale,
        causal,
        window,
        softcap,
        sink_logits is not None,
        tuple(streaming or ()) if classes else (),
        str(q.device),
    )
    plan = _plan(
        kernel,
        q,
        (spans, positions, causal, shift),
        tuple(sorted(classes or ())),
        batch,
        kv_heads // inside,
        rows,
        tokens,
        v.shape[3],
    )
    group = q_heads // kv_heads
    if per_head:
        q = q.reshape(batch, kv_heads, group, rows, dim).transpose(2, 3)
    else:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    # Copies only what does not lie so already.
    q, k, v = (
        tensor.reshape(-1, heads, tensor.shape[-1]).contiguous()
        for tensor, heads in ((q, group * inside), (k, inside), (v, inside))
    )
    extra = {} if sink_logits is None else {"sink_logits": sink_logits.float().contiguous()}
    if classes:
        extra["classes"] = tuple(classes)
    out = kernel.run(q, (k, v), plan, **extra)
    if per_head:
        out = out.view(batch, kv_heads, rows, group, -1).permute(0, 2, 1, 3, 4)
    return out.reshape(batch, rows, q_heads, -1).contiguous()


@attend_spans.register_fake
def _(
    q,
    k,
    v,
    spans,
    scale,
    causal=True,
    window=0,
    softcap=0.0,
    sink_logits=None,
    classes=None,
    streaming=None,
    shift=0,
    positions=None,
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


refuse_later(attend_spans)


@functools.lru_cache(maxsize=256)
def padded_kernel(
    q_heads: int,
    kv_heads: int,
    dims: tuple[int, int],
    dtype: torch.dtype,
    scale: float,
    is_causal: bool,
    size: int,
    softcap: float,
    sinks: bool,
    streaming: tuple[int, ...],
    device: str,
    store: Store | None = None,
) -> Kernel:
    """The kernel of a layer, by what models call their parameters; `streaming` is (sink, recent)."""
    see = window(size) if size else causal() if is_causal else all_tokens()
    spec = Spec(
        q_heads=q_heads,
        kv_heads=kv_heads,
        head_dim=dims[0],
        value_dim=dims[1],
        dtype=dtype,
        kv=[store or Packed()],
        see=see,
        scale=scale,
        score=(lambda s, h, qi, ki: capped(s, softcap)) if softcap else None,
        sink_logits=sinks,
        heads=heads(retrieval=all_tokens(), streaming=sink(streaming[0]) | recent(streaming[1]))
        if streaming
        else None,
        return_lse=False,
    )
    return compile(spec, device=device)


_MOST_PLANS = 256  # of a thread, as many as there are kernels
_local = threading.local()
os.register_at_fork(after_in_child=lambda: (padded_kernel.cache_clear(), _local.__dict__.clear()))


def _plan(kernel, q, visible, classes, batch, heads_apart, rows, tokens, value_dim) -> Plan:
    """One plan per kernel, thread and stream, brought up to date where the batch is another: all layers of a step
    have the same, but for which heads are in which class."""
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    spans, positions, causal, shift = visible
    spans, positions = spans.numpy(), None if positions is None else positions.numpy()
    bytes_of = None if positions is None else positions.tobytes()
    wanted = (spans.tobytes(), bytes_of, causal, shift, classes, batch, rows, tokens)
    known = _local.__dict__.setdefault("plans", {})
    entry = known.get((kernel, stream))
    if entry is not None and entry[1] == wanted:
        return entry[0]
    tables = of_batch.tables(spans, positions, causal, shift, batch, heads_apart, rows, tokens)
    manifest = kernel.manifest
    dtype, inside = q.dtype, manifest["kv_heads"]
    sequences = batch * heads_apart
    tables["q"] = (dtype, (sequences * rows, manifest["q_heads"], manifest["key_dim"]))
    tables["kv.k"] = (dtype, (sequences * tokens, inside, manifest["key_dim"]))
    tables["kv.v"] = (dtype, (sequences * tokens, inside, value_dim))
    if classes:
        tables["classes"] = classes
    if "sink_logits" in kernel.slots:
        tables["sink_logits"] = (torch.float32, (manifest["q_heads"],))
    if entry is None:
        plan = kernel.plan(tables)
    else:
        plan = entry[0]
        plan.update(tables)
    known[kernel, stream] = (plan, wanted)
    if len(known) > _MOST_PLANS:  # they hold kernels
        del known[next(iter(known))]
    return plan
