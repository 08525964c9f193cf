# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache that compresses itself, with the interface of Transformers' caches.

The tokens that a policy keeps of each KV head lie in pages that all heads share, of high and of low precision. Each KV
head of a sequence in a layer is a list of its own, so that heads keep as much as they need. Attention reads the two
precisions as two operands of one kernel. Lists, pages and the policy's state are tensors on the model's device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from .._attn import Failure
from ..cache.list_pages import Dropped, ListPages
from ..cache.policy import HIGH, LOW, NOTHING, Kept, Policy, check_named_heads, check_policy
from ..cache.token_lists import HIGH_END, LOW_END
from ..describe.stores import Unified
from ..errors import OutOfPages, PlanError, TensorError, Uncopied, expected
from ..memory.dtypes import in_python
from ..memory.page_sizes import is_page_size
from .transformers_cache import PagedLayer
from .transformers_config import CACHE, check_config, check_formats, kept_columns

HIGH_FORMATS = {"key": "int8", "value": "int4"}
LOW_FORMATS = {"key": "int4", "value": "int2"}


@dataclass
class Row:
    """The changes of one row to the lists of a layer, and the policy's state of the lists before it."""

    at: int
    """The row's column of the batch."""
    layer: int
    kept: Kept
    dropped: list[Dropped | Tensor] = field(default_factory=list)
    """The tokens that went, in order. Tensors, bool [lists], stand for tokens that came: the new tokens, and after them
    those that became LOW."""


class DiffKVCache(Uncopied, Cache):
    """Keys and values of a model in two precisions, as a policy decides for every KV head. Pass it as `generate(...,
    past_key_values=...)` to a model with attn_implementation="attn"; it lives on the model's device.

    config     of the model: a decoder whose layers see everything or a sliding window; tokens are freed when they leave it
    policy     of attn.kv_policy: DiffKV, SnapKV, Streaming heads beside one of these, or your own
    pages      shared by all layers, sequences and KV heads: a page holds `page_size` HIGH tokens of one KV head, or twice as
               many LOW ones where that is a page size
    tokens     of the longest sequence; by default the model's max_position_embeddings
    high, low  storage formats: key="int8", value="int4", key_group, ... as of attn.Paged; {}: the model's dtype

    A prompt comes in one forward pass; later tokens are generated, a row at a time. A forward pass reserves pages for
    its rows in each list, at either precision. The kernel that computes attention also computes the significance of the
    kept tokens. Rows of the last forward pass can be taken back with all their decisions, as assisted generation does
    (`crop`). After a prompt the forward pass waits for the device once, to learn whether there were enough pages. Beams
    and learned sinks are refused. Raises OutOfPages, which changes nothing in a step and empties the cache in a prompt;
    PlanError, TensorError.
    """

    _instead = (
        "its lists of tokens share nothing; read the prompt again, or take attn.transformers.PagedCache"
    )

    def __init__(
        self,
        config: object,
        policy: Policy,
        *,
        pages: int,
        page_size: int = 16,
        tokens: int | None = None,
        high: dict | None = None,
        low: dict | None = None,
    ):
        config = config.get_text_config(decoder=True)
        check_config(config, "DiffKVCache")
        check_policy(policy)
        self.policy, self.length = policy, 0
        self._layer_count = config.num_hidden_layers
        self._tokens = config.max_position_embeddings if tokens is None else tokens
        self._pages = pages
        for name, count in (("pages", pages), ("tokens", self._tokens)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise expected(PlanError, name, f"a number of {name} from 1 on", count, nearest=1)
        formats = (HIGH_FORMATS if high is None else high, LOW_FORMATS if low is None else low)
        self.stores = tuple(
            Unified(name=name, page_size=page, **check_formats(given, "DiffKVCache"))
            for name, page, given in zip(
                ("high", "low"),
                (page_size, page_size * (1 + is_page_size(2 * page_size))),
                formats,
                strict=True,
            )
        )
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        check_named_heads(policy, self._layer_count, heads)
        self._check_windows(heads * self._layer_count)
        self.lists: ListPages | None = None
        """A list for each KV head of each sequence, in each layer; None until there are keys."""
        self.kept: list[Kept | None] = [None] * self._layer_count
        """The policy's state of each layer's lists."""
        self.shape: tuple[int, int] = (0, 0)
        """The number of sequences, and of KV heads."""
        self.step: Any = None
        self.journal: list[Row] = []
        """The changes of the last forward pass's rows, in all layers."""
        self.most = 0
        """No list has seen more tokens than this."""
        self.kernels: dict[tuple, Any] = {}
        super().__init__(layers=[DiffKVLayer(self, index) for index in range(self._layer_count)])

    def _check_windows(self, lists: int) -> None:
        """Refuse a pool that cannot hold the windows of one sequence."""
        needed = lists * -(-(self.policy.window + 1) // self.stores[0].page_size)
        if self._pages < needed:
            legal = f"at least {needed}: windows of {self.policy.window} tokens and a new one, of {lists} lists of a sequence"
            raise expected(PlanError, "pages", legal, self._pages, nearest=needed)

    def begin(self, batch: int, key: Tensor, value: Tensor) -> None:
        """Make the pool. The first keys and values give the sizes and the device of all layers; later ones are compared
        with them."""
        if self.lists is None:
            self.shape = batch, key.shape[1]
            self._dims = dims = (key.shape[3], value.shape[3])
            self._check_windows(self._layer_count * batch * key.shape[1])
            dtype = "f16" if key.dtype == torch.float16 else "bf16"
            self.lists = ListPages(
                [self._settled(store, dims, dtype) for store in self.stores],
                pages=self._pages,
                layers=self._layer_count,
                lists=batch * key.shape[1],
                tokens=self._tokens,
                dims=dims,
                dtype=dtype,
                device="host" if key.device.type == "cpu" else str(key.device),
            )
        found = key.shape[1], key.shape[3], value.shape[3]
        if (batch, *found) != (*self.shape, *self._dims):
            held = f"{self.shape[0]} sequences of {self.shape[1]} KV heads of {self._dims}, as in layer 0"
            raise TensorError(f"{CACHE}: expected {held}, got {batch} of {found[0]} of {found[1:]}")

    @staticmethod
    def _settled(store: Unified, dims: tuple[int, int], dtype: str) -> Unified:
        try:
            settled = store.settled(*dims)
        except Failure as failure:
            raise TensorError(f"{CACHE}: {store.name}: {in_python(failure.message)}") from None
        return settled.resolved(dtype="float16" if dtype == "f16" else "bfloat16")  # type: ignore[return-value]

    def heads(self, layer: int) -> list[tuple[int, int]]:
        """Return (layer, KV head) of each list."""
        return [(layer, head) for _ in range(self.shape[0]) for head in range(self.shape[1])]

    def store_prompt(self, layer: int, keys: Tensor, values: Tensor, kept: Kept) -> None:
        """Store a prompt's keys and values, [lists, tokens, features]. OutOfPages empties the cache."""
        assert self.lists is not None
        try:
            self.lists.prompt(layer, [kept.level == HIGH, kept.level == LOW], keys, values)
        except OutOfPages as error:
            self.reset()
            said = str(error).replace("nothing was changed", "the cache is empty again")
            raise OutOfPages(f"{CACHE}: {said}") from None
        self.kept[layer] = kept

    def _is_unfinished(self) -> bool:
        return self.step is not None and len(self.step.ended) < self._layer_count

    def check_finished(self) -> None:
        """Raise a PlanError if a layer has not seen the last forward pass, so that its lists are shorter than others."""
        if not self._is_unfinished():
            return
        missing = sorted(set(range(self._layer_count)) - self.step.ended)
        mend = (
            "reset() the cache"
            if self.step.is_prompt
            else f"take its tokens back with crop({self.step.begin}), or reset() the cache"
        )
        raise PlanError(f"{CACHE}: the last forward pass did not reach layers {missing}: {mend}")

    def require_rows(self, rows: int) -> None:
        """Raise OutOfPages unless every list can hold so many more tokens at either precision."""
        assert self.lists is not None
        try:
            self.lists.reserve(rows)
        except (OutOfPages, PlanError) as error:
            raise type(error)(f"{CACHE}: {error}") from None

    def begin_row(self, layer: int, at: int, keys: Tensor, values: Tensor, window: int) -> None:
        """Add a new HIGH token to each list of a layer, and remove tokens that have left the layer's window (0: it has
        none). `at`: the row's column of the batch. `keys`, `values`: [lists, features]."""
        kept = self.kept[layer]
        assert kept is not None and self.lists is not None
        self.journal.append(Row(at, layer, kept.copy()))
        if window:
            left = kept.lengths - window
            self._remove(layer, torch.where(left >= 0, left, NOTHING))
            column, inside = left.clamp(min=0)[:, None], (left >= 0)[:, None]
            for tensor in (kept.level, kept.score):
                tensor.scatter_(1, column, tensor.gather(1, column).masked_fill(inside, 0))
        self.lists.put(layer, kept.lengths, keys, values)
        self.journal[-1].dropped.append(torch.ones_like(kept.lengths, dtype=torch.bool))

    def apply(self, layer: int, pruned: Tensor, downgraded: Tensor) -> None:
        """Apply the decisions of a step of the policy to the row that began last."""
        lists = self.lists
        assert lists is not None
        self._remove(layer, pruned)
        place = lists.find(layer, HIGH_END, downgraded, self.most)
        lists.demote(layer, place)
        self.journal[-1].dropped += [place >= 0, lists.drop(layer, HIGH_END, place)]

    def _remove(self, layer: int, positions: Tensor) -> None:
        """Remove at most one token of each list, by position, -1 for none, in either precision."""
        assert self.lists is not None
        for end in (HIGH_END, LOW_END):
            place = self.lists.find(layer, end, positions, self.most)
            self.journal[-1].dropped.append(self.lists.drop(layer, end, place))

    def _undo(self, row: Row) -> None:
        """Undo the changes of a row; later rows of its layer must be undone already."""
        assert self.lists is not None
        new = next((index for index, each in enumerate(row.dropped) if isinstance(each, Tensor)), None)
        for index, each in reversed(list(enumerate(row.dropped))):
            if isinstance(each, Dropped):
                self.lists.bring_back(row.layer, each)
            else:
                self.lists.take_back(row.layer, HIGH_END if index == new else LOW_END, each)
        self.kept[row.layer] = row.kept

    # --- Questions -------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, object]:
        """Return bytes (of the kept tokens), page_bytes (of the pages that hold them), plain_bytes (if all tokens had
        stayed in 16 bits), compression (plain_bytes over bytes); and int64 [layers, sequences, KV heads] of tokens:
        high, low and pruned."""
        if self.lists is None or self.kept[-1] is None:
            raise PlanError(f"{CACHE}: expected a prompt before stats, the cache is empty")
        counts = [kept.counts() for kept in self.kept]
        tokens = {
            name: torch.stack([each[name] for each in counts]).view(self._layer_count, *self.shape).cpu()
            for name in ("high", "low", "pruned")
        }
        plain = 2 * sum(self._dims) * int(sum(each.sum() for each in tokens.values()))
        sizes = [end.token_bytes for end in self.lists.ends]
        stored = sum(size * int(tokens[name].sum()) for size, name in zip(sizes, tokens, strict=False))
        pool = self.lists.pool
        paged = self.lists.page_bytes * (pool.pages - pool.free_pages())
        found = {
            "bytes": stored,
            "page_bytes": paged,
            "plain_bytes": plain,
            "compression": plain / max(stored, 1),
        }
        return found | {name: each.numpy() for name, each in tokens.items()}

    def levels(self, sequence: int = 0) -> numpy.ndarray:
        """Return how every token of a sequence is kept: int8 [layers, KV heads, tokens], of attn.kv_policy.HIGH, LOW,
        PRUNED."""
        if self.lists is None or self.kept[-1] is None:
            raise PlanError(f"{CACHE}: expected a prompt before levels, the cache is empty")
        if not 0 <= sequence < self.shape[0]:
            legal = f"a number from 0 to {self.shape[0] - 1}"
            raise expected(PlanError, "sequence", legal, sequence, nearest=0)
        rows = slice(sequence * self.shape[1], (sequence + 1) * self.shape[1])
        tokens = int(self.kept[0].lengths[rows.start])
        return torch.stack([kept.level[rows, :tokens] for kept in self.kept]).cpu().numpy()

    def svg(self, sequence: int = 0) -> str:
        """Return a picture of `levels` as SVG text: a line for each KV head, a column for each token."""
        from ..describe.level_pictures import draw_levels

        return draw_levels(self.levels(sequence), self.stats())

    # --- The interface of Transformers
    # -------------------------------------------------------------------------

    def reset(self) -> None:
        """Free all pages; the next prompt may be of another batch."""
        self.lists, self.shape, self.length, self.step, self.journal = None, (0, 0), 0, None, []
        self.most = 0
        self.kept = [None] * self._layer_count
        self.kernels.clear()

    def crop(self, tokens: int) -> None:
        """Take rows back, with all their decisions: only rows of the last forward pass, for the state before it is not
        kept. `tokens`: as of PagedCache.crop. A forward pass that failed half way goes as a whole. PlanError, before
        anything changes."""
        length = kept_columns(tokens, self.length)
        if self._is_unfinished():
            if self.step.is_prompt:
                self.check_finished()
            length = min(length, self.step.begin)
        rows = [row for row in self.journal if row.at >= length]
        first = min((row.at for row in self.journal), default=self.length)
        if self.step is not None and not self.step.is_prompt:
            first = self.step.begin
        if length < first:
            legal = f"at least {first}, the first column of the last forward pass after the prompt"
            raise expected(PlanError, f"{CACHE}: crop", legal, length, nearest=first)
        for row in reversed(rows):
            self._undo(row)
        self.journal = [row for row in self.journal if row.at < length]
        self.most -= max(self.length - length, 0)
        self.length, self.step = min(self.length, length), None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Raise a PlanError: sequences share nothing."""
        self._refuse("beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Raise a PlanError unless `repeats` is 1."""
        if repeats != 1:
            self._refuse("repeated sequences")

    def batch_select_indices(self, indices: Tensor) -> None:
        """Raise a PlanError: sequences stay together."""
        self._refuse("a choice of sequences")

    def _refuse(self, what: str) -> None:
        raise PlanError(f"{CACHE}: {what}: DiffKVCache does not serve it; take attn.transformers.PagedCache")


class DiffKVLayer(PagedLayer):
    """A layer of a DiffKVCache."""
