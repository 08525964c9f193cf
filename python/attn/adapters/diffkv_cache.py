# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache that compresses itself behind the interface of Transformers' caches.

What a policy keeps of each KV head's tokens lies in two pools, of many bits and of few. To both, each KV head of a sequence
in a layer is a list of its own, so that heads keep as much as they need. Attention reads the two pools as two operands of
one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..cache.policy import HIGH, LOW, Kept, Policy
from ..cache.token_pool import Lines, TokenPool
from ..describe.stores import Paged
from ..errors import OutOfPages, PlanError, TensorError, expected
from .transformers_cache import PagedLayer
from .transformers_config import check_config, check_formats

HIGH_FORMATS = {"key": "int8", "value": "int4"}
LOW_FORMATS = {"key": "int4", "value": "int2"}


@dataclass
class Row:
    """What a row changed in the lists of a layer, and what the policy knew of them before it."""

    at: int
    """Its column of the batch."""
    layer: int
    kept: Kept
    added: tuple[list[int], list[int]] = ((), ())
    """Lists, and the position of the new token in each."""
    removed: list[tuple[TokenPool, int, int, Lines]] = field(default_factory=list)
    """Of each token that went, where it was, its list and position, and its codes."""
    downgraded: tuple[Sequence[int], Sequence[int], Lines] | None = None
    """Lists and positions of tokens that are LOW since, and their codes before."""


class DiffKVCache(Cache):
    """Keys and values of a model in two precisions, as a policy decides for every KV head, for
    `generate(..., past_key_values=...)` with attn_implementation="attn", on the CPU.

    config     of the model: a decoder whose layers see everything or a sliding window, whose tokens go when they leave it
    policy     of attn.kv_policy: DiffKV, SnapKV, Streaming heads beside one of these, or your own
    pages      of tokens that are HIGH, shared by all layers, sequences and KV heads; a page holds `page_size` tokens of one
    low_pages  of those that are LOW; by default as many
    high, low  how they are stored: key="int8", value="int4", key_group, ... as of attn.Paged; {}: as they come

    A prompt comes at once; what comes behind it is generated, a row at a time. A step asks for room for one more token of
    either kind in each list. The kernel that attends tells what the kept tokens were worth, too. Rows of the last forward
    pass can be taken back, as assisted generation does (`crop`), with all that was decided by them. Beams, and learned sinks,
    are refused. Errors: OutOfPages, which changes nothing in a step and empties the cache in a prompt; PlanError, TensorError.
    """

    def __init__(
        self,
        config: object,
        policy: Policy,
        *,
        pages: int,
        low_pages: int | None = None,
        page_size: int = 16,
        high: dict | None = None,
        low: dict | None = None,
    ):
        config = config.get_text_config(decoder=True)
        check_config(config, "DiffKVCache")
        if not isinstance(policy, Policy):
            raise expected(PlanError, "policy", "one of attn.kv_policy, as DiffKV(...)", policy)
        self.policy, self.length = policy, 0
        self._layer_count, self._pages = (
            config.num_hidden_layers,
            (pages, pages if low_pages is None else low_pages),
        )
        for name, count in zip(("pages", "low_pages"), self._pages, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise expected(PlanError, name, "a number of pages from 1 on", count, nearest=1)
        formats = (HIGH_FORMATS if high is None else high, LOW_FORMATS if low is None else low)
        self.stores = tuple(
            Paged(name=name, page_size=page_size, **check_formats(given, "DiffKVCache"))
            for name, given in zip(("high", "low"), formats, strict=True)
        )
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        for layer, head in sorted(policy.named_heads()):
            if layer >= self._layer_count or head >= heads:
                nearest = min(layer, self._layer_count - 1), min(head, heads - 1)
                legal = f"(layer, head) of {self._layer_count} layers of {heads} KV heads"
                raise expected(PlanError, "policy", legal, (layer, head), nearest=nearest)
        self._check_windows(heads * self._layer_count)
        self.pools: tuple[TokenPool, ...] = ()
        """High and low, once there are keys."""
        self.kept: list[Kept | None] = [None] * self._layer_count
        """Of each layer: a list for each KV head of each sequence."""
        self.shape: tuple[int, int] = (0, 0)
        """Sequences and KV heads."""
        self.step: Any = None
        self.journal: list[Row] = []
        """What the rows of the last forward pass changed, in all layers."""
        self.kernels: dict[tuple, tuple] = {}
        super().__init__(layers=[DiffKVLayer(self, index) for index in range(self._layer_count)])

    def _check_windows(self, lists: int) -> None:
        """A pool that cannot hold the windows of one sequence serves nobody."""
        needed = lists * -(-(self.policy.window + 1) // self.stores[0].page_size)
        if self._pages[0] < needed:
            legal = f"at least {needed}: windows of {self.policy.window} tokens and a new one, of {lists} lists of a sequence"
            raise expected(PlanError, "pages", legal, self._pages[0], nearest=needed)

    def begin(self, batch: int, key: Tensor, value: Tensor) -> None:
        """The first keys and values say how large those of all layers are."""
        if key.device.type != "cpu":
            raise TensorError(f"past_key_values: DiffKVCache lies in CPU memory, got keys on {key.device}")
        if not self.pools:
            self.shape = batch, key.shape[1]
            lists, dims = self._layer_count * batch * key.shape[1], (key.shape[3], value.shape[3])
            self._dims = dims
            self._check_windows(lists)
            dtype = "float16" if key.dtype == torch.float16 else "bfloat16"
            self.pools = tuple(
                TokenPool(f"past_key_values: {store.name}", store.resolved(dtype=dtype), pages, lists, dims)
                for store, pages in zip(self.stores, self._pages, strict=True)
            )
        found = key.shape[1], key.shape[3], value.shape[3]
        if (batch, *found) != (*self.shape, *self._dims):
            held = f"{self.shape[0]} sequences of {self.shape[1]} KV heads of {self._dims}, as in layer 0"
            raise TensorError(f"past_key_values: expected {held}, got {batch} of {found[0]} of {found[1:]}")

    def lists(self, layer: int) -> range:
        """Those of a layer, sequence by sequence."""
        count = self.shape[0] * self.shape[1]
        return range(layer * count, (layer + 1) * count)

    def heads(self, layer: int) -> list[tuple[int, int]]:
        """(layer, KV head) of each list."""
        return [(layer, head) for _ in range(self.shape[0]) for head in range(self.shape[1])]

    def store_prompt(self, layer: int, keys: Tensor, values: Tensor, kept: Kept) -> None:
        """keys, values: [lists, tokens, features]. In case of exhaustion the cache is empty again."""
        first = self.lists(layer).start
        try:
            for pool, level in zip(self.pools, (HIGH, LOW), strict=True):
                owner, position = (kept.level == level).nonzero(as_tuple=True)
                lines = pool.encode(keys[owner, position], values[owner, position])
                pool.put((owner + first).tolist(), position.tolist(), lines)
        except OutOfPages as error:
            self.reset()
            raise OutOfPages(str(error).replace("nothing was changed", "the cache is empty again")) from None
        self.kept[layer] = kept

    def require_step(self) -> None:
        """OutOfPages unless every list has room for one more token of either kind."""
        for pool in self.pools:
            pool.require(sum(pool.pages_for(index, 1) for index in range(len(pool.tables))))

    def begin_row(self, layer: int, at: int, lines: Lines, window: int) -> None:
        """A new token in each list of a layer, HIGH; those that have left the layer's window (0: it has none) go. `at`: the
        row's column of the batch."""
        kept, lists, high = self.kept[layer], self.lists(layer), self.pools[0]
        assert kept is not None
        self.journal.append(Row(at, layer, kept.copy()))
        if window:
            left = kept.lengths - window
            self._remove(layer, left.tolist())
            column, inside = left.clamp(min=0)[:, None], (left >= 0)[:, None]
            for tensor in (kept.level, kept.score):
                tensor.scatter_(1, column, tensor.gather(1, column).masked_fill(inside, 0))
        high.put(lists, kept.lengths.tolist(), lines)
        self.journal[-1].added = list(lists), kept.lengths.tolist()

    def apply(self, layer: int, pruned: Tensor, downgraded: Tensor) -> None:
        """What a step of the policy decided, by the row that began last."""
        self._remove(layer, pruned.tolist())
        high, low = self.pools
        chosen = [pair for pair in zip(self.lists(layer), downgraded.tolist(), strict=True) if pair[1] >= 0]
        if chosen:
            owners, positions = zip(*chosen, strict=True)
            lines = high.take(owners, positions)
            low.put(owners, positions, low.encode(high.decode(lines, "k"), high.decode(lines, "v")))
            self.journal[-1].downgraded = owners, positions, lines

    def _remove(self, layer: int, positions: list[int]) -> None:
        """At most one token of each list, -1 for none, wherever it is."""
        for index, position in zip(self.lists(layer), positions, strict=True):
            pool = next((pool for pool in self.pools if position >= 0 and pool.holds(index, position)), None)
            if pool is not None:
                self.journal[-1].removed.append((pool, index, position, pool.take([index], [position])))

    def _undo(self, row: Row) -> None:
        """What that row changed; no later one of its layer is left."""
        high, low = self.pools
        high.take(*row.added)
        if row.downgraded is not None:
            owners, positions, lines = row.downgraded
            low.take(owners, positions)
            high.put(owners, positions, lines)
        for pool, index, position, lines in row.removed:
            pool.put([index], [position], lines)
        self.kept[row.layer] = row.kept

    # --- Questions -------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, object]:
        """bytes (of the tokens that are kept), page_bytes (of the pages that hold them), plain_bytes (had all tokens stayed
        in 16 bits), compression (plain_bytes over bytes); and int64 [layers, sequences, KV heads] of tokens: high, low and
        pruned."""
        if not self.pools or self.kept[-1] is None:
            raise PlanError("past_key_values: expected a prompt before stats, the cache is empty")
        counts = [kept.counts() for kept in self.kept]
        tokens = {
            name: torch.stack([each[name] for each in counts]).view(self._layer_count, *self.shape)
            for name in ("high", "low", "pruned")
        }
        plain = 2 * sum(self._dims) * int(sum(each.sum() for each in tokens.values()))
        stored = sum(
            pool.token_bytes * int(tokens[name].sum()) for pool, name in zip(self.pools, tokens, strict=False)
        )
        paged = sum(pool.token_bytes * pool.page_size * (pool.pages - len(pool.free)) for pool in self.pools)
        found = {
            "bytes": stored,
            "page_bytes": paged,
            "plain_bytes": plain,
            "compression": plain / max(stored, 1),
        }
        return found | {name: each.numpy() for name, each in tokens.items()}

    def levels(self, sequence: int = 0) -> numpy.ndarray:
        """How every token of a sequence is kept: int8 [layers, KV heads, tokens], of attn.kv_policy.HIGH, LOW, PRUNED."""
        if not self.pools or self.kept[-1] is None:
            raise PlanError("past_key_values: expected a prompt before levels, the cache is empty")
        if not 0 <= sequence < self.shape[0]:
            legal = f"a number from 0 to {self.shape[0] - 1}"
            raise expected(PlanError, "sequence", legal, sequence, nearest=0)
        rows = slice(sequence * self.shape[1], (sequence + 1) * self.shape[1])
        tokens = int(self.kept[0].lengths[rows.start])
        return torch.stack([kept.level[rows, :tokens] for kept in self.kept]).numpy()

    def svg(self, sequence: int = 0) -> str:
        """A picture of `levels`: a line for each KV head, a column for each token."""
        from ..describe.level_pictures import draw_levels

        return draw_levels(self.levels(sequence), self.stats())

    # --- What Transformers asks ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Gives all pages back; the next prompt may be of another batch."""
        self.pools, self.shape, self.length, self.step, self.journal = (), (0, 0), 0, None, []
        self.kept = [None] * self._layer_count
        self.kernels.clear()

    def crop(self, max_length: int) -> None:
        """Takes rows back, with all that was decided by them: some of the last forward pass, for what came before is not
        remembered. Errors, before anything changes: PlanError; OutOfPages, where there is no room for what they removed."""
        length = max_length if max_length >= 0 else self.length + max_length
        rows = [row for row in self.journal if row.at >= length]
        first = min((row.at for row in self.journal), default=self.length)
        if length < first:
            legal = f"at least {first}, where the last forward pass behind the prompt began"
            raise expected(PlanError, "past_key_values: crop", legal, length, nearest=first)
        for pool in self.pools:
            pool.require(sum(each[0] is pool for row in rows for each in row.removed))
        for row in reversed(rows):
            self._undo(row)
        self.journal = [row for row in self.journal if row.at < length]
        self.length, self.step = min(self.length, length), None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """PlanError: sequences share nothing."""
        self._refuse("beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """PlanError, unless there is one of each."""
        if repeats != 1:
            self._refuse("repeated sequences")

    def batch_select_indices(self, indices: Tensor) -> None:
        """PlanError: sequences stay together."""
        self._refuse("a choice of sequences")

    def _refuse(self, what: str) -> None:
        raise PlanError(
            f"past_key_values: {what}: DiffKVCache does not serve it; take attn.transformers.PagedCache"
        )


class DiffKVLayer(PagedLayer):
    """A layer of it."""

    cache: DiffKVCache
