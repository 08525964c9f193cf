# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over a cache that are captured once: tables of fixed capacity at fixed addresses, which a step only rewrites.

steps = cache.steps(kernel, sequences=64, rows=256, tokens=8192)

def launches():                                  # one graph: plan, append and attention of all layers
    plan = steps.plan()
    for i, layer in enumerate(model):
        steps.write(i, keys[i], values[i])       # [rows, kv_heads, head_dim]
        kernel.run(q[i], cache.layer(i), plan, out=out[i])

captured = steps.capture(launches)
steps.append([a, b], [100, 1])                   # a chunk of a prompt, and a token
steps.update([(a, 100), b])
captured.replay()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .. import _attn
from ..errors import PlanError, Uncopied, expected
from ..memory.devices import failed, get_device, stream_number
from ..memory.views import view_of
from ..run.device_plan import DevicePlan, DevicePlanner
from ..run.plan import Plan
from .appender import NewTokens, read_positions
from .batch import operands_of, row_groups
from .capture import Capture
from .change import CacheChange
from .integers import integers, new_tokens, whole
from .pages import look_rows, memory_of, parts_of_rows
from .rope import Norm, Rope
from .state import CacheState

_SECTOR = 16  # In words: addresses of tables are multiples of it.


class CacheSteps(Uncopied):
    """Steps that are captured once; `PagedCache.steps` returns it. `append`, `speculate` and `update` prepare the next
    step; launches of `plan`, `write` and `Kernel.run` run it, directly or captured. Errors change nothing."""

    _instead = "captured launches read its tables; make another with PagedCache.steps"

    def __init__(
        self,
        cache: CacheState,
        kernel: Any,
        sequences: int,
        rows: int,
        tokens: int,
        drafts: int,
        options: dict[str, int],
    ):
        self.cache: Any = cache
        """The PagedCache that made it."""
        self.kernel = kernel
        self.sequences = whole("sequences", sequences, 1)
        """The most sequences of a step; chains of drafts count as sequences."""
        self.rows = whole("rows", rows, 1)
        """The most rows of a step; also the most new tokens."""
        self.tokens = whole("tokens", tokens, 1)
        """The most tokens of a sequence."""
        self.drafts = whole("drafts", drafts, 0)
        """The most tokens of a path of a draft."""
        if self.rows > self.sequences * self.tokens:
            legal = f"at most sequences * tokens, {self.sequences * self.tokens}"
            raise expected(PlanError, "rows", legal, rows, nearest=self.sequences * self.tokens)
        if cache._own_stores:
            of = "kind of layers" if cache._kinds else "head class"
            raise PlanError(f"steps: the cache has a store for each {of}, which are planned on the host")
        (self._run,) = cache._runs[0]
        self._operands = operands_of(cache, kernel)
        self._native = self._make_tables()
        self._allocate()
        self._planner = DevicePlanner(
            self._plan_largest(options), max(self.tokens, self.drafts), kernel._stream(None)
        )
        self._planner._plan.batch = self
        self._mover = self._run.mover(0)
        if self._mover.room[0] < self.rows:
            self._mover.reserve(self.rows, 0, stream_number(cache.device, None))
        self._taken = self._unrun = 0
        self.used_rows = 0
        """The number of rows of the step in the tables."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tables, which an update copies at most."""
        return self._nbytes

    @property
    def tables(self) -> dict[str, object]:
        """The int32 tensors that launches read, by name: `new_tokens` (their number, and from the ninth word on their
        slots), `q_start`, and of each operand lengths, first positions and block table."""
        return dict(self._tables)

    # --- The next step ---------------------------------------------------------------------------------------

    def append(self, nodes: int | Sequence[int], tokens: int | Sequence[int] = 1) -> None:
        """Append tokens as `PagedCache.append` does; launches of `write` write them. Their rows follow earlier new
        tokens of the step."""
        cache = self.cache
        added = cache._ask(new_tokens, nodes, tokens)
        rows = added.tokens
        self._check_room(rows)
        cache._change(self._native.append, cache._native, added)
        self._count(rows)

    def speculate(self, leaf: int, parents: Sequence[int]) -> None:
        """Add a draft as `PagedCache.speculate` does, for the step. Tokens of a chain are given one after the other."""
        parents = integers("parents", parents)
        self._check_room(len(parents))
        self.take(self.cache.speculate(leaf, parents))

    def take(self, change: CacheChange) -> None:
        """Add the rows of another change, of which nothing was written, to the step."""
        cache = self.cache
        if not isinstance(change, CacheChange) or change._cache is not cache:
            raise expected(PlanError, "change", "a change of this cache", change)
        change._check_alive()
        if len(change._missing) != (cache.layers if change.rows else 0):
            raise PlanError("change: some of its layers were written")
        self._check_room(change.rows)
        self._ask(self._native.take, cache._native, change._movement)
        change.skip()
        self._count(change.rows)

    def update(self, requests: Sequence[int | tuple], *, stream: object = None) -> int:
        """Write the tables of the step: query rows as of `PagedCache.batch`, one request after the other, and the new
        tokens since the last update. Makes one copy from pinned memory, in the stream's order; neither waits nor
        allocates. Returns the number of rows; launches leave later rows unchanged. PlanError if the step exceeds the
        capacity."""
        if self._unrun:
            raise PlanError(
                f"steps: the {self._unrun} new tokens of the last update were not written; replay it, or call ran() if "
                "launches of your own wrote them"
            )
        number = stream_number(self.cache.device, stream)
        given = self.cache._native, row_groups(requests), self._address, self._nbytes, number
        self.used_rows = self._ask(self._native.update, *given)
        self._taken, self._unrun = 0, self._taken
        return self.used_rows

    def ran(self) -> None:
        """Declare that the step was run, if a Capture did not run it."""
        self._unrun = 0
        if not self._taken and self.cache._holder is self:
            self.cache._holder = None

    # --- Launches --------------------------------------------------------------------------------------------

    def plan(self, *, stream: object = None) -> DevicePlan:
        """Launch the kernel that plans the step, for `Kernel.run` of all layers; later runs use this plan."""
        return self._planner.plan(self._plan_tables, stream=stream)

    def write(
        self,
        layer: int,
        k: object,
        v: object = None,
        *,
        q: object = None,
        out: object = None,
        rope: Rope | None = None,
        norm: Norm | None = None,
        positions: object = None,
        stream: object = None,
    ) -> Any:
        """Launch the append of the step's new tokens in a layer. `k`, `v`: [rows, kv_heads, head_dim] and [rows,
        kv_heads, value_dim], as many rows as the capacity; it reads as many as there are new tokens. A latent cache takes
        no `v`. The rest is as of
        `CacheChange.write`; `positions`, int32 or int64 [rows], are needed beside `rope`, and read when the launch
        runs."""
        cache, keep = self.cache, []  # type: ignore[var-annotated]
        number = stream_number(cache.device, stream)
        layer = cache._layer_number(layer)
        if not (rope is None and norm is None and q is None):
            run = self._run
            tokens = NewTokens(run.heads, run.shape, self.rows, k, v, q, out, rope, norm, number)
            if rope is not None:
                if positions is None:
                    raise expected(PlanError, "positions", f"int32 or int64 [{self.rows}] beside rope", None)
                tokens.use_positions(read_positions(None, positions, self.rows, cache.device))
            tokens.use_list(self._tables["new_tokens"])
            return tokens.write(run.pages_of(layer), self.rows)
        views = [
            look_rows(name, tensor, (self.rows, cache.kv_heads, dim), self._run.shape, number, keep)
            for name, tensor, dim in parts_of_rows(cache._stored[0], k, v)
        ]
        self._ask(
            self._mover.kernels.append,
            *self._new_tokens,
            **{name: view[0] for name, view in zip("kv", views, strict=False)},
            rows=self.rows,
            layer=layer,
            stream=number,
        )

    def capture(self, launches: Callable[[], object]) -> Capture:
        """Capture a function whose launches serve every step from now on: on a GPU as a CUDA graph of PyTorch, on the
        host by calling it again. It is called twice, with the tables as they are (empty ones, before the first update).
        It must depend on the step only through tensors."""
        return Capture(self, launches)

    @property
    def fault(self) -> str:
        """The error that the planner found in the step that was run last; "" if there is none. Waits for the device."""
        return DevicePlan(self._planner, self._plan_tables, 0).fault

    # --- Making the tables
    # -----------------------------------------------------------------------------------

    def _shown_to(self, plan: Plan) -> tuple:
        """Return the parts that operands show, for CacheLayer."""
        return self._operands

    def _check_current(self) -> None:
        """Refuse unless the tables agree with the cache's nodes of the last update."""
        self._ask(self._native.check)

    def _make_tables(self) -> _attn.StepTables:
        cache, kernel = self.cache, self.kernel
        shown = dict(zip(kernel._operands, self._operands, strict=True))
        names = [operand["argument"] for operand in kernel.manifest["operands"]]
        if len(set(names)) != len(names):
            raise PlanError("steps: expected a kernel whose operands are different arguments")
        self._pages = {}
        for name in names:
            _, nodes, drafts, page = shown[name]
            if not nodes and not self.drafts:
                legal = f"1 or more, as {name!r} shows drafts"
                raise expected(PlanError, "drafts", legal, self.drafts, nearest=1)
            self._pages[name] = -(-self.tokens // page) if nodes else self.drafts
        operands = [(*shown[name][:3], self._pages[name]) for name in names]
        named = dict(sequences=self.sequences, rows=self.rows, new_tokens=self.rows, operands=operands)
        return self._ask(_attn.StepTables, kernel._native, cache._native, **named)

    def _allocate(self) -> None:
        words = self._native.words
        self._nbytes = 4 * words
        torch = sys.modules.get("torch")
        memory: Any = memory_of((words + _SECTOR,), "i32", self.cache.device, torch)
        memory[:] = 0
        get_device(self.cache.device).synchronize(
            stream_number(self.cache.device, None)
        )  # Updates may use another stream.
        skipped = -(view_of("tables", memory, 0, [])[0] // 4) % _SECTOR
        self._memory = memory[skipped : skipped + words]
        self._address = view_of("tables", self._memory, 0, [])[0]
        self._tables = {}
        for name, (first, count) in self._native.places.items():
            table = self._memory[first : first + count]
            operand, _, kind = name.partition(".")
            self._tables[name] = (
                table.reshape((self.sequences, self._pages[operand])) if kind == "block_table" else table
            )
        self._plan_tables = {name: table for name, table in self._tables.items() if name != "new_tokens"}
        first, count = self._native.places["new_tokens"]
        self._new_tokens = self._address + 4 * first, 4 * count

    def _plan_largest(self, options: dict[str, int]) -> Plan:
        """Plan the largest step on the host: the most rows and sequences, all of the greatest length."""
        kernel, cache = self.kernel, self.cache
        count = self.sequences
        batch: dict[str, object] = {
            "q": (kernel.manifest["dtype"], (self.rows, kernel.manifest["q_heads"], cache.head_dim)),
            "q_start": numpy.array([self.rows * i // count for i in range(count + 1)], numpy.int32),
        }
        if "sink_logits" in kernel.slots:
            batch["sink_logits"] = ("f32", (kernel.manifest["q_heads"],))
        ends = numpy.full(count, self.tokens + self.drafts, numpy.int32)
        starts = numpy.diff(batch["q_start"])  # type: ignore[call-overload]
        batch["q_pos"] = numpy.concatenate(
            [numpy.arange(end - rows, end, dtype=numpy.int32) for end, rows in zip(ends, starts, strict=True)]
        )
        for name, operand in zip(kernel._operands, self._operands, strict=True):
            if operand is None:
                raise PlanError(f"{name}: no row sees anything of this operand")
            _, nodes, _, page = operand
            for part, (_, signature) in zip(kernel._parts[name], self._run.views_at(0, page), strict=True):
                batch[part] = signature[0], signature[1]
            length, pos0 = (self.tokens, 0) if nodes else (self.drafts, self.tokens)
            batch[f"{name}.lengths"] = numpy.full(count, length, numpy.int32)
            batch[f"{name}.pos0"] = numpy.full(count, pos0, numpy.int32)
            batch[f"{name}.block_table"] = numpy.zeros((count, self._pages[name]), numpy.int32)
        return kernel.plan(batch, strategy="by-query", **options)

    def _count(self, tokens: int) -> None:
        self._taken += tokens
        if tokens:
            self.cache._holder = self

    def _check_room(self, tokens: int) -> None:
        if self.cache._holder not in (None, self):
            raise PlanError("new tokens: the cache has some in other tables, whose step was not run")
        if self._taken + tokens > self.rows:
            raise PlanError(
                f"new tokens: {self._taken + tokens} in a step where there is room for {self.rows}; nearest legal: "
                f"{self.rows - self._taken} here"
            )

    @staticmethod
    def _ask(call, *arguments: object, **named: object):
        try:
            return call(*arguments, **named)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        except (TypeError, OverflowError) as error:
            raise PlanError(f"steps: {str(error).partition(chr(10))[0]}") from None

    def __repr__(self) -> str:
        return (
            f"<attn.CacheSteps of {self.kernel.entry}: up to {self.sequences} sequences of {self.tokens} tokens, "
            f"{self.rows} rows; {self.nbytes} bytes of tables>"
        )
