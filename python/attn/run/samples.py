# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random tensors for a description: `attn.check` computes on them by default.

Like attn-run's (lib/Tools/run/inputs/Inputs.h) they are made to find mistakes: pages are scattered over the pool and
shuffled. Everything that a kernel must not read (unlisted pages, tails of listed ones, gaps) holds NaN, and unused
entries of a block table an index far out of range.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy

from ..describe.checks import integer
from ..describe.spec import Spec
from ..describe.stores import Store
from ..errors import SpecError, closest, expected
from ..memory.codes import describe_format
from ..memory.page_views import page_views
from ..memory.tensors import bfloat16_bits
from .sample_numbers import coded_numbers, normal_numbers

NO_PAGE = 2**31 - 1
_USABLE = 8.0  # The most that a score's standard deviation may be when amplitudes are drawn.
_AMPLITUDES = (1e-30, 1e30)


Amplitude = float | tuple[float, float]


def sample(
    spec: Spec, *, seed: int = 0, amplitude: Amplitude = 1.0, **dims: int | Sequence[int]
) -> dict[str, Any]:
    """Make random tensors for a description, by name: q, q_start, q_pos, <operand>.k, ..., classes, sink_logits.

    batch    the number of sequences; default 4
    q_len    query rows of each sequence, its last ones; default 1
    kv_len   tokens of each instance, or if heads are ragged of each of its KV heads; default 512. Any other name in the
             `dims` of an operand or a tensor works alike
    NAME     of a head class: its number of KV heads; by default classes alternate
    amplitude    of the normal numbers in queries, keys and values; (low, high) draws one for each tensor, each power of ten
                 equally likely. The amplitude of queries is then reduced to keep scores within a few units

    A size is a number, (low, high) to draw from for each sequence, or a list with one number for each. An operand whose
    first dimension is not `batch` is shared: its instances divide the sequences among them in order. Tokens of an
    operand follow those of earlier operands that the same heads see. bfloat16 is given as its bits, uint16: see
    `attn.from_bfloat16_bits`. Raises SpecError.
    """
    if not isinstance(spec, Spec):
        raise expected(SpecError, "spec", "an attn.Spec", spec)
    return Sampler(spec, integer("seed", seed, 0, 2**63 - 1), dict(dims), amplitude).run()


class Sampler:
    def __init__(self, spec: Spec, seed: int, dims: dict[str, Any], amplitude: Amplitude = 1.0) -> None:
        self.spec, self.seed, self.dims = spec, seed, dims
        self.amplitudes = _amplitudes(amplitude)
        self.tensors: dict[str, numpy.ndarray] = {}
        self.sizes: dict[str, int] = {}

    def run(self) -> dict[str, numpy.ndarray]:
        spec = self.spec
        self._check_names()
        self.batch = self._one("batch", 4)
        q_lens = self._many("q_len", self.batch, 1, least=0)
        self.start = numpy.concatenate([[0], numpy.cumsum(q_lens)])
        rows = int(self.start[-1])
        self.classes = self._classes()
        names = spec.heads.names if spec.heads else (None,)
        # By class: the position after the last token so far, of each sequence.
        ends = {name: numpy.zeros(self.batch, numpy.int64) for name in names}
        for store in spec.operands:
            self._add_store(store, ends)
        end = numpy.max(list(ends.values()), axis=0)
        for name in names:
            self._align(name, ends[name], end)
        if (q_lens > end).any():
            s = int((q_lens > end).argmax())
            raise expected(SpecError, "q_len", f"at most the {end[s]} tokens of sequence {s}", int(q_lens[s]))
        self.sizes |= {"batch": self.batch, "rows": rows, "q_len": int(q_lens.max())}

        first = {"q": self._queries((rows, spec.q_heads, spec.head_dim))}
        first["q_start"] = self.start.astype(numpy.int32)
        first["q_pos"] = numpy.concatenate(
            [numpy.arange(e - n, e) for e, n in zip(end, q_lens, strict=True)]
        ).astype(numpy.int32)
        if spec.heads:
            self.tensors["classes"] = self.classes.astype(numpy.int32)
        if spec.sink_logits:
            self.tensors["sink_logits"] = self._normal("sink_logits", (spec.q_heads,), "float32")
        if spec.gate is not None:
            shape = (rows, spec.q_heads, *([spec.value_dim] if spec.gate == "elementwise" else []))
            self.tensors["gate"] = self._normal("gate", shape, spec.dtype, amplitude=2.0)
        if spec.output is not None and spec.output_scales == "tensor":
            # Outputs of one token and averages of many are normal numbers of e4m3.
            self.tensors["output_scale"] = numpy.array([2.0**-6], numpy.float32)
        for name, shape in spec.tensors:
            extents = tuple(self._extent(name, extent) for extent in shape)
            # Small numbers: a slope times thousands of tokens must leave the scores usable.
            self.tensors[name] = self._normal(name, extents, "float32") * numpy.float32(0.1)
        return first | self.tensors

    # --- Sizes ----------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        known = ["batch", "q_len"]
        for store in self.spec.operands:
            known += store.dims
        for _, shape in self.spec.tensors:
            known += [extent for extent in shape if isinstance(extent, str)]
        known += self.spec.heads.names if self.spec.heads else ()
        for name in self.dims:
            if name not in known:
                legal = "one of " + ", ".join(dict.fromkeys(known))
                raise expected(SpecError, "dimension", legal, name, nearest=closest(name, known))

    def _many(self, name: str, count: int, default: int, least: int = 1) -> numpy.ndarray:
        given = self.dims.get(name, default)
        legal = f"a number of at least {least}, (low, high), or a list of {count}"
        try:
            values = numpy.asarray(given)
            ok = values.dtype.kind in "iu" and (
                values.size == 0 or least <= values.min() <= values.max() < 1 << 31
            )
        except (ValueError, TypeError):
            ok = False
        if not ok or values.ndim > 2:
            raise expected(SpecError, name, legal, given)
        if values.ndim == 0:
            return numpy.full(count, values, numpy.int64)
        if isinstance(given, tuple) and len(given) == 2:
            if given[0] > given[1]:
                raise expected(SpecError, name, "(low, high) with low <= high", given, nearest=given[::-1])
            return self._random(name).integers(given[0], given[1], count, endpoint=True)
        if values.size != count:
            raise expected(SpecError, name, legal, given)
        return values.reshape(-1).astype(numpy.int64)

    def _one(self, name: str, default: int) -> int:
        given = self.dims.get(name, default)
        if isinstance(given, bool) or not isinstance(given, (int, numpy.integer)) or given < 1:
            raise expected(SpecError, name, "a number of at least 1", given, nearest=default)
        return int(given)

    def _extent(self, tensor: str, extent: int | str) -> int:
        if isinstance(extent, int):
            return extent
        if extent not in self.sizes and extent not in self.dims:
            raise SpecError(
                f"{extent}: expected the extent of {tensor!r} that is called so, as in {extent}=64"
            )
        if extent not in self.sizes:
            self.sizes[extent] = self._one(extent, 1)
        return self.sizes[extent]

    @staticmethod
    def _check_memory(name: str, numbers: int) -> None:
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if 6 * numbers > have / 4:
            raise SpecError(
                f"{name}: {numbers} numbers are too many for this machine, which has {have >> 30} GiB"
            )

    def _random(self, name: str) -> numpy.random.Generator:
        """Return a generator that depends only on the seed and the name, so that another tensor changes no draw."""
        return numpy.random.default_rng([self.seed, *name.encode()])

    def _classes(self) -> numpy.ndarray:
        if not self.spec.heads:
            return numpy.zeros(self.spec.kv_heads, numpy.int64)
        names, heads = self.spec.heads.names, self.spec.kv_heads
        counts = {name: self.dims[name] for name in names if name in self.dims}
        total = sum(counts.values())
        free = [i for i, name in enumerate(names) if name not in counts]
        if any(count < 0 for count in counts.values()) or total > heads or (not free and total != heads):
            raise expected(SpecError, ", ".join(counts), f"numbers of heads that give {heads} in all", counts)
        fixed = [i for i, name in enumerate(names) for _ in range(counts.get(name, 0))]
        turns = fixed + [free[i % len(free)] for i in range(heads - total)]
        return numpy.asarray(self._random("classes").permutation(turns) if counts else turns)

    # --- Operands -------------------------------------------------------------------------------------------

    def _members(self, instance: int, count: int) -> slice:
        """Return the sequences that see an instance."""
        first = -(-instance * self.batch // count)
        return slice(first, -(-(instance + 1) * self.batch // count))

    def _add_store(self, store: Store, ends: dict) -> None:
        instances, tokens = store.dims
        count = self.batch if instances == "batch" else self._one(instances, 1)
        if count > self.batch:
            raise expected(
                SpecError, instances, f"at most the {self.batch} sequences", count, nearest=self.batch
            )
        # [instances, lists]: a list of tokens for each head if they are ragged, else one for all.
        lists = self._heads(store) if store.ragged else 1
        lengths = self._many(tokens, count * lists, 512, least=0).reshape(count, lists)
        width = max(self.spec.head_dim, self.spec.value_dim)
        self._check_memory(store.name, int(lengths.sum()) * self._heads(store) // max(lists, 1) * width)
        longest = lengths.max(axis=1, initial=0)
        self.sizes |= {instances: count, tokens: int(longest.max())}
        seen_by = [ends[store.head_class]] if store.head_class else list(ends.values())
        pos0, rows = numpy.zeros(count, numpy.int64), numpy.zeros((count, 2), numpy.int64)
        for i in range(count):
            members = self._members(i, count)
            before = {int(position) for end in seen_by for position in end[members]}
            if len(before) > 1:
                raise SpecError(
                    f"{store.name}: expected sequences and head classes that share an instance to have as many tokens "
                    f"before it, got {sorted(before)}; put shared operands first"
                )
            pos0[i] = before.pop()
            for end in seen_by:
                end[members] = pos0[i] + longest[i]
            rows[i] = self.start[members.start], self.start[members.stop]
        self._add_tokens(store, lengths)
        self._put(store, "lengths", lengths if store.ragged else lengths[:, 0])
        self._put(store, "pos0", pos0)
        if instances != "batch":
            self._put(store, "rows", rows)

    def _align(self, name: str | None, own: numpy.ndarray, end: numpy.ndarray) -> None:
        """Move the last instance of a class that keeps fewer tokens, so that it ends where the sequence does: the class
        keeps the last tokens."""
        stores = [store for store in self.spec.operands if store.head_class == name]
        if name is None or not stores:
            return
        pos0 = self.tensors[f"{stores[-1].name}.pos0"]
        for i in range(len(pos0)):
            missing = {int(n) for n in (end - own)[self._members(i, len(pos0))]}
            if len(missing) > 1:
                raise SpecError(
                    f"{stores[-1].name}: expected an instance for each sequence, as other heads see more"
                )
            pos0[i] += missing.pop()

    def _heads(self, store: Store) -> int:
        """Return the number of heads that a store holds."""
        if not store.head_class:
            return self.spec.kv_heads
        return int((self.classes == self.spec.heads.names.index(store.head_class)).sum())

    def _add_tokens(self, store: Store, lengths: numpy.ndarray) -> None:
        """Choose a slot for every token of every list, and fill it."""
        spec, (count, lists) = self.spec, lengths.shape
        most = int(lengths.max(initial=0))
        random = self._random(f"{store.name}.places")
        suffix, unified = "", store.kind == "unified"
        if store.kind == "dense":
            shape: tuple[int, ...] = (count, most)
            first = numpy.arange(count) * most
        elif store.kind == "packed":
            longest = lengths.max(axis=1, initial=0)
            gaps = numpy.arange(count) % 3  # Between instances; none after the last.
            gaps[-1:] = 0
            first = numpy.concatenate([[0], numpy.cumsum(longest + gaps)])
            shape = (max(int(first[-1]), 1),)
            self._put(store, "start", first)
        else:
            page = store.page_size  # type: ignore[attr-defined]
            pages = -(-lengths // page)
            used = int(pages.sum() if unified else pages.sum(axis=0).max(initial=0))
            pool = used + used // 8 + 2
            table = numpy.full((count, lists, -(-most // page)), NO_PAGE)
            # Unified pages belong to no head: all heads take theirs from one pool.
            for heads_of in [range(lists)] if unified else [range(h, h + 1) for h in range(lists)]:
                order, listed = random.permutation(pool), int(pages[:, heads_of].sum())
                # The pool ends with a page that is read: a kernel that reads past its tokens leaves the pool.
                if listed:
                    last = int((order == pool - 1).argmax())
                    order[[last, listed - 1]] = order[[listed - 1, last]]
                free = iter(order)
                for i, h in itertools.product(range(count), heads_of):
                    table[i, h, : pages[i, h]] = [next(free) for _ in range(pages[i, h])]
            shape, suffix = (pool, page), "_pages"
            self._put(store, "block_table", table if store.ragged else table[:, 0])
        places = []
        for h in range(lists):
            instance = numpy.repeat(numpy.arange(count), lengths[:, h])
            token = numpy.concatenate([numpy.arange(n) for n in lengths[:, h]])
            if suffix:
                places.append(table[instance, h, token // page] * page + token % page)
            else:
                places.append(first[instance] + token)
        heads = self._heads(store)
        found = store.description(self.spec.kv_heads, spec.head_dim, spec.value_dim)
        views: dict[str, numpy.ndarray] = {}
        if unified:
            heads, places = 1, [numpy.concatenate(places)]
            views = page_views(numpy.full((shape[0], found.page_bytes), 0xFF, numpy.uint8), found)

        def put(part: str, lines: numpy.ndarray) -> None:
            """Store lines [..., heads, dim] of slots in the store's order."""
            if part in views:
                views[part].view(numpy.uint8)[:] = lines[:, :, 0].view(numpy.uint8)
                lines = views[part]
            elif found.heads_first and lines.ndim > 2:
                lines = numpy.ascontiguousarray(lines.swapaxes(1, 2))
            self.tensors[f"{store.name}.{part}"] = lines

        for part, dim, format in zip("kv", (spec.head_dim, spec.value_dim), store.formats(), strict=True):
            name = f"{store.name}.{part}{suffix}"
            if part == "v" and found.latent:
                continue  # A part of the keys.
            if format.is_plain:
                amplitude = self._amplitude(name)
                put(part + suffix, self._normal(name, (*shape, heads, dim), spec.dtype, places, amplitude))
                continue
            random, amplitude = self._random(name), self._amplitude(name)
            numbers = normal_numbers(random, (*shape, heads, dim), places) * amplitude
            codes, meta, scale = coded_numbers(
                random, describe_format(format, dim), numbers, float(amplitude)
            )
            if unified and format.per == "head":  # Any head's lines may be anywhere.
                meta = (meta * random.uniform(0.8, 1.25, self._heads(store))).astype(numpy.float32)
            put(part + suffix, codes)
            if format.rest:
                continue  # A line holds its scales.
            put(f"{part}_{'meta' if meta.dtype == numpy.float16 else 'scales'}", meta)
            if scale is not None:
                put(f"{part}_tensor_scale", scale)

    def _put(self, store: Store, part: str, values: numpy.ndarray) -> None:
        self.tensors[f"{store.name}.{part}"] = values.astype(numpy.int32)

    def _amplitude(self, name: str) -> numpy.float32:
        low, high = self.amplitudes
        drawn = self._random(f"{name}.amplitude").uniform(math.log(low), math.log(high))
        return numpy.float32(math.exp(drawn))

    def _queries(self, shape: tuple) -> numpy.ndarray:
        low, high = self.amplitudes
        amplitude = self._amplitude("q")
        if low < high:
            suffixes = [
                (store.name, "_pages" if store.kind in ("paged", "unified") else "")
                for store in self.spec.operands
            ]
            keys = max(float(self._amplitude(f"{name}.k{suffix}")) for name, suffix in suffixes)
            scale = self.spec.scale or self.spec.head_dim**-0.5
            amplitude = min(amplitude, numpy.float32(_USABLE / (keys * scale * self.spec.head_dim**0.5)))
        return self._normal("q", shape, self.spec.dtype, amplitude=amplitude)

    def _normal(
        self, name: str, shape: tuple, dtype: str, places: list | None = None, amplitude: Any = 1.0
    ) -> numpy.ndarray:
        self._check_memory(name, math.prod(shape))
        values = normal_numbers(self._random(name), shape, places) * numpy.float32(amplitude)
        return bfloat16_bits(values) if dtype == "bfloat16" else values.astype(dtype)


def _amplitudes(given: object) -> tuple[float, float]:
    low, high = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
    legal = f"a number from {_AMPLITUDES[0]:g} to {_AMPLITUDES[1]:g}, or (low, high) to draw from"
    for number in (low, high):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise expected(SpecError, "amplitude", legal, given)
    if not _AMPLITUDES[0] <= low <= high <= _AMPLITUDES[1]:
        raise expected(SpecError, "amplitude", legal, given)
    return float(low), float(high)
