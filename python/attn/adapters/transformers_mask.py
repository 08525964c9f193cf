# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the masks that models of Transformers ask for.

    make_mask    makes a SpanMask from a model's request: a function of positions, and a padding mask

A mask function of Transformers is recognized by its code (mask_functions.py). A model's own function is read by its
values: in every row the keys seen must be a range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import torch
import transformers.masking_utils as masking
from torch import Tensor

from ..describe.visibility import Visibility
from . import torch_spans
from .planned_steps import PlannedStep, note_checked, plan_step
from .rows import spans as of_batch
from .rows.mask_functions import describe, see_compiled, see_of, shown_names
from .rows.visible_rows import Rows, read_rows, segments
from .span_mask import SpanMask, ends_at_rows, is_causal_or_window
from .transformers_fallback import unserved


@torch._dynamo.allow_in_graph
def _span_mask(spans, positions, see, like, batch, rows, tokens, dtype, model) -> SpanMask:
    return SpanMask(spans, positions, see, (batch, 1, rows, tokens), dtype, like.device, model)


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable = masking.causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    config: object = None,
    **kwargs: object,
) -> Tensor:
    """Make a mask; Transformers calls it. Returns a SpanMask if attn can describe what rows see, else the mask that
    eager attention adds, with a warning, or raises a TensorError (set_fallback)."""
    model = getattr(config, "model_type", None) or "a model"
    sizes, positions = (batch_size, q_length, kv_length), None
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.shape[0] != batch_size):
        see = None
    elif torch.compiler.is_compiling():
        options = {"config": config, **kwargs}
        see, numbers = see_compiled(mask_function, use_vmap, q_offset, options) or (None, None)
        if numbers is not None:
            spans, positions = torch_spans.sequences(numbers)
        elif see is not None:
            offsets = _tensor(q_offset), _tensor(kv_offset)
            spans = torch_spans.spans(attention_mask, *offsets, *sizes, ends_at_rows(see))
    else:
        found = see_of(mask_function, attention_mask)
        see, planned = None if found is None else repr(found), None
        if q_length == 1 and isinstance(q_offset, Tensor) and not isinstance(kv_offset, Tensor):
            planned = _plan_step(
                see, config, batch_size, kv_length, q_offset, kv_offset, attention_mask, device
            )
        if planned is not None:
            shape, place = (batch_size, 1, 1, kv_length), torch.device(device)
            return SpanMask(None, None, see, shape, dtype, place, model, planned)
        given, offsets = None, (int(q_offset), int(kv_offset))
        causal = see is not None and ends_at_rows(see)
        if attention_mask is not None and not (
            of_batch.reaches(attention_mask.shape[1], kv_length, *offsets, q_length, causal)
            and _hides_nothing(attention_mask)
        ):
            given = attention_mask.cpu().numpy()
        shown = of_batch.shown_tokens(given, kv_length, offsets[1])
        if see is not None and of_batch.first_hole(shown) is None:
            if config is not None:
                note_checked(config, see, attention_mask)
            if given is None and causal and not offsets[1] and offsets[0] + q_length <= kv_length:
                shape = batch_size, 1, q_length, kv_length
                mask = SpanMask(None, None, see, shape, dtype, _placed(device), model)
                mask.end = offsets[0] + q_length
                return mask
            spans = torch.from_numpy(of_batch.make_spans(given, *offsets, *sizes, causal))
        else:
            rows = _rows(found, given, mask_function, *sizes, *offsets, device, use_vmap)
            see = None if rows is None else repr(rows.see)
            if rows is not None:
                spans, positions = (torch.from_numpy(table) for table in segments(rows, kv_length, shown))
    if see is None:
        unserved(model, f"a mask that is not described ({shown_names(mask_function)})")
        return masking.eager_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            attention_mask,
            dtype=dtype,
            use_vmap=use_vmap,
            device=device,
        )
    like = torch.empty(0, device=device)
    return _span_mask(spans, positions, see, like, *sizes, dtype, model)


def _placed(device: torch.device | str) -> torch.device:
    """Return a device with its number, as tensors have it."""
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _plan_step(
    see: str | None,
    config: object,
    batch: int,
    kv_length: int,
    q_offset: Tensor,
    kv_offset: int,
    mask: Tensor | None,
    device: torch.device | str,
) -> PlannedStep | None:
    """Plan a step of a static cache whose end only the device knows; None if the host has to."""
    if see is None or config is None or not is_causal_or_window(see):
        return None
    place = _placed(device)
    if mask is not None and (mask.dtype != torch.bool or mask.device != place):
        return None
    return plan_step(config, see, batch, kv_length, q_offset, kv_offset, mask, place)


def _hides_nothing(mask: Tensor) -> bool:
    """Whether a mask is all True. It may be long: a GPU reduces it, instead of copying all of it."""
    return bool(mask.all()) if mask.is_cuda else bool(mask.numpy().all())


def _tensor(number: int | Tensor) -> Tensor:
    return number if isinstance(number, Tensor) else torch.tensor(number)


def _rows(
    see: Visibility | None,
    padding: numpy.ndarray | None,
    mask_function: Callable,
    batch: int,
    q_length: int,
    kv_length: int,
    q_offset: int,
    kv_offset: int,
    device: torch.device | str,
    use_vmap: bool,
) -> Rows | None:
    """Return what each row sees, in indices of keys; None if it cannot be described. `padding`: the mask of positions
    that are not padding, or None."""
    first = q_offset - kv_offset
    rows = numpy.broadcast_to(numpy.arange(first, first + q_length), (batch, q_length))
    everything = Rows.of_all(rows, kv_length)
    if see is not None and not see.fixed_term():
        return everything.seeing(see)
    if see is not None:
        before = 0 if padding is None else padding.astype(bool).argmax(1)[:, None]
        return everything.counting_from(before - kv_offset).seeing(see)
    found = describe(mask_function, everything, kv_offset, q_offset)
    if found is None:
        seen = masking.sdpa_mask(
            batch,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        found = read_rows(seen[:, 0].cpu().numpy())
    return found
