# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of padded batches as operators of PyTorch: torch.ops.attn.spans, .seen, .attend_spans, .attend_step and
.attend_paged_step."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from ..describe.visibility import read_visibility
from ..errors import TensorError
from ..run.torch_rules import PLANS_ANEW, refuse_forward_mode, refuse_later, refuse_vmap
from . import planned_pages, planned_steps
from .rows import spans as of_batch
from .rows.padded_calls import PaddedCall, Scores, Visible
from .rows.visible_rows import Rows, segments


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
    """Return the keys that the rows of each sequence may see at all, i32[batch, 4] in CPU memory (spans.py).

    mask       bool[batch, positions] or None: True for positions that are not padding; padding is before or after them
    q_offset   position of the first query row; kv_offset of the first key: integers, 0-d or of one element
    q_length, kv_length  rows and keys of each sequence
    causal     no row sees keys after the last row

    Waits for a GPU to read its tensors, once for all layers of a step. Raises TensorError if padding has holes.
    """
    given = None if mask is None else mask.cpu().numpy()
    first_row, first_key = int(q_offset), int(kv_offset)
    hole = of_batch.first_hole(of_batch.shown_tokens(given, kv_length, first_key))
    if hole is not None:
        raise TensorError(
            f"attention_mask[{hole[0]}]: expected padding before and after the tokens only, got padding at position "
            f"{first_key + hole[1]} between tokens"
        )
    made = of_batch.make_spans(given, first_row, first_key, batch, q_length, kv_length, causal)
    return torch.from_numpy(made)


@spans.register_fake
def _(mask, q_offset, kv_offset, batch, q_length, kv_length, causal):
    return torch.empty((batch, 4), dtype=torch.int32, device="cpu")


@torch.library.custom_op("attn::sequences", mutates_args=(), tags=PLANS_ANEW)
def sequences(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return segments of packed sequences, and the positions of rows (spans.py), in CPU memory: a row sees the keys
    with its number. `numbers`: int[batch, rows], rising, of rows and keys alike. There are as many segments as there
    could be; those after the last used one are all -1."""
    given = numbers.cpu().numpy()
    batch, count = given.shape
    rows = numpy.broadcast_to(numpy.arange(count), given.shape)
    seen = Rows.of_all(rows, count).in_sequences(given, given)
    if seen is None:
        raise TensorError(
            "position_ids: expected packed sequences one after the other in each row of the batch"
        )
    found, positions = segments(seen, count, None)
    filled = numpy.full((batch * count, 6), -1, numpy.int32)
    filled[: len(found)] = found
    return torch.from_numpy(filled), torch.from_numpy(positions)


@sequences.register_fake
def _(numbers):
    batch, count = numbers.shape
    kind = {"dtype": torch.int32, "device": "cpu"}
    return torch.empty((batch * count, 6), **kind), torch.empty((batch, count), **kind)


@torch.library.custom_op("attn::seen", mutates_args=())
def seen(
    spans: Tensor,
    positions: Tensor | None,
    batch: int,
    see: str,
    rows: int,
    tokens: int,
) -> Tensor:
    """Return the mask that spans stand for, bool[batch, 1, rows, tokens] in CPU memory, for code that needs its
    elements."""
    given = None if positions is None else positions.numpy()
    made = of_batch.seen(spans.numpy(), given, batch, read_visibility(see), rows, tokens)
    return torch.from_numpy(made)[:, None].clone()


@seen.register_fake
def _(spans, positions, batch, see, rows, tokens):
    return torch.empty((batch, 1, rows, tokens), dtype=torch.bool, device="cpu")


@torch.library.custom_op("attn::attend_spans", mutates_args=(), tags=PLANS_ANEW)
def attend_spans(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spans: Tensor,
    scale: float,
    see: str = "causal()",
    softcap: float = 0.0,
    sink_logits: Tensor | None = None,
    classes: list[int] | None = None,
    streaming: list[int] | None = None,
    positions: Tensor | None = None,
    numerics: str | None = None,
) -> Tensor:
    """Compute attention of a padded batch: `q [batch, q_heads, rows, dim]` over `k, v [batch, kv_heads, tokens, dim]`,
    of which each sequence sees its span (`attn::spans`). Returns `[batch, rows, q_heads, value_dim]`, 0 for a row that
    sees nothing.

    scale, softcap  of the scores; a cap of 0 is none
    see             what rows see of their span, as `repr` of a Visibility
    sink_logits     f32[q_heads], a logit that joins each head's softmax
    classes         of each KV head: 0 sees the whole span; 1 (streaming) its first `streaming[0]` tokens and its
                    `streaming[1]` most recent ones
    positions       of rows, if `spans` are segments (spans.py)
    numerics        "row" or None, as of attn.Spec
    """
    refuse_forward_mode()
    visible = Visible(*of_batch.settled(spans, positions), see)
    scores = Scores(scale, softcap, tuple(classes or ()), tuple(streaming or ()), numerics)
    sinks = None if sink_logits is None else sink_logits.float().contiguous()
    return PaddedCall(q, k, v, sinks, visible, scores)(q, k, v, sinks)


@attend_spans.register_fake
def _(
    q,
    k,
    v,
    spans,
    scale,
    see="causal()",
    softcap=0.0,
    sink_logits=None,
    classes=None,
    streaming=None,
    positions=None,
    numerics=None,
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


refuse_later(attend_spans)
refuse_vmap(attend_spans)


@torch.library.custom_op("attn::attend_step", mutates_args=())
def attend_step(
    q: Tensor, k: Tensor, v: Tensor, plan: Tensor, start: Tensor, lengths: Tensor, handle: str
) -> Tensor:
    """Compute attention of a row for each sequence, `q [batch, q_heads, 1, dim]`, over `k, v [batch, kv_heads, tokens,
    dim]`, with a plan that was made on the device (planned_steps.py). Returns `[batch, 1, q_heads, value_dim]`."""
    refuse_forward_mode()
    return planned_steps.attend_step(q, k, v, planned_steps.PlannedStep(handle, lengths, plan, start))


@attend_step.register_fake
def _(q, k, v, plan, start, lengths, handle):
    return q.new_empty(q.shape[0], 1, q.shape[1], v.shape[3])


refuse_later(attend_step)
refuse_vmap(attend_step)


@torch.library.custom_op("attn::attend_paged_step", mutates_args=())
def attend_paged_step(
    q: Tensor, k: Tensor, v: Tensor, sink_logits: Tensor | None, handle: str, layer: int
) -> Tensor:
    """Compute attention of a step that was planned on the device (planned_pages.py): `q [rows, q_heads, dim]`,
    `sink_logits f32[q_heads]`. Writes the rows' `k, v [rows, kv_heads, dim]` into the pages of a layer, which are not
    tensors of compiled code, and attends to all tokens there. Returns `[rows, q_heads, value_dim]`."""
    refuse_forward_mode()
    return planned_pages.attend_paged_step(q, k, v, sink_logits, handle, layer)


@attend_paged_step.register_fake
def _(q, k, v, sink_logits, handle, layer):
    return q.new_empty(*q.shape[:2], v.shape[2])


refuse_later(attend_paged_step)
refuse_vmap(attend_paged_step)
