# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What models of Transformers call a mask, in attn's words.

    SpanMask     what models get in place of a mask: a few numbers for each sequence. A tensor that only attention
                 implemented by attn may look into; for anything else that computes with it, it becomes the real mask
    make_mask    makes one from what a model asks for: a function of positions, and a mask of padding

A mask function is understood where Transformers made it (by its code, not by its name) or, where a model made it, from
the values it has: in every row the keys seen must be a range. (Source: transformers.masking_utils.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
import transformers.masking_utils as masking
from torch import Tensor
from torch.utils._pytree import tree_map

from . import spans as of_batch
from . import torch_spans
from .padded_calls import PaddedCall, Visible
from .planned_steps import PlannedStep, note_checked, plan_step
from .transformers_fallback import unserved
from .visible_rows import Rows, read_rows, segments

_ATEN = torch.ops.aten
_SAME = (_ATEN.detach.default, _ATEN.alias.default)


@dataclass(frozen=True)
class See:
    """What rows see beside their spans: `causal`, of it the `window` last (0: all). A row's position is `shift` later
    than its own: bidirectional windows are causal ones of rows that stand further behind."""

    causal: bool
    window: int = 0
    shift: int = 0


class SpanMask(torch.Tensor):
    """A mask of the shape `[batch, 1, rows, tokens]` that has no elements. `spans` and `positions` are those of
    `torch.ops.attn.attend_spans`, in CPU memory. `dense()` is the mask that eager attention adds."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls,
        spans: Tensor | None,
        positions: Tensor | None,
        see: tuple[bool, int, int],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        model: str,
        step: PlannedStep | None = None,
    ) -> SpanMask:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)

    def __init__(self, spans, positions, see, shape, dtype, device, model, step=None):
        self.spans, self.positions, self.model = spans, positions, model
        # Of a step that was planned on the device, which has no spans: tensors, and the number of their planner.
        self.handle = 0 if step is None else step.handle
        if step is not None:
            self.plan, self.start, self.lengths = step.plan, step.start, step.lengths
        self.causal, self.window, self.shift = see
        self.calls: dict[tuple, PaddedCall] = {}
        """Of layers that attend through it, by what their tensors look like."""
        self._dense: Tensor | None = None

    def dense(self) -> Tensor:
        """0 where a key is seen, the least number of the dtype where it is not."""
        if self._dense is None:
            batch, _, rows, tokens = self.shape
            seen = torch_spans.seen(self.host_spans(), self.positions, batch, *self.see, rows, tokens).to(
                self.device
            )
            mask = torch.where(seen, 0.0, torch.finfo(self.dtype).min).to(self.dtype)
            if torch._guards.detect_fake_mode(mask) is not None:
                return mask
            self._dense = mask
        return self._dense

    @property
    def see(self) -> tuple[bool, int, int]:
        return self.causal, self.window, self.shift

    @property
    def step(self) -> PlannedStep:
        return PlannedStep(self.handle, self.plan, self.start, self.lengths)

    def host_spans(self) -> Tensor:
        """The spans, of a step that was planned on the device by waiting for it."""
        return self.step.spans() if self.handle else self.spans

    @property
    def visible(self) -> Visible:
        return Visible(self.host_spans(), self.positions, *self.see)

    def on(self, device: torch.device) -> SpanMask:
        step = self.step if self.handle else None
        place = torch.device(device)
        return SpanMask(self.spans, self.positions, self.see, self.shape, self.dtype, place, self.model, step)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        mask = args[0] if args else None
        if isinstance(mask, SpanMask) and _keeps(function, mask, args, kwargs):
            return mask.on(kwargs.get("device") or mask.device)

        def real(value):
            if not isinstance(value, SpanMask):
                return value
            unserved(value.model, "attention of its own that computes with its mask", f" ({function})")
            return value.dense()

        return function(*tree_map(real, args), **tree_map(real, kwargs))

    def __repr__(self, **kwargs) -> str:
        return f"<attn's mask {list(self.shape)} of {self.model}: {self.see}>"

    def __tensor_flatten__(self):
        if self.handle:
            inner = ["plan", "start", "lengths"]
        else:
            inner = ["spans"] if self.positions is None else ["spans", "positions"]
        return inner, (self.see, self.dtype, self.device, self.model, self.handle)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        see, dtype, device, model, handle = context
        step = PlannedStep(handle, inner["plan"], inner["start"], inner["lengths"]) if handle else None
        return SpanMask(inner.get("spans"), inner.get("positions"), see, size, dtype, device, model, step)


def _keeps(function: object, mask: SpanMask, args: tuple, kwargs: dict) -> bool:
    """Whether a function of PyTorch leaves a mask what it is: models cut masks to the length that they have, and move
    them to where a layer is."""
    if function in _SAME:
        return True
    if function is _ATEN._to_copy.default:
        return kwargs.get("dtype") in (None, mask.dtype) and kwargs.get("layout") in (None, torch.strided)
    if function is _ATEN.slice.Tensor:
        axis, first, last, step = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        return not first and step == 1 and (last is None or last >= mask.shape[axis])
    return False


@torch._dynamo.allow_in_graph
def _span_mask(spans, positions, causal, window, shift, like, batch, rows, tokens, dtype, model) -> SpanMask:
    shape = (batch, 1, rows, tokens)
    return SpanMask(spans, positions, (causal, window, shift), shape, dtype, like.device, model)


# --- Masks that models ask for -------------------------------------------------------------------------------


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
        see = _see_compiled(mask_function, use_vmap, q_offset, {"config": config, **kwargs})
        if see is not None:
            limited = see.causal and not see.shift
            spans = torch_spans.spans(attention_mask, _tensor(q_offset), _tensor(kv_offset), *sizes, limited)
    else:
        see = _see(mask_function)
        planned = None
        if q_length == 1 and isinstance(q_offset, Tensor) and not isinstance(kv_offset, Tensor):
            planned = _plan_step(
                see, config, batch_size, kv_length, q_offset, kv_offset, attention_mask, device
            )
        if planned is not None:
            shape, place = (batch_size, 1, 1, kv_length), torch.device(device)
            return SpanMask(None, None, (see.causal, see.window, 0), shape, dtype, place, model, planned)
        given = None if attention_mask is None else attention_mask.cpu().numpy()
        offsets = int(q_offset), int(kv_offset)
        causal = see is not None and see.causal and not see.shift
        if given is not None and of_batch.shows_all(given, kv_length, *offsets, q_length, causal):
            given = None
        shown = of_batch.shown_tokens(given, kv_length, offsets[1])
        if see is not None and of_batch.first_hole(shown) is None:
            made = of_batch.make_spans(given, *offsets, *sizes, causal)
            spans = torch.from_numpy(made)
            if config is not None:
                note_checked(config, (see.causal, see.window), attention_mask)
        else:
            rows = _rows(see, mask_function, *sizes, *offsets, device, use_vmap)
            see = None if rows is None else See(rows.causal, rows.window)
            if rows is not None:
                spans, positions = (torch.from_numpy(table) for table in segments(rows, kv_length, shown))
    if see is None:
        unserved(model, f"a mask that is not described ({_shown_names(mask_function)})")
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
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    if mask is not None and (mask.dtype != torch.bool or mask.device != place):
        return None
    return plan_step(config, (see.causal, see.window), batch, kv_length, q_offset, kv_offset, mask, place)


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
    found = _describe(mask_function, everything, kv_offset, q_offset)
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


# --- Functions that Transformers makes -----------------------------------------------------------------------


def _code(made: Callable) -> object:
    return made.__code__


_WINDOW = _code(masking.sliding_window_overlay(1))
_BOTH_WAYS = _code(masking.sliding_window_bidirectional_overlay(1))
_CHUNK = _code(masking.chunked_overlay(1, torch.zeros(1, dtype=torch.int64)))
_PACKED = _code(masking.packed_sequence_mask_function(torch.zeros(1, 1)))
_BLOCKS = _code(masking.blockwise_overlay(torch.zeros(1, 1)))
_AND = _code(masking.and_masks())
_OR = _code(masking.or_masks())


def _closed_over(function: Callable) -> dict[str, object]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _conjunction(function: Callable) -> list[Callable]:
    """The functions of which all have to show a key."""
    if getattr(function, "__code__", None) is not _AND:
        return [function]
    return [part for joined in _closed_over(function)["mask_functions"] for part in _conjunction(joined)]


def _see(function: Callable) -> See | None:
    """Of functions that need no more than spans; None of others."""
    parts = _conjunction(function)
    codes = [getattr(part, "__code__", None) for part in parts]
    causal = masking.causal_mask_function in parts
    whole = masking.bidirectional_mask_function in parts
    if len(parts) == 1 and (causal or whole):
        return See(causal)
    if len(parts) == 2 and (causal or whole) and codes[0] in (_WINDOW, _BOTH_WAYS):
        size = _closed_over(parts[0])["sliding_window"]
        if causal:
            return See(True, size if codes[0] is _WINDOW else size + 1)
        if codes[0] is _BOTH_WAYS:
            return See(True, 2 * size + 1, size)
    return None


def _describe(function: Callable, rows: Rows, first_key: int, first_row: int) -> Rows | None:
    """What rows see by functions that are known; None where one is not."""
    blocks = None
    if getattr(function, "__code__", None) is _OR:
        function, *others = _closed_over(function)["mask_functions"]
        if len(others) != 1 or getattr(others[0], "__code__", None) is not _BLOCKS:
            return None
        blocks = _closed_over(others[0])["block_sequence_ids"]
    parts = _conjunction(function)
    for part in parts:
        code = getattr(part, "__code__", None)
        if part is masking.causal_mask_function:
            rows = rows.seeing(True, rows.window, 0)
        elif part is masking.bidirectional_mask_function:
            pass
        elif code is _WINDOW and masking.causal_mask_function in parts:
            rows = rows.seeing(True, _closed_over(part)["sliding_window"], 0)
        elif code is _CHUNK:
            held = _closed_over(part)
            rows = rows.in_chunks(held["chunk_size"], held["left_padding"].cpu().numpy() - first_key)
        elif code is _PACKED:
            ids = _closed_over(part)["packed_sequence_mask"].cpu().numpy()
            rows = rows.in_sequences(ids[:, first_key:], ids[:, first_row:])
        else:
            return None
        if rows is None:
            return None
    return rows if blocks is None else rows.with_blocks(blocks.cpu().numpy()[:, first_key:])


def _shown_names(function: Callable) -> str:
    if torch.compiler.is_compiling():
        return function.__qualname__.partition(".<locals>")[0]
    if getattr(function, "__code__", None) is _OR:
        return " | ".join(_shown_names(part) for part in _closed_over(function)["mask_functions"])
    names = [getattr(part, "__qualname__", "a callable") for part in _conjunction(function)]
    return " & ".join(name.partition(".<locals>")[0] for name in names)


# --- In compiled code ----------------------------------------------------------------------------------------


class _Index:
    """Stands for the positions of rows or keys while a mask function is called: what it does is written down. Compiled
    code cannot look into a function, but it can call one."""

    device = None

    def __init__(self, text: tuple):
        self.text = text

    def __sub__(self, other: object) -> _Index:
        return _Index(("-", self.text, other.text if isinstance(other, _Index) else other))

    def __abs__(self) -> _Index:
        return _Index(("abs", self.text))

    def _compare(self, sign: str, other: object) -> _Seen:
        return _Seen(((sign, self.text, other.text if isinstance(other, _Index) else other),))

    def __le__(self, other: object) -> _Seen:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> _Seen:
        return self._compare(">", other)

    def __ge__(self, other: object) -> _Seen:
        return self._compare(">=", other)

    def new_ones(self, *args: object, **kwargs: object) -> _Seen:
        return _Seen(())


class _Seen:
    device = None

    def __init__(self, parts: tuple):
        self.parts = parts

    def __and__(self, other: _Seen) -> _Seen:
        return _Seen(self.parts + other.parts)

    def to(self, device: object) -> _Seen:
        return self


_JOINED = masking.and_masks().__qualname__
_Q, _K = ("q",), ("k",)
_CAUSAL, _ANY = ("<=", _K, _Q), (">=", _Q, 0)


def _see_compiled(
    function: Callable, use_vmap: bool, q_offset: int | Tensor, options: dict[str, object]
) -> See | None:
    """As `_see`. Functions that look into tensors cannot be asked: Transformers joins those (packed sequences, blocks)
    only where it forbids itself to leave the mask away, which it else does for caches of fixed size."""
    if function is masking.causal_mask_function:
        return See(True)
    if function is masking.bidirectional_mask_function:
        return See(False)
    skips = options.get("allow_is_causal_skip", True) or "allow_is_bidirectional_skip" in options
    joined = function.__qualname__ == _JOINED
    if use_vmap or not joined or not (skips or isinstance(q_offset, Tensor)):
        return None
    size = options.get("local_size")  # of a window, or of chunks, which look into a tensor
    config = options.get("config")
    if size is None or size == getattr(config, "attention_chunk_size", None):
        return None
    parts = function(0, 0, _Index(_Q), _Index(_K)).parts
    if parts == ((">", _K, ("-", _Q, size)), _CAUSAL):
        return See(True, size)
    if parts == (("<=", ("abs", ("-", _Q, _K)), size), _ANY):
        return See(True, 2 * size + 1, size)
    return None
