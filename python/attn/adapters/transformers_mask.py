# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The masks that models of Transformers ask for.

    make_mask    makes a SpanMask from what a model asks for: a function of positions, and a mask of padding

A mask function is understood where Transformers made it (mask_functions.py) or, where a model made it, from the values it
has: in every row the keys seen must be a range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import torch
import transformers.masking_utils as masking
from torch import Tensor

from . import spans as of_batch
from . import torch_spans
from .mask_functions import See, describe, see_compiled, see_of, shown_names
from .planned_steps import PlannedStep, note_checked, plan_step
from .span_mask import SpanMask
from .transformers_fallback import unserved
from .visible_rows import Rows, read_rows, segments


@torch._dynamo.allow_in_graph
def _span_mask(spans, positions, causal, window, shift, like, batch, rows, tokens, dtype, model) -> SpanMask:
    shape = (batch, 1, rows, tokens)
    return SpanMask(spans, positions, (causal, window, shift), shape, dtype, like.device, model)


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
    """What Transformers calls for a mask. A SpanMask where attn can say what is seen, else the mask that eager attention
    adds, with a warning, or TensorError (set_fallback)."""
    model = getattr(config, "model_type", None) or "a model"
    sizes, positions = (batch_size, q_length, kv_length), None
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.shape[0] != batch_size):
        see = None
    elif torch.compiler.is_compiling():
        see = see_compiled(mask_function, use_vmap, q_offset, {"config": config, **kwargs})
        if see is not None and see.sequences is not None:
            spans, positions = torch_spans.sequences(see.sequences)
        elif see is not None:
            limited = see.causal and not see.shift
            spans = torch_spans.spans(attention_mask, _tensor(q_offset), _tensor(kv_offset), *sizes, limited)
    else:
        see = see_of(mask_function)
        planned = None
        if q_length == 1 and isinstance(q_offset, Tensor) and not isinstance(kv_offset, Tensor):
            planned = _plan_step(
                see, config, batch_size, kv_length, q_offset, kv_offset, attention_mask, device
            )
        if planned is not None:
            shape, place = (batch_size, 1, 1, kv_length), torch.device(device)
            return SpanMask(None, None, (see.causal, see.window, 0), shape, dtype, place, model, planned)
        given, offsets = None, (int(q_offset), int(kv_offset))
        causal = see is not None and see.causal and not see.shift
        if attention_mask is not None and not (
            of_batch.reaches(attention_mask.shape[1], kv_length, *offsets, q_length, causal)
            and _hides_nothing(attention_mask)
        ):
            given = attention_mask.cpu().numpy()
        shown = of_batch.shown_tokens(given, kv_length, offsets[1])
        if see is not None and of_batch.first_hole(shown) is None:
            if config is not None:
                note_checked(config, (see.causal, see.window), attention_mask)
            if given is None and causal and not offsets[1] and offsets[0] + q_length <= kv_length:
                shape, limits = (batch_size, 1, q_length, kv_length), (see.causal, see.window, see.shift)
                mask = SpanMask(None, None, limits, shape, dtype, _placed(device), model)
                mask.end = offsets[0] + q_length
                return mask
            spans = torch.from_numpy(of_batch.make_spans(given, *offsets, *sizes, causal))
        else:
            rows = _rows(see, mask_function, *sizes, *offsets, device, use_vmap)
            see = None if rows is None else See(rows.causal, rows.window)
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
    return _span_mask(spans, positions, see.causal, see.window, see.shift, like, *sizes, dtype, model)


def _placed(device: torch.device | str) -> torch.device:
    """With its number, as tensors have it."""
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _plan_step(
    see: See | None,
    config: object,
    batch: int,
    kv_length: int,
    q_offset: Tensor,
    kv_offset: int,
    mask: Tensor | None,
    device: torch.device | str,
) -> PlannedStep | None:
    """A step of a static cache whose end only the device knows."""
    if see is None or see.shift or not see.causal or config is None:
        return None
    place = _placed(device)
    if mask is not None and (mask.dtype != torch.bool or mask.device != place):
        return None
    return plan_step(config, (see.causal, see.window), batch, kv_length, q_offset, kv_offset, mask, place)


def _hides_nothing(mask: Tensor) -> bool:
    """Of a mask that may be long: a GPU is asked, not all of it copied."""
    return bool(mask.all()) if mask.is_cuda else bool(mask.numpy().all())


def _tensor(number: int | Tensor) -> Tensor:
    return number if isinstance(number, Tensor) else torch.tensor(number)


def _rows(
    see: See | None,
    mask_function: Callable,
    batch: int,
    q_length: int,
    kv_length: int,
    q_offset: int,
    kv_offset: int,
    device: torch.device | str,
    use_vmap: bool,
) -> Rows | None:
    """What each row sees, in indices of keys."""
    first = q_offset - kv_offset
    rows = numpy.broadcast_to(numpy.arange(first, first + q_length), (batch, q_length))
    everything = Rows(numpy.zeros_like(rows), numpy.full_like(rows, kv_length), rows, False, 0)
    if see is not None:
        return everything.seeing(see.causal, see.window, see.shift)
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
