# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that write keys and values of new tokens into any pages, and may normalize and rotate keys and queries."""

from __future__ import annotations

import contextlib
import functools
import sys
from dataclasses import replace
from typing import Any

import numpy

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import PlanError, SpecError, TensorError, expected
from ..memory import devices
from ..memory.devices import failed, get_device, stream_number
from ..memory.dtypes import DTYPES, is_dtype
from ..memory.tensors import written
from ..memory.views import Binding, check, contiguous, strided, view_of
from .operations import Preparation, Shape, append_text
from .rope import Norm, Rope

_HEADER = 8  # In words: a list begins with the number of its rows.
_LEAST = 64  # Rows of the shortest list.


def room_for(rows: int, least: int = _LEAST) -> int:
    """Return the rows that a list has room for: a power of two, so that few grids serve all steps."""
    return max(least, 1 << (rows - 1).bit_length())


def words_of(room: int) -> int:
    return _HEADER + -(-room // 8) * 8


class Appender:
    """The kernel for pages of one shape, and one preparation of keys and queries. May be used from several threads."""

    def __init__(self, heads: int, shape: Shape, preparation: Preparation):
        place = get_device(shape.device)
        text = append_text(heads, shape, preparation)
        request = request_for(text, target=place.target, form=form_of(place))
        self._code = load_native(request, place)[0]
        self._kernels: dict[int, Any] = {}
        """Kernels by the room of their lists."""
        self._status = place.allocate(16, "status")
        """The count of numbers that were not finite, for pages without one."""
        self._status.fill(0)

    def _kernel(self, room: int) -> Any:
        found = self._kernels.get(room)
        if found is None:
            found = _attn.Appender(self._code)
            found.reserve(room)
            found = self._kernels.setdefault(room, found)
        return found

    def launch(
        self,
        pages: dict[str, int],
        prologue: dict[str, int],
        new: dict[str, int],
        list_address: int,
        room: int,
    ) -> None:
        """Write one layer's tokens. `new`: k, v, rows and stream of _attn.Appender.launch."""
        pages = {"status": self._status.address} | pages
        try:
            nbytes = 4 * words_of(room)
            self._kernel(room).launch(pages, prologue, list=list_address, list_nbytes=nbytes, **new)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None


@functools.lru_cache(maxsize=64)
def _made(heads: int, shape: Shape, preparation: Preparation, generation: int) -> Appender:
    return Appender(heads, shape, preparation)


class NewTokens:
    """A layer's keys, values and queries, checked, and what is to be done to them.

    k, v, q  [rows, heads, dim]; tokens lie a multiple of 16 bytes apart, such as slices of a fused projection. With
             latents v is None, and q has the features that turn; its heads may lie apart
    out      where prepared queries are written, as q, or q itself; None: a new tensor"""

    def __init__(
        self, heads: int, shape: Shape, rows: int, k: Any, v: Any, q: Any, out: Any, rope: Rope | None, norm: Norm | None, stream: int
    ):  # fmt: skip
        self.keep: list = []
        self._shape, self._stream, self._heads = shape, stream, heads
        self.rows, self.out = rows, None
        for name, value, kind in (("rope", rope, Rope), ("norm", norm, Norm)):
            if value is not None and not isinstance(value, kind):
                raise expected(SpecError, name, f"attn.{kind.__name__} or None", value)
        as_given = rope is None and norm is None
        if as_given and q is not None:
            raise expected(SpecError, "rope", "a Rope, or a Norm as norm, beside q", None)
        self._prologue: dict[str, int] = {}
        self._k, _ = self._rows("k", k, heads, shape.key_dim)
        self._v = 0
        if not shape.latent:
            self._v, _ = self._rows("v", v, heads, shape.value_dim)
        elif v is not None:
            raise TensorError(f"v: expected None, as values are the first {shape.value_dim} features of k")
        made = self._queries(q, out, rope)
        made |= self._norm(norm, q is not None and not shape.latent)
        made |= self._rope(rope)
        self.rope = rope
        self.preparation = Preparation(**made, strided=as_given)

    def _rows(self, name: str, tensor: Any, heads: int | None, dim: int, key: str = "") -> tuple[int, int]:
        """Return the address of rows, and their heads; sets the bytes from a row to the next."""
        address, signature = view_of(name, tensor, self._stream, self.keep)
        found, shape = strided(signature), self._shape
        legal = f"{DTYPES[shape.dtype][0]} [{self.rows}, {heads or 'q_heads'}, {dim}]"
        fits = len(found.shape) == 3 and found.shape[0] >= self.rows and found.shape[2] == dim
        if not fits or not is_dtype(found.dtype, shape.dtype) or found.shape[1] != (heads or found.shape[1]):
            raise expected(TensorError, name, legal, tensor)
        if found.device != shape.device:
            raise expected(TensorError, name, f"memory of {shape.device}", found.device)
        count, (token, head, feature) = found.shape[1], found.strides
        token = token if found.shape[0] > 1 else count * dim
        if key and shape.latent:  # Queries, whose heads are parts of heads.
            head = head if count > 1 else dim
            if feature != 1 or token % 8 or head % 8 or min(token, head) < dim or address % 16:
                legal = "tokens and heads a multiple of 16 bytes apart, and features side by side"
                text = f"{name}: expected {legal}, got strides {list(found.strides)} for {found.text()}"
                raise TensorError(f"{text}; nearest legal: its .contiguous() copy")
            self._prologue |= {
                f"{key}_row_bytes": token * DTYPES[shape.dtype][1],
                f"{key}_head_bytes": head * DTYPES[shape.dtype][1],
            }
            return address, count
        dense = (count == 1 or head == dim) and (dim == 1 or feature == 1)
        if not dense or token % 8 or token < count * dim or address % 16:
            legal = "heads of a token in one piece, and tokens a multiple of 16 bytes apart"
            text = f"{name}: expected {legal}, got strides {list(found.strides)} for {found.text()}"
            raise TensorError(f"{text}; nearest legal: its .contiguous() copy")
        self._prologue[f"{key or name}_row_bytes"] = token * DTYPES[shape.dtype][1]
        return address, count

    def _queries(self, q: Any, out: Any, rope: Rope | None) -> dict[str, Any]:
        dim = self._shape.key_dim
        if q is None:
            if out is not None:
                raise expected(TensorError, "out", "None without q", out)
            return {}
        if self._shape.latent:
            if rope is None:
                raise expected(SpecError, "rope", "a Rope beside q, whose features turn", None)
            dim = rope.rotary_dim
            if dim % 8:
                legal = "cosines of a multiple of 4 angles beside q of latents"
                raise expected(TensorError, "rope.cos", legal, rope.cos)
        self._prologue["q"], heads = self._rows("q", q, None, dim, "q")
        if heads % self._heads:
            nearest = max(heads // self._heads, 1) * self._heads
            raise expected(
                TensorError, "q", f"a multiple of {self._heads} heads, those of k", heads, nearest=nearest
            )
        self.out = new_rows(q, (self.rows, heads, dim)) if out is None else out
        self._prologue["rotated"], _ = self._rows("out", self.out, heads, dim, "rotated")
        return {"q_heads": heads}

    def _table(self, name: str, tensor: Any, sizes: tuple[int, ...]) -> str:
        """Check weights or tables; sets their address, and returns their dtype."""
        address, signature = view_of(name, tensor, self._stream, self.keep)
        found, shape = strided(signature), self._shape
        legal = f"float32 or {DTYPES[shape.dtype][0]} {list(sizes)}"
        dtype = next((each for each in ("f32", shape.dtype) if is_dtype(found.dtype, each)), None)
        if dtype is None or found.shape != sizes:
            raise expected(TensorError, name, legal, tensor)
        if found.device != shape.device:
            raise expected(TensorError, name, f"memory of {shape.device}", found.device)
        if not contiguous(found.shape, found.strides) or address % 16:
            raise expected(TensorError, name, "contiguous memory at a multiple of 16 bytes", tensor)
        self._prologue[{"norm.k": "k_norm", "norm.q": "q_norm"}.get(name, name.rpartition(".")[2])] = address
        return dtype

    def _norm(self, norm: Norm | None, queries: bool) -> dict[str, Any]:
        if norm is None:
            return {}
        sizes = (self._shape.norm_dim,)
        if self._shape.latent and norm.q is not None:
            raise expected(TensorError, "norm.q", "None, as queries of latents have no norm", norm.q)
        made: dict[str, Any] = {
            "k_norm": self._table("norm.k", norm.k, sizes),
            "epsilon": float(norm.epsilon),
        }
        if queries:
            if norm.q is None:
                raise expected(TensorError, "norm.q", f"weights {list(sizes)} beside q", None)
            made["q_norm"] = self._table("norm.q", norm.q, sizes)
        return made

    def _rope(self, rope: Rope | None) -> dict[str, Any]:
        if rope is None:
            return {}
        dim = self._shape.key_dim
        if rope.rotary_dim > dim:
            legal = f"cosines of at most {dim // 2} angles, for heads of {dim} features"
            raise expected(
                TensorError, "rope.cos", legal, rope.cos, nearest=f"[{rope.positions}, {dim // 2}]"
            )
        last = dim - rope.rotary_dim
        if rope.first > last:
            legal = f"{rope.rotary_dim} rotated features within heads of {dim}, from {last // 8 * 8} on at the latest"
            raise expected(SpecError, "rope.first", legal, rope.first, nearest=last // 8 * 8)
        sizes = (rope.positions, rope.rotary_dim // 2)
        dtypes = [self._table(f"rope.{name}", getattr(rope, name), sizes) for name in ("cos", "sin")]
        if dtypes[0] != dtypes[1]:
            raise expected(TensorError, "rope.sin", f"the dtype of cos, {DTYPES[dtypes[0]][0]}", rope.sin)
        self._prologue["table_rows"] = rope.positions
        return {
            "angles": sizes[1],
            "first": rope.first,
            "tables": dtypes[0],
            "interleaved": bool(rope.interleaved),
        }

    def use_positions(self, positions: Any) -> None:
        """Take the positions of rows, int32 [rows or more] on the device."""
        address, signature = view_of("positions", positions, self._stream, self.keep)
        check(Binding("positions", "i32", ("rows",)), signature, {}, self._shape.device)
        self._prologue["positions"] = address
        self.keep.append(positions)

    def use_list(self, words: Any) -> None:
        """Take the list of slots, int32 words on the device."""
        self._list, _ = view_of("slots", words, self._stream, self.keep)
        self.keep.append(words)

    def write(self, pages: dict[str, int], room: int) -> Any:
        """Launch the write of the list's rows, which has room for `room`; returns prepared queries, or None."""
        shape = replace(self._shape, pages=0) if self._shape.pages else self._shape
        appender = _made(self._heads, shape, self.preparation, devices.generation)
        new = {"k": self._k, "v": self._v, "rows": self.rows, "stream": self._stream}
        appender.launch(pages, self._prologue, new, self._list, room)
        if self.out is not None:
            written(self.out)
        return self.out


def make_list(slots: numpy.ndarray, room: int) -> numpy.ndarray:
    """Return a list of slots on the host, at a multiple of 32 bytes."""
    words = words_of(room)
    memory = numpy.zeros(words + _HEADER, numpy.int32)
    skipped = -(memory.ctypes.data // 4) % _HEADER
    made = memory[skipped : skipped + words]
    made[:_HEADER] = len(slots)
    made[_HEADER : _HEADER + len(slots)] = slots
    return made


def read_positions(rope: Rope | None, positions: Any, rows: int, device: str) -> Any:
    """Return positions as int32 [rows] on the device. Refuses positions in a CPU's memory that are past the tables."""
    torch = sys.modules.get("torch")
    on_torch = torch is not None and isinstance(positions, torch.Tensor)
    found = positions if on_torch else numpy.asarray(positions)
    whole = str(found.dtype).removeprefix("torch.") in ("int32", "int64")
    if found.ndim != 1 or len(found) < rows or not whole:
        raise expected(TensorError, "positions", f"int32 or int64 [{rows}]", positions)
    found = found[:rows]
    on_cpu = not on_torch or found.device.type == "cpu"
    if rope is not None and on_cpu and rows:
        check_positions(rope, int(found.min()), int(found.max()))
    if on_torch:
        if device_of(found) != device:
            raise expected(TensorError, "positions", f"memory of {device}", device_of(found))
        return found.to(torch.int32).contiguous()
    return on_device(found.astype(numpy.int32), device, None)


def check_positions(rope: Rope, least: int, most: int) -> None:
    if least < 0:
        raise expected(TensorError, "positions", "numbers from 0 on", least, nearest=0)
    if most >= rope.positions:
        legal = f"tables of at least {most + 1} positions, for the token at position {most}"
        nearest = f"[{most + 1}, {rope.rotary_dim // 2}]"
        raise expected(TensorError, "rope.cos", legal, rope.cos, nearest=nearest)


def device_of(tensor: Any) -> str:
    return "host" if tensor.device.type == "cpu" else str(tensor.device)


def on_device(array: numpy.ndarray, device: str, stream: object) -> Any:
    """Return a copy on the device, made in the order of the stream. PlanError while it is captured."""
    torch = sys.modules.get("torch")
    if torch is None:
        return array
    if device == "host":
        return torch.from_numpy(array)
    if torch.cuda.is_current_stream_capturing():
        raise PlanError(
            "write: the stream is being captured, and a replay would write to the same slots again: write new tokens "
            "where their slots are in tables (CacheSteps.write)"
        )
    with contextlib.ExitStack() as stack:
        if stream is not None:
            given = torch.cuda.ExternalStream(stream_number(device, stream), device=device)
            stack.enter_context(torch.cuda.stream(given))
        return torch.from_numpy(array).to(device, non_blocking=True)


def new_rows(like: Any, sizes: tuple[int, ...]) -> Any:
    """Return unwritten memory of the dtype and on the device of a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(sizes, dtype=like.dtype, device=like.device)
    return numpy.empty(sizes, numpy.asarray(like).dtype)
