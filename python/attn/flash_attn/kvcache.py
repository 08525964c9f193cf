# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash_attn_with_kvcache, and packed rows over pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import PlanError, TensorError, expected, given
from ..memory.dtypes import storage_name
from ..memory.tables import int32_array
from ..memory.views import is_autocast, needs_gradient, refuse_tangents, refuse_transformed
from ..run.torch_rules import cast_under_autocast
from .options import Options, check_ranks, padded_heads, read_options, read_slopes
from .pages import CachePages, pages_of_cache
from .plans import PagedCall, Tables
from .rotary import check_rotary, rotate

_CACHE = "[batch_cache, seq_cache, heads_k, dim]"
_PAGES = "[pages, page_size, heads_k, dim]"


@torch.compiler.disable
def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """Compute attention over a cache, after new keys and values were appended to it, as
    flash_attn.flash_attn_with_kvcache does.

    q                 [batch, seq, heads, dim], float16 or bfloat16
    k_cache, v_cache  [batch_cache, seq_cache, heads_k, dim]; with a block table pages [pages, page_size, heads_k, dim]
    k, v              [batch, seq_new, heads_k, dim]: written into the caches from position cache_seqlens on
    rotary_cos, rotary_sin  [positions, rotary dim / 2]: rotate k at positions cache_seqlens, cache_seqlens + 1 and so on,
                      and q at the same ones, or all of q at cache_seqlens if rows see everything. Need k and v
    cache_seqlens     tokens in the cache before the call, with those that cache_leftpad hides: int32 [batch], or a number
                      for all; None: all of seq_cache
    cache_batch_idx   int32 [batch]: the entry of the cache that each sequence has; None: its own number
    cache_leftpad     int32 [batch]: the first token of each sequence; tokens before it are hidden
    block_table       int32 [batch, pages of a sequence]: the page of each page_size tokens; without cache_leftpad and
                      cache_batch_idx
    rotary_interleaved  True: pairs are features 0 and 1, 2 and 3; False: i and i + rotary dim / 2
    num_splits        is not read: plans divide the work
    return_softmax_lse  returns (out, lse): lse float32 [batch, heads, seq], -inf where a row sees nothing

    softmax_scale, causal, window_size, softcap and alibi_slopes are those of `flash_attn_func`; seq_k is the number of
    tokens with the new ones. Returns out [batch, seq, heads, dim].

    Tables on the CPU are planned on the host, once for all layers with equal tables. If one of them is on a GPU, the GPU
    plans: the call waits for nothing, and may be captured in a CUDA graph after a first call of its shapes. Lengths are
    checked on the CPU alone. Wrong ones on a GPU give NaN, or a device-side assertion of PyTorch where new tokens do not
    fit the cache.

    The caches are written after all checks and the plan. Heads before tokens in memory, and other layouts that kernels
    cannot read, are copied in each call; so are caches whose heads are no multiple of 8, and back beside k and v. Nothing
    here has gradients. Raises SpecError, TensorError and PlanError."""
    options = read_options(0.0, softmax_scale, causal, window_size, softcap)
    if is_autocast():
        q, k, v = cast_under_autocast(q, k, v)
    _check_tensors(q, k_cache, v_cache, k, v, block_table is not None)
    refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, alibi_slopes=alibi_slopes)
    if (rotary_cos is None) != (rotary_sin is None) or (rotary_cos is not None and k is None):
        raise TensorError("rotary_cos, rotary_sin: expected both, beside k and v, or None")
    if rotary_cos is not None:
        check_rotary(rotary_cos, rotary_sin, q.shape[3], q)
    dim, value_dim = q.shape[3], v_cache.shape[3]
    if dim % 8 or value_dim % 8:  # Padded copies, as flash-attn makes.
        caches = padded_heads(k_cache, v_cache)
        new_rows = (None, None) if k is None else padded_heads(k, v)
        found = flash_attn_with_kvcache(
            *padded_heads(q),
            *caches,
            *new_rows,
            rotary_cos,
            rotary_sin,
            cache_seqlens,
            cache_batch_idx,
            cache_leftpad,
            block_table,
            dim**-0.5 if softmax_scale is None else softmax_scale,
            causal,
            window_size,
            softcap,
            rotary_interleaved,
            alibi_slopes,
            num_splits,
            return_softmax_lse,
        )
        if k is not None:
            k_cache.copy_(caches[0][..., :dim])
            v_cache.copy_(caches[1][..., :value_dim])
        return (found[0][..., :value_dim], found[1]) if return_softmax_lse else found[..., :value_dim]
    batch, rows, heads, _ = q.shape
    new = 0 if k is None else k.shape[1]
    slopes = read_slopes(alibi_slopes, heads, batch, q)
    tables = _read_tables(q, k_cache, new, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    if rotary_cos is not None:
        tables.check_positions(len(rotary_cos), max(rows, new))
    if not q.numel():
        planned = None
    else:
        pages = tables.pages(k_cache, v_cache)
        flat, planned = tables.plan(q, pages, options, slopes)
    if k is not None:
        before = tables.before(q.device)
        if rotary_cos is not None:
            turn, steps = (rotary_cos, rotary_sin), torch.arange(max(rows, new), device=q.device)
            k = rotate(k, *turn, before[:, None] + steps[:new], rotary_interleaved)
            of_rows = torch.zeros_like(steps[:rows]) if options.see.is_everything() else steps[:rows]
            q = rotate(q, *turn, before[:, None] + of_rows, rotary_interleaved)
        tables.append(k_cache, v_cache, k, v, before)
    if planned is None:
        out, lse = q.new_zeros(*q.shape[:3], v_cache.shape[3]), q.new_zeros(q.shape[:3], dtype=torch.float32)
    else:
        if not pages.shares_memory(k_cache, v_cache):
            pages = tables.pages(k_cache, v_cache)  # Copies, which have the new tokens now.
        out, lse = run_planned(planned, rows_of(q), pages, flat, slopes, return_softmax_lse, rows)
        out = out.unflatten(0, (batch, rows))
        lse = None if lse is None else lse.unflatten(0, (batch, rows))
    return (out, lse.transpose(1, 2).contiguous()) if return_softmax_lse else out


def attend_packed_pages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    block_table: Any,
    options: Options,
    slopes: list[Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Compute (out, lse) of packed rows [tokens, heads, dim] over pages. Tables on a GPU are waited for."""
    _check_tensors(q[None], k, v, None, None, True)
    refuse_gradients(q=q, k=k, v=v)
    dim, value_dim = q.shape[2], v.shape[3]
    if dim % 8 or value_dim % 8:
        options = options._replace(scale=dim**-0.5 if options.scale is None else options.scale)
        q, k, v = padded_heads(q, k, v)
        out, lse = attend_packed_pages(q, k, v, cu_seqlens_q, cu_seqlens_k, block_table, options, slopes)
        return out[..., :value_dim], lse
    starts, ends = int32_array("cu_seqlens_q", cu_seqlens_q), int32_array("cu_seqlens_k", cu_seqlens_k)
    entries = int32_array("block_table", block_table)
    count = len(starts) - 1
    for name, offsets in (("cu_seqlens_q", starts), ("cu_seqlens_k", ends)):
        rises = len(offsets) == count + 1 and offsets[0] == 0 and (numpy.diff(offsets) >= 0).all()
        if not rises or (offsets is starts and offsets[-1] > len(q)):
            legal = f"{count + 1} offsets that rise from 0" + (
                f" to at most {len(q)}" if offsets is starts else ""
            )
            raise expected(TensorError, name, legal, offsets.tolist())
    if entries.ndim != 2 or len(entries) != count:
        raise expected(
            TensorError, "block_table", f"int32 [{count}, pages of a sequence]", given(block_table)
        )
    lengths = numpy.diff(ends)
    _check_range(
        "cu_seqlens_k", lengths, 0, entries.shape[1] * k.shape[1], "tokens of a sequence in its pages"
    )
    pages = pages_of_cache(k, v, None)
    found = Tables(starts, lengths, pages.of_entries(entries))
    rows = int(starts[-1])
    out, lse = q.new_zeros(*q.shape[:2], v.shape[3]), q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32)
    if rows:
        flat = rows_of(q[None, :rows])
        planned = PagedCall(flat, pages, found, options, None if slopes is None else slopes[0])
        out[:rows], lse[:rows] = run_planned(planned, flat, pages, found, slopes, True)
    return out, lse


def run_planned(
    planned: PagedCall,
    q: Tensor,
    pages: CachePages,
    tables: Tables,
    slopes: list[Tensor] | None,
    return_lse: bool,
    rows: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Run a planned call; with slopes of each sequence, sequences one by one. `rows` of each sequence, if all have as
    many."""
    if slopes is None or len(slopes) == 1:
        return planned.run(q, pages, return_lse)
    out, lse = [], []
    for i, slope in enumerate(slopes):
        first, end = (i * rows, (i + 1) * rows) if rows is not None else tables.starts[i : i + 2]
        if first == end:
            continue
        part = q[int(first) : int(end)]
        one = PagedCall(part, pages, tables.of_sequence(i, len(part)), planned.options, slope)
        results = one.run(part, pages, return_lse)
        out.append(results[0])
        lse.append(results[1])
    return torch.cat(out), torch.cat(lse) if return_lse else None


def rows_of(q: Tensor) -> Tensor:
    """Return queries [batch, seq, heads, dim] as rows that kernels read."""
    rows = q.flatten(0, 1)
    strides = (stride for stride, extent in zip(rows.stride()[:-1], rows.shape, strict=False) if extent > 1)
    if (
        rows.stride(-1) == 1
        and not rows.data_ptr() % 16
        and all(each > 0 and each % 8 == 0 for each in strides)
    ):
        return rows
    return rows.clone(memory_format=torch.contiguous_format)


# --- Checks --------------------------------------------------------------------------------------------------


def _check_tensors(q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, is_paged: bool) -> None:
    dims = "[batch, seq, heads, dim]"
    check_ranks(4, dims, q=q)
    check_ranks(4, _PAGES if is_paged else _CACHE, k_cache=k_cache, v_cache=v_cache)
    storage_name("q", q.dtype, TensorError)
    if (k is None) != (v is None):
        raise TensorError("k, v: expected both, or None")
    named = {"k_cache": k_cache, "v_cache": v_cache}
    if k is not None:
        check_ranks(4, "[batch, seq_new, heads_k, dim]", k=k, v=v)
        named |= {"k": k, "v": v}
    for name, each in named.items():
        if each.dtype != q.dtype or each.device != q.device:
            raise expected(
                TensorError, name, f"{q.dtype} on {q.device}, as q", f"{each.dtype} on {each.device}"
            )
    heads = k_cache.shape[2]
    if not k_cache.shape[1]:
        raise expected(TensorError, "k_cache", "room for a token or more", list(k_cache.shape))
    if not heads or q.shape[2] % heads or k_cache.shape[3] != q.shape[3]:
        legal = f"[.., .., heads_k, {q.shape[3]}], and the {q.shape[2]} heads of q a multiple of heads_k"
        raise expected(TensorError, "k_cache", legal, list(k_cache.shape))
    if v_cache.shape[:3] != k_cache.shape[:3]:
        raise expected(
            TensorError, "v_cache", f"{list(k_cache.shape[:3])} and dim, as k_cache", list(v_cache.shape)
        )
    if k is not None:
        for name, each, cache in (("k", k, k_cache), ("v", v, v_cache)):
            wanted = [q.shape[0], k.shape[1], *cache.shape[2:]]
            if list(each.shape) != wanted:
                raise expected(
                    TensorError, name, f"[batch, seq_new, heads_k, dim] of {wanted}", list(each.shape)
                )


def refuse_gradients(**tensors: Any) -> None:
    """Raise a TensorError for tensors that require a gradient, which flash-attn's functions over caches have not
    either, and for transforms of torch.func."""
    refuse_tangents(tensors)
    for name, tensor in tensors.items():
        refuse_transformed(name, tensor)
        if needs_gradient(tensor):
            raise TensorError(
                f"{name}: requires a gradient, which attention over a cache does not pass on; call under torch.no_grad(), "
                f"or with {name}.detach()"
            )


def _check_range(name: str, numbers: numpy.ndarray, least: Any, most: Any, what: str) -> None:
    """Raise a TensorError for the first number outside of [least, most]."""
    wrong = (numbers < least) | (numbers > most)
    if wrong.any():
        i = int(wrong.argmax())
        bounds = (int(numpy.broadcast_to(each, numbers.shape)[i]) for each in (least, most))
        low, high = bounds
        nearest = min(max(int(numbers[i]), low), high) if low <= high else None
        raise expected(
            TensorError, f"{name}[{i}]", f"{what}: {low} to {high}", int(numbers[i]), nearest=nearest
        )


# --- Tables --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CacheTables:
    """Which tokens each sequence has, in arrays of the host or tensors of q's device, int32: `seqlens` before the call,
    `leftpad` hidden ones or None, `entries` [batch, entries] of the cache, each of `room` tokens; `new` tokens."""

    seqlens: Any
    leftpad: Any
    entries: Any
    room: int
    new: int
    is_paged: bool

    @property
    def on_host(self) -> bool:
        return isinstance(self.seqlens, numpy.ndarray)

    def check_positions(self, rotated: int, rows: int) -> None:
        """Raise a TensorError for tables of rotary embeddings that are too short; on a GPU they have as many positions
        as the cache."""
        most = self.entries.shape[1] * self.room
        if self.on_host:
            most = int(self.seqlens.max(initial=0)) + rows
        if rotated < most:
            legal = f"[{most} or more positions, rotary dim / 2]"
            raise expected(TensorError, "rotary_cos", legal, f"{rotated} positions", nearest=most)

    def pages(self, k_cache: Tensor, v_cache: Tensor) -> CachePages:
        """Return the caches as pages of kernels."""
        aligned = None if self.is_paged else 0
        if self.leftpad is not None:
            aligned = int(numpy.gcd.reduce(self.leftpad)) if self.on_host else 1
        return pages_of_cache(k_cache, v_cache, aligned)

    def plan(
        self, q: Tensor, pages: CachePages, options: Options, slopes: list[Tensor] | None
    ) -> tuple[Tables, PagedCall]:
        """Plan the call, for rows like those of q."""
        batch, rows = q.shape[:2]
        lengths, blocks = self.seqlens + self.new, pages.of_entries(self.entries)
        if self.leftpad is not None:
            first, last = self.leftpad // pages.size, len(pages.k) - 1
            lengths, blocks = lengths - self.leftpad, (blocks + first[:, None]).clip(max=last)
        if self.on_host:
            starts = numpy.arange(batch + 1, dtype=numpy.int32) * numpy.int32(rows)
        else:
            starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * rows
        found = Tables(starts, lengths, blocks)
        return found, PagedCall(rows_of(q), pages, found, options, None if slopes is None else slopes[0])

    def before(self, device: torch.device) -> Tensor:
        """Return the tokens before the call, int64 [batch] on the device."""
        return _on(self.seqlens, device)

    def append(self, k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, before: Tensor) -> None:
        """Write new keys and values behind the tokens in the cache."""
        at, entries = before[:, None] + torch.arange(self.new, device=k.device), _on(self.entries, k.device)
        if self.is_paged:
            at, entries = at % self.room, entries.gather(1, at // self.room)
        places = entries.expand_as(at), at
        k_cache.index_put_(places, k)
        v_cache.index_put_(places, v)


def _on(table: Any, device: torch.device) -> Tensor:
    found = torch.from_numpy(table) if isinstance(table, numpy.ndarray) else table
    return found.to(device=device, dtype=torch.int64, non_blocking=True)


def _read_tables(
    q: Tensor, k_cache: Tensor, new: int, seqlens: Any, batch_idx: Any, leftpad: Any, block_table: Any
) -> _CacheTables:
    """Read tables, on the host if all of them are there, and check what they hold there. TensorError."""
    batch, (count, room) = len(q), k_cache.shape[:2]
    if seqlens is None and new:
        raise TensorError("cache_seqlens: expected int32 [batch], or a number, beside k and v, got None")
    tensors = {
        "cache_seqlens": seqlens,
        "cache_batch_idx": batch_idx,
        "cache_leftpad": leftpad,
        "block_table": block_table,
    }
    if block_table is not None:
        for name in ("cache_leftpad", "cache_batch_idx"):
            if tensors[name] is not None:
                raise expected(TensorError, name, "None beside block_table", given(tensors[name]))
    on_host = not any(map(_is_on_gpu, tensors.values()))
    if isinstance(seqlens, int) and not isinstance(seqlens, bool):
        tensors["cache_seqlens"] = _filled(batch, seqlens, on_host, q.device)
    for name, table in tensors.items():
        if table is None:
            continue
        found = _table(name, table, on_host, q.device)
        rank = 2 if name == "block_table" else 1
        if found.ndim != rank or len(found) != batch:
            legal = f"int32 [{batch}, pages of a sequence]" if name == "block_table" else f"int32 [{batch}]"
            raise expected(TensorError, name, legal, given(table))
        tensors[name] = found
    is_paged = block_table is not None
    entries = tensors["block_table"] if is_paged else tensors["cache_batch_idx"]
    if entries is None:
        if batch > count:
            raise expected(
                TensorError, "q", f"at most {count} sequences, the entries of k_cache", batch, nearest=count
            )
        if on_host:
            entries = numpy.arange(batch, dtype=numpy.int32)
        else:  # Made on the device: a copy would wait.
            entries = torch.arange(batch, dtype=torch.int32, device=q.device)
    entries = entries if is_paged else entries[:, None]
    capacity = room * entries.shape[1]
    found = tensors["cache_seqlens"]
    if found is None:
        found = _filled(batch, capacity, on_host, q.device)
    if on_host:
        beside = f" beside {new} new ones" if new else ""
        _check_range("cache_seqlens", found, 0, capacity - new, f"tokens in a cache for {capacity}{beside}")
        if not is_paged:
            _check_range("cache_batch_idx", entries[:, 0], 0, count - 1, "entries of k_cache")
        if (hidden := tensors["cache_leftpad"]) is not None:
            _check_range("cache_leftpad", hidden, 0, found, "tokens of the sequence")
    return _CacheTables(found, tensors["cache_leftpad"], entries, room, new, is_paged)


def _filled(count: int, number: int, on_host: bool, device: torch.device) -> Any:
    if on_host:
        return numpy.full(count, number, numpy.int32)
    return torch.full((count,), number, dtype=torch.int32, device=device)


def _is_on_gpu(table: Any) -> bool:
    return isinstance(table, Tensor) and table.is_cuda


def _table(name: str, table: Any, on_host: bool, device: torch.device) -> Any:
    """Return a table of int32 as an array, or on the device. TensorError."""
    if on_host:
        try:
            return int32_array(name, table)
        except PlanError as error:
            raise TensorError(str(error)) from None
    if not isinstance(table, Tensor):
        table = torch.as_tensor(numpy.asarray(table))
    if table.dtype not in (torch.int32, torch.int64):
        raise expected(TensorError, name, "int32 or int64", table.dtype)
    return table.to(device=device, dtype=torch.int32, non_blocking=True)
