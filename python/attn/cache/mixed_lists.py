# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bookkeeping of token lists in two precisions on a device: which tokens are HIGH or LOW, their slots and their
significance.

Everything is a tensor at a fixed address, so that steps may be captured: no number comes back to the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import PlanError, expected
from ..memory.views import Binding
from .integers import items, whole
from .operations import revise_text
from .policy import HIGH, LOW, Policy, Rule, check_named_heads, check_policy, limits_of
from .precision import SlotList, SlotLists
from .table_operation import TableOperation
from .token_lists import HIGH_END, TokenLists

_ALIGNED = 4
"""Tables have a multiple of this many lists for each layer, so that a layer's part begins at a multiple of 16 bytes."""


class MixedLists(TokenLists):
    """The lists of `requests` requests of `kv_heads` KV heads in `layers` layers. Arguments are MixedCache's."""

    def __init__(
        self,
        layers: int,
        requests: int,
        kv_heads: int,
        pages: int,
        tokens: int,
        page_tokens: Sequence[int],
        policy: Policy | None,
        device: object,
        checked: bool,
    ):
        for name, size in dict(layers=layers, requests=requests, kv_heads=kv_heads, tokens=tokens).items():
            whole(name, size, 1)
        used = requests * kv_heads
        rule = policy.rule() if isinstance(policy, Policy) else None
        if policy is not None and rule is None:
            legal = (
                "one that a kernel decides by, as attn.kv_policy.DiffKV(...) but with norm='uniform', or None"
            )
            raise expected(PlanError, "policy", legal, policy)
        if policy is not None:
            check_policy(policy)
            check_named_heads(policy, layers, kv_heads)
        if rule is not None and rule.window < 1:
            label = f"{type(policy).__name__}.window"
            raise expected(PlanError, label, "a number of tokens from 1 on", rule.window, nearest=1)
        self.requests, self.kv_heads, self.policy, self.tokens = requests, kv_heads, policy, tokens
        self.used = used
        """Lists of a layer that requests have; `lists` adds up to three that stay empty."""
        most = [
            -(-(tokens + 1) // whole("page_tokens", page, 1)) for page in items("page_tokens", page_tokens)
        ]
        ends = 1 if policy is None else 2
        super().__init__(
            pages=pages,
            layers=layers,
            lists=-(-used // _ALIGNED) * _ALIGNED,
            columns=max(most) + ends,  # Each end begins a page, and has capacity for one token more.
            page_tokens=page_tokens,
            ends=ends,
            device=device,
            checked=checked,
        )
        self.widths = most
        """The most pages of a list at each end."""
        self._make_state(pages)
        if rule is not None:
            self._make_revision(policy, rule, device, checked)

    def _make_state(self, pages: int) -> None:
        layers, lists = self.layers, self.lists
        self.active = self._zeros(self.requests)
        """int32 [requests], 1 for those that get a token in a step, else 0. To be written, on the device."""
        self.missed = self._zeros(1)
        """int32 [1]: the number of steps so far that had too few pages; they changed nothing."""
        self.seen, self.prompts = self._zeros(layers, lists), self._zeros(layers, lists)
        """Tokens that each list has seen, and those of them that came with its prompt: int32 [layers, lists]."""
        self.score = self._zeros(pages + 1, self._places, dtype=torch.float32)
        """The significance so far of the token at an index of a page: [pages + 1, places]."""
        columns = torch.arange(self.pool.columns, device=self.active.device)
        self._columns = [columns[: self.widths[0]], columns.flip(0)[: self.widths[1]]][: len(self.counts)]
        self.tables = [self._zeros(layers, lists, len(of_end)) for of_end in self._columns]
        """The pages of each end, in the order of its tokens: int32 [layers, lists, pages]."""
        self._on = self._zeros(lists)
        self._new = SlotLists(layers, self.used, self.device)
        self._rows = torch.arange(lists, dtype=torch.int32, device=self.active.device)

    def _make_revision(self, policy: Policy, rule: Rule, device: object, checked: bool) -> None:
        lists, columns, rows = self.lists, self.pool.columns, self.layers * self.lists
        self._limits = self._zeros(self.layers, lists, 2, dtype=torch.float32)
        limits = [
            [limits_of(policy, rule.limits, i, head) for head in range(self.kv_heads)]
            for i in range(self.layers)
        ]
        self._limits[:, : self.used] = (
            torch.tensor(limits).repeat(1, self.requests, 1).to(self._limits.device)
        )
        seen = [[policy.sees(i, head) or (0, 0) for head in range(self.kv_heads)] for i in range(self.layers)]
        self._sees = self._zeros(self.layers, lists, 2)
        self._sees[:, : self.used] = torch.tensor(seen).repeat(1, self.requests, 1).to(self._sees)
        self._demoted, self._moved = (SlotList(rows, self.device) for _ in range(2))
        (left, right), places = self.pool.page_tokens, tuple(self.score.shape)
        rooms = [width * page for width, page in zip(self.widths, (left, right), strict=True)]
        numbers = {"high": True, "low": True, "seen": False, "prompt": False}
        slots = ("down_from", "down_to", "move_from", "move_to")
        bindings = [
            Binding("table", "i32", (lists, columns)),
            *(Binding(name, "i32", (lists,), written) for name, written in numbers.items()),
            Binding("limits", "f32", (lists, 2)),
            Binding("sees", "i32", (lists, 2)),
            Binding("score", "f32", places, True),
            Binding("position", "i32", places, True),
            Binding("worth_high", "f32", (lists, rooms[0])),
            Binding("worth_low", "f32", (lists, rooms[1])),
            Binding("done", "i32", (4,)),
            *(Binding(name, "i32", (lists,), True) for name in slots),
        ]
        text = revise_text(left, right, rule)
        sizes = (lists, columns, *places, *rooms)
        self._revise = TableOperation(text, bindings, sizes, device, checked)

    # --- A step ----------------------------------------------------------------------------------------------

    def begin_lists(self) -> None:
        """Add a HIGH token to every list of an active request that may see more, and reserve one more at the other end;
        or do nothing, if pages run out."""
        on = self._on
        on[: self.used].view(self.requests, -1).copy_(self.active[:, None])
        for end, count in enumerate(self.counts):
            torch.mul(count + 1, on, out=self.pool.tokens[:, :, end])
        self.pool.manage()
        done = self.pool.status_words()[0]
        self.missed += 1 - done
        high = self.counts[HIGH_END]
        is_new = (on * done).bool() & (self.seen < self.tokens)
        place = torch.where(is_new, high, -1)[..., None]
        self._new.target.copy_(self.slots((), HIGH_END, place)[:, : self.used, 0])
        self._new.source.copy_(torch.where(is_new, self._rows, -1)[:, : self.used])
        entries = self.entries((), HIGH_END, place)
        self._put_positions(entries, self.seen)
        self.score.view(-1).scatter_(0, entries.flatten(), 0.0)
        for count in (high, self.seen):
            count += is_new
        for table, columns in zip(self.tables, self._columns, strict=True):
            torch.index_select(self.pool.table, 2, columns, out=table)

    def revise(self, layer: int, worth: Sequence[Tensor]) -> None:
        """Let the policy decide for a layer's lists. `worth`: the significance of their tokens to the new token's row,
        float32 [lists, places] of either end. Changes the bookkeeping, and lists the slots whose contents are to
        change."""
        rows = slice(layer * self.lists, (layer + 1) * self.lists)
        tensors = {
            "table": self.pool.table[layer],
            "high": self.counts[0][layer],
            "low": self.counts[1][layer],
            "seen": self.seen[layer],
            "prompt": self.prompts[layer],
            "limits": self._limits[layer],
            "sees": self._sees[layer],
            "score": self.score,
            "position": self.position,
            "worth_high": worth[0],
            "worth_low": worth[1],
            "done": self.pool.status_words(),
            "down_from": self._demoted.source[rows],
            "down_to": self._demoted.target[rows],
            "move_from": self._moved.source[rows],
            "move_to": self._moved.target[rows],
        }
        self._revise.launch(tensors, None)

    # --- Requests that come and go ---------------------------------------------------------------------------

    def admit(self, request: int, levels: Tensor, scores: Tensor) -> list[Tensor]:
        """Admit a prompt for a request that was released, or never admitted; it is active from now on.

        levels  int8 [layers, kv_heads, tokens], of HIGH, LOW and PRUNED
        scores  float32, likewise: the significance of tokens to the prompt's rows

        Returns the slots of HIGH tokens and of LOW tokens, int32 [layers, kv_heads, tokens] each, -1 for a token that
        is not kept so. Waits for the device. OutOfPages changes nothing.
        """
        tokens = levels.shape[2]
        rows = slice(request * self.kv_heads, (request + 1) * self.kv_heads)
        masks = [levels == kind for kind in (HIGH, LOW)[: len(self.counts)]]
        for end, (count, mask) in enumerate(zip(self.counts, masks, strict=True)):
            self.pool.tokens[:, :, end] = count
            self.pool.tokens[:, rows, end] = mask.sum(2, dtype=torch.int32)
        self.pool.manage()
        self.pool.require_done()
        found, part = [], (slice(None), rows)
        for end, (count, mask) in enumerate(zip(self.counts, masks, strict=True)):
            count[:, rows] = mask.sum(2, dtype=torch.int32)
            place = torch.where(mask, mask.cumsum(2) - 1, -1)
            found.append(self.slots(part, end, place).int())
            entries = self.entries(part, end, place)
            self._put_positions(entries, torch.arange(tokens, device=mask.device).expand(mask.shape))
            self.score.view(-1).scatter_(0, entries.flatten(), scores.flatten().float())
        self.seen[:, rows] = tokens
        self.prompts[:, rows] = tokens
        self.active[request] = 1
        return found

    def release(self, request: int) -> None:
        """Empty the lists of a request; the next step frees their pages."""
        rows = slice(request * self.kv_heads, (request + 1) * self.kv_heads)
        self.active[request] = 0
        for count in (*self.counts, self.seen, self.prompts):
            count[:, rows] = 0
