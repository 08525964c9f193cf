# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the tensors of attend into the operands of a kernel: heads, tables, shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

from ..describe.forest import Forest
from ..describe.stores import Dense, Packed, Store
from ..describe.visibility import Visibility
from ..errors import TensorError, expected
from ..memory.layouts import Form, forms, merged_rows, swapped, why_unreadable
from ..memory.views import Strided, contiguous

_TOKEN_MAJOR, _HEAD_MAJOR = "[batch, seq, heads, dim]", "[batch, heads, seq, dim]"


@dataclass
class Arrangement:
    store: Store
    q_heads: int
    kv_heads: int
    operands: dict[str, Any]
    """By name: (dtype, shape) of q, kv.k and kv.v as the kernel sees them, and the tables."""
    shape: tuple[int, ...]
    """The shape of the output in memory."""
    order: str
    """The names of that shape's dimensions."""
    swapped: bool = False
    """Whether the caller's order of sequence and heads differs from the order in memory."""
    copies_q: bool = False
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Strides in elements of those of q, kv.k, kv.v and the gate that are not dense."""
    copies_gate: bool = False


def arrange(
    q: Strided,
    k: Strided,
    v: Strided,
    layout: str,
    tables: tuple,
    forest: Forest | None = None,
    *,
    of_heads: str = "",
    of_positions: str = "",
    see: Visibility | None = None,
) -> Arrangement:
    """Arrange the operands of a call. `of_heads`: the option that needs to know the head, or ""; `of_positions`: the
    option that needs positions as they are, or "". `see`: the visibility if a row that sees nothing of its sequence's
    tokens is to be refused. Raises TensorError."""
    for name, found in (("q", q), ("k", k), ("v", v)):
        if found.dtype != q.dtype:
            raise TensorError(f"{name}: expected the dtype of q, {q.text()}, got {found.text()}")
        if found.device != q.device:
            raise TensorError(f"{name}: expected memory of {q.device}, where q is, got {found.device}")
    lengths, starts, starts_k = tables
    if starts is None and starts_k is not None:
        raise TensorError("cu_seqlens: expected beside cu_seqlens_k, got None")
    if starts is not None and lengths is not None:
        raise TensorError("kv_lengths: expected None beside cu_seqlens, which says the lengths")
    if forest is not None and (starts is not None or lengths is not None):
        other = "kv_lengths" if starts is None else "cu_seqlens"
        raise TensorError(f"{other}: expected None beside forest, which says where nodes begin")
    is_packed = starts is not None or forest is not None
    rank, dims = (3, "[tokens, heads, dim]") if is_packed else (4, _dims(layout))
    for name, found in (("q", q), ("k", k), ("v", v)):
        if len(found.shape) != rank:
            raise TensorError(f"{name}: expected {rank} dimensions, {dims}, got {found.text()}")
    axis = 2 if rank == 4 and layout == "bshd" else 1
    if k.shape[axis] == 0 or q.shape[axis] % k.shape[axis]:
        legal = f"a multiple of the {k.shape[axis]} heads of k along axis {axis} of {dims}"
        raise expected(
            TensorError, "q", legal, q.shape[axis], hint=_other_layout(q, k, v, layout) if rank == 4 else ""
        )
    if forest is not None:
        return _packed_forest(q, k, v, forest)
    if starts is not None:
        return _packed(q, k, v, starts, starts if starts_k is None else starts_k, of_positions, see)
    return _dense(q, k, v, layout, lengths, of_heads, of_positions, see)


def check_gate(q: Any, gate: Any, shape: tuple[int, ...], text: Callable[[Any], str]) -> None:
    """Raise a TensorError for a gate that does not fit an output of this shape. `text` says what q and gate are."""
    if gate.shape not in (shape, shape[:-1]):
        legal = f"{list(shape)}, the shape of the output, or {list(shape[:-1])}, a number for each head"
        raise TensorError(f"gate: expected {legal}, got {text(gate)}")
    if gate.dtype != q.dtype:
        raise TensorError(
            f"gate: expected the dtype of q, {text(q)}, got {text(gate)}; nearest: gate.to(q.dtype)"
        )
    if gate.device != q.device:
        raise TensorError(f"gate: expected memory of {q.device}, where q is, got {gate.device}")


def arrange_gate(made: Arrangement, q: Strided, gate: Strided, layout: str) -> str:
    """Arrange the gate of the output; return its kind, as Spec.gate. Raises TensorError."""
    shape = swapped(made.shape) if made.swapped else made.shape
    check_gate(q, gate, shape, Strided.text)
    elementwise = gate.shape == shape
    found_shape, strides = gate.shape, gate.strides
    if not elementwise:  # A headwise gate has one feature.
        found_shape, strides = (*found_shape, 1), (*strides, 1)
    if made.swapped:
        found_shape, strides = swapped(found_shape), swapped(strides)
    lies = merged_rows(found_shape, strides) if len(found_shape) == 4 else strides
    rows = (math.prod(found_shape[:-2]), *found_shape[-2:])
    if lies is not None and contiguous(rows, lies):
        return "elementwise" if elementwise else "headwise"
    axes = ("rows", "heads", "dim")
    if not elementwise or lies is None or why_unreadable("gate", rows, lies, axes, 2):
        made.copies_gate = True
    else:
        made.strides["gate"] = lies
    return "elementwise" if elementwise else "headwise"


def _dims(layout: str) -> str:
    return _TOKEN_MAJOR if layout == "bshd" else _HEAD_MAJOR


def _other_layout(q: Strided, k: Strided, v: Strided, layout: str) -> str:
    """Return a hint if the tensors fit the other layout: the shapes agree there, and there are fewer heads than tokens."""
    other = "bhsd" if layout == "bshd" else "bshd"
    axis = 2 if other == "bshd" else 1
    heads, kv_heads, tokens = q.shape[axis], k.shape[axis], k.shape[3 - axis]
    fits = (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3]) and k.shape[:3] == v.shape[:3]
    fits = fits and 0 < kv_heads <= heads < tokens and heads % kv_heads == 0
    return f"Tensors {_dims(other)} take layout={other!r}" if fits else ""


# --- Dense ---------------------------------------------------------------------------------------------------


def _dense(
    q: Strided,
    k: Strided,
    v: Strided,
    layout: str,
    lengths: Any,
    of_heads: str,
    of_positions: str,
    see: Visibility | None,
) -> Arrangement:
    logical = (lambda axes: axes) if layout == "bshd" else swapped
    batch, rows, heads, dim = logical(q.shape)
    _, tokens, kv_heads, value_dim = logical(v.shape)
    for name, found, shape in (
        ("k", k, (batch, tokens, kv_heads, dim)),
        ("v", v, (batch, tokens, kv_heads, value_dim)),
    ):
        if logical(found.shape) != shape:
            hint = _other_layout(q, k, v, layout)
            raise TensorError(
                f"{name}: expected {_dims(layout)} of {list(logical(shape))} beside q and v, got {list(found.shape)}"
                f"{'. ' if hint else ''}{hint}"
            )
    fits = {
        name: forms(logical(found.shape), logical(found.strides))
        for name, found in (("q", q), ("k", k), ("v", v))
    }
    form = _common_form(fits, of_heads, Form("token", rows) in fits["q"])
    major = form.major if form else "token"
    q_strides = merged_rows(logical(q.shape), logical(q.strides)) if major == "token" else None
    copies_q = q_strides is None and Form(major, rows) not in fits["q"]
    if lengths is None:
        lengths = numpy.full(batch, tokens, numpy.int32)
    elif lengths.shape != (batch,) or (batch and not 0 <= lengths.min() <= lengths.max() <= tokens):
        legal = f"{batch} lengths from 0 to the {tokens} tokens of k"
        raise expected(TensorError, "kv_lengths", legal, lengths.tolist())
    q_lens = numpy.full(batch, rows, numpy.int32)
    other = "bhsd" if layout == "bshd" else "bshd"
    read_as = f"{_dims(layout)}: write layout={other!r} where they are {_dims(other)}"
    _refuse_empty_rows(see, q_lens, lengths, read_as)
    pos0 = _first_positions(q_lens, lengths, of_positions)
    first_row = pos0 + lengths - rows
    positions = first_row[:, None] + numpy.arange(rows, dtype=numpy.int32)

    in_memory = (batch, rows, heads, value_dim)
    strides = {"kv.k": logical(k.strides), "kv.v": logical(v.strides)}
    if major == "token":
        made = Arrangement(Dense(), heads, kv_heads, {}, in_memory, _TOKEN_MAJOR)
        sequences = batch
        if q_strides is not None:
            strides["q"] = q_strides
    else:  # A KV head of a sequence becomes a sequence, with the rows of the query heads that read it.
        made = Arrangement(Dense(), 1, 1, {}, swapped(in_memory), _HEAD_MAJOR)
        sequences, group = batch * kv_heads, heads // kv_heads
        for name, last in (("kv.k", dim), ("kv.v", value_dim)):
            strides[name] = (form.capacity * last, last, last, 1)
        lengths, pos0 = numpy.repeat(lengths, kv_heads), numpy.repeat(pos0, kv_heads)
        positions = numpy.repeat(positions, heads, axis=0)
        heads, kv_heads, rows = 1, 1, group * rows
    made.operands = {
        "q": (q.dtype, (sequences * rows, heads, dim)),
        "kv.k": (k.dtype, (sequences, tokens, kv_heads, dim)),
        "kv.v": (v.dtype, (sequences, tokens, kv_heads, value_dim)),
        "q_start": numpy.arange(sequences + 1, dtype=numpy.int32) * numpy.int32(rows),
        "q_pos": positions.reshape(-1),
        "kv.lengths": lengths,
        "kv.pos0": pos0,
    }
    made.swapped = (major == "token") != (layout == "bshd")
    made.copies_q = copies_q
    made.strides = {
        name: found
        for name, found in strides.items()
        if not contiguous(made.operands[name][1], found) and not (name == "q" and copies_q)
    }
    if major == "token":
        _check_strides(made, ("batch", "seq", "heads", "dim"))
    return made


def _check_strides(made: Arrangement, axes: tuple[str, ...]) -> None:
    for name, strides in made.strides.items():
        named = ("rows", "heads", "dim") if name == "q" else axes
        shape = made.operands[name][1]
        why = why_unreadable(name.removeprefix("kv."), shape, strides, named, 2)
        if why:
            raise TensorError(why)


def _common_form(fits: dict[str, list[Form]], of_heads: str, q_is_token_major: bool) -> Form | None:
    """Return a form that k and v share; of two, the one of q. None: k and v are read by their strides, with all heads
    of a token together."""
    common = [form for form in fits["k"] if form in fits["v"]]
    usable = [form for form in common if form.major == "token" or not of_heads]
    return next(
        (form for form in usable if (form.major == "token") == q_is_token_major), (usable or [None])[0]
    )


# --- Packed --------------------------------------------------------------------------------------------------


def _packed(
    q: Strided,
    k: Strided,
    v: Strided,
    starts: Any,
    starts_k: Any,
    of_positions: str,
    see: Visibility | None,
) -> Arrangement:
    rows, tokens = q.shape[0], v.shape[0]
    for name, offsets, total in (("cu_seqlens", starts, rows), ("cu_seqlens_k", starts_k, tokens)):
        rising = (
            offsets.ndim == 1 and len(offsets) > 0 and offsets[0] == 0 and (numpy.diff(offsets) >= 0).all()
        )
        if not rising or offsets[-1] > total or len(offsets) != len(starts):
            legal = f"offsets that rise from 0 to at most the {total} rows, as many for k as for q"
            raise expected(TensorError, name, legal, offsets.tolist())
    is_padded = starts[-1] < rows or starts_k[-1] < tokens
    if is_padded:  # The rest is a sequence without tokens: its rows see nothing, and no row sees its tokens.
        starts, starts_k = numpy.append(starts, rows), numpy.append(starts_k, tokens)
        starts, starts_k = starts.astype(numpy.int32), starts_k.astype(numpy.int32)
    q_lens, lengths = numpy.diff(starts), numpy.diff(starts_k)
    if is_padded:
        lengths[-1] = 0
    _refuse_empty_rows(
        see, q_lens, lengths, "[tokens, heads, dim], packed as cu_seqlens and cu_seqlens_k say: mend those"
    )
    pos0 = _first_positions(q_lens, lengths, of_positions)
    row = numpy.arange(rows, dtype=numpy.int32) - numpy.repeat(starts[:-1], q_lens)
    operands = {
        "q_start": starts,
        "q_pos": row + numpy.repeat(pos0 + lengths - q_lens, q_lens),
        "kv.start": starts_k,
        "kv.lengths": lengths,
        "kv.pos0": pos0,
    }
    return _packed_tensors(q, k, v, operands)


def _packed_forest(q: Strided, k: Strided, v: Strided, forest: Forest) -> Arrangement:
    for name, found in (("q", q), ("k", k)):
        if found.shape[0] != forest.tokens:
            legal = f"the {forest.tokens} tokens of the forest, each a row"
            raise expected(TensorError, name, legal, found.shape[0])
    return _packed_tensors(q, k, v, forest.tables())


def _packed_tensors(q: Strided, k: Strided, v: Strided, tables: dict[str, Any]) -> Arrangement:
    rows, heads, dim = q.shape
    tokens, kv_heads, value_dim = v.shape
    if k.shape != (tokens, kv_heads, dim):
        raise TensorError(f"k: expected shape {[tokens, kv_heads, dim]} beside q and v, got {list(k.shape)}")
    data = {"q": (q.dtype, q.shape), "kv.k": (k.dtype, k.shape), "kv.v": (v.dtype, v.shape)}
    made = Arrangement(
        Packed(), heads, kv_heads, data | tables, (rows, heads, value_dim), "[tokens, heads, dim]"
    )
    for name, found in (("q", q), ("kv.k", k), ("kv.v", v)):
        if not contiguous(found.shape, found.strides):
            made.strides[name] = found.strides
    _check_strides(made, ("tokens", "heads", "dim"))
    return made


def _refuse_empty_rows(
    see: Visibility | None, rows: numpy.ndarray, lengths: numpy.ndarray, read_as: str
) -> None:
    """Raise a TensorError for a sequence with more rows than tokens whose first row sees nothing. The first row then
    has a position before the first token; if it sees any token, it sees the first one."""
    before = numpy.where(lengths > 0, rows - lengths, 0)
    if see is None or not (before > 0).any():
        return
    empty = (before > 0) & ~see.sees(numpy.zeros_like(before), before)
    if empty.any():
        i = int(empty.argmax())
        raise TensorError(
            f"q: expected at most as many rows as tokens, got {rows[i]} rows beside {lengths[i]} tokens in sequence {i}, so "
            f"that {before[i]} of the rows would see nothing; tensors are read as {read_as}, or allow_empty_rows=True "
            "where rows of zeros are meant"
        )


def _first_positions(rows: numpy.ndarray, lengths: numpy.ndarray, of_positions: str) -> numpy.ndarray:
    """Return the position of each sequence's first token. Rows are the last positions of their sequence. With more rows
    than tokens, the first rows are before the first token and see nothing of a causal sequence: all positions move up
    until none is negative. Positions in a sequence without tokens do not matter."""
    pos0 = numpy.maximum(rows - lengths, 0).astype(numpy.int32)
    moved = numpy.where(lengths > 0, pos0, 0)
    if of_positions and moved.any():
        i = int(moved.argmax())
        raise TensorError(
            f"q: expected at most as many rows as tokens, which {of_positions} needs, got {rows[i]} rows beside "
            f"{lengths[i]} tokens in sequence {i}"
        )
    return pos0
