# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The caches of a decoder, and the host's work for its steps: a static cache, whose lengths the GPU counts, or pages,
which the host assigns before each step."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn
from transformers import StaticCache
from transformers.cache_utils import Cache, CacheLayerMixin, StaticLayer

from ..adapters.latent_layers import note_layer
from ..adapters.paged_steps import Asked
from ..adapters.planned_pages import PagePlans
from ..adapters.planned_steps import fix_mask, model_of
from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_fallback import OWN_NAMES
from ..cache.change import CacheChange
from ..errors import OutOfPages, PlanError, TensorError, expected
from .decoder_checks import not_planned
from .recorded_steps import StepState


class StaticRoom:
    """A static cache with capacity for all tokens in each layer. Layers with windows would be rings, whose index the
    host counts."""

    def __init__(self, model: nn.Module, state: StepState, tokens: int):
        self._config = model.config.get_text_config(decoder=True)
        self.cache = StaticCache(config=model.config, max_cache_len=tokens)
        self.cache.layers = [StaticLayer(max_cache_len=tokens) for _ in self.cache.layers]
        self.of_steps: Cache = self.cache
        """The cache that steps pass to the model."""
        self.mask = state.mask
        """The mask that steps pass to the model."""
        self.length, self.front, self.held = 0, [], []
        """Columns in the cache, and the number of padding columns of each sequence; tokens of each, with pages only."""
        fix_mask(state.mask, state.first)

    def begin(self, held: int | Sequence[int], columns: int, front: list[int], new: int, copies: int) -> None:
        """Prepare to read a prompt after the `held` first columns, or tokens of each sequence. PlanError or OutOfPages
        if the rest does not fit."""
        if copies != 1:
            raise PlanError(
                f"num_return_sequences={copies}: sequences share their prompt in pages; make the decoder with "
                "cache=attn.transformers.PagedCache(...)"
            )
        self.length = 0  # Until all went well.
        self._count(held)

    def read(self, columns: int, front: list[int], copies: int) -> None:
        """Record the columns of a prompt that was read; from here on there are `copies` of each sequence."""

    def prepare(self) -> Hashable:
        """Prepare the steps of a generation. Returns the key of their recording, beside how tokens are chosen."""
        return (
            tuple(model_of(self._config).kinds.items())
            if self._config._attn_implementation in OWN_NAMES
            else ()
        )

    @contextlib.contextmanager
    def step(self):
        """Surround the host's work for a step."""
        yield

    def launch(self) -> None:
        """Launch work in the step, before the forward pass."""

    def end(self, length: int, front: list[int], behind: list[int]) -> None:
        """Record a success: `length` columns are kept; the last ones are `behind` the end of a sequence."""
        self.length, self.front = length, front
        self._count(length)

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store all keys and values of a layer."""
        self.cache.layers[layer].reset()
        self.cache.update(keys, values, layer)

    def abandon(self) -> None:
        """Empty the cache after a failure."""
        self.length, self.front = 0, []

    def _count(self, columns: int) -> None:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(columns)


class PagedRoom:
    """A paged cache. A step begins with a new token for each sequence. A sequence that has ended continues with
    padding, as in a static cache, until all have: only the GPU knows which have ended. The host may be several steps
    ahead of the GPU: tables go through pinned memory that is not written again before it was copied, and copies wait
    for the steps before."""

    def __init__(self, cache: PagedCache, state: StepState, tokens: int, model: str):
        self.cache, self._model = cache, model
        self._sequences, self._tokens = state.token.shape[0], tokens
        self.of_steps: Cache = CacheOfSteps(cache, state.token.device)
        self.mask = torch.ones(self._sequences, 1, dtype=torch.bool, device=state.token.device)
        self._asked: frozenset[Asked] = frozenset()
        self._plans: PagePlans | None = None
        self._ends: dict[int, int] = {}
        """Tokens of each node up to the end of its sequence, after the last call."""
        self._change: CacheChange | None = None

    @property
    def length(self) -> int:
        return self.cache.length if len(self.cache.nodes) == self._sequences else 0

    @property
    def front(self) -> list[int]:
        return [first for first, _ in self.cache.shown]

    @property
    def held(self) -> list[int]:
        """Tokens of each sequence, up to its end."""
        tokens = {node: self.cache.pages.tokens(node) for node in self.cache.nodes}
        return [min(count, self._ends.get(node, count)) for node, count in tokens.items()]

    def begin(self, held: int | Sequence[int], columns: int, front: list[int], new: int, copies: int) -> None:
        kept = [max(held - hidden, 0) for hidden in front] if isinstance(held, int) else list(held)
        try:
            self._cut(held)
        # Removed tokens were shared, and the remaining ones of their page have to be copied.
        except OutOfPages:
            self.cache.reset()
            raise
        self._check_pages(kept, [columns - hidden for hidden in front], new, copies)

    def _cut(self, held: int | Sequence[int]) -> None:
        """Cut the cache to the first columns, or each sequence to its first tokens, as if padding preceded the shorter
        ones."""
        cache = self.cache
        if isinstance(held, int):
            if held:
                cache.keep(held)
            else:
                cache.reset()
            return
        for node, count in zip(cache.nodes, held, strict=True):
            if more := cache.pages.tokens(node) - count:
                cache.pages.truncate(node, more)
        cache.length, cache._step = max(held), None
        cache.shown = [(cache.length - count, cache.length) for count in held]

    def _check_pages(self, held: list[int], prompts: list[int], new: int, copies: int) -> None:
        """Raise OutOfPages if a generation might run out of pages."""
        cache = self.cache
        page = cache._store.page_size
        free = cache._sizes["pages"] if cache.pages is None else cache.pages.free_pages()

        def needed(new: int) -> int:
            total = 0
            for prompt, kept in zip(prompts, held, strict=True):
                total += copies * (-(-(prompt + new - 1) // page) - -(-kept // page))
                total -= (copies - 1) * (prompt // page)  # The copies share these.
            return total

        if needed(new) > free:
            most = next((count for count in range(new - 1, 0, -1) if needed(count) <= free), None)
            legal = f"{needed(new)} free ones, for {new} new tokens of each sequence"
            nearest = None if most is None else f"max_new_tokens={most}"
            raise expected(OutOfPages, "pages", legal, free, nearest=nearest)

    def read(self, columns: int, front: list[int], copies: int) -> None:
        self._asked = frozenset(self.cache._step.planned)
        self.cache.length, self.cache.shown = columns, [(hidden, columns) for hidden in front]
        self.cache.batch_repeat_interleave(copies)

    def prepare(self) -> Hashable:
        if not PagePlans.plannable(self._asked):
            raise not_planned(self._model)
        if self._plans is None or self._plans.asked != self._asked:
            self._plans = PagePlans(self.cache, self._asked, self._sequences, self._tokens)
            fix_mask(self.mask, self._plans)
        return self._asked

    @contextlib.contextmanager
    def step(self):
        self._plans.tell(self.cache.nodes)
        yield
        self._plans.ran()
        self.cache.length += 1

    def launch(self) -> None:
        self._plans.launch()

    def end(self, length: int, front: list[int], behind: list[int]) -> None:
        self.cache.shown = [(first, self.cache.length) for first in front]
        self.cache._step = None
        self.cache.keep(length)
        ends = (length - hidden - more for hidden, more in zip(front, behind, strict=True))
        self._ends = dict(zip(self.cache.nodes, ends, strict=True))

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        cache, columns = self.cache, keys.shape[2]
        if cache.is_latent:
            raise TensorError(
                "layers: the cache holds latents, which the model makes; read the prompt in generate"
            )
        if not layer:
            cache.reset()
            cache._begin(layer, keys, values)
            cache.nodes = [cache.pages.add() for _ in range(self._sequences)]
            self._change = cache.pages.append(cache.nodes, columns)
        by_token = (
            tensor.transpose(1, 2).contiguous() for tensor in (keys, values)
        )  # For one sequence reshape copies nothing.
        self._change.write(layer, *(rows.flatten(0, 1) for rows in by_token))
        if layer + 1 == len(cache.layers):
            cache.length = columns

    def abandon(self) -> None:
        self._change = None  # The cache takes back what was not written.
        if self._plans is not None:
            self._plans.ran()
        self.cache.reset()


class CacheOfSteps(Cache):
    """The cache of a recorded step over pages, as the model sees it."""

    def __init__(self, cache: PagedCache, device: torch.device):
        super().__init__(layers=[PassingLayer(device, cache.is_latent) for _ in cache.layers])
        self.is_latent = cache.is_latent

    def holds_tokens(self, layer: int) -> bool:
        """All rows attend to pages, those of new sequences, too."""
        return True


class PassingLayer(CacheLayerMixin):
    """A layer of a step over pages: passes new keys and values to attention, which writes them. The mask names the
    pages."""

    is_sliding = False

    def __init__(self, device: torch.device, is_latent: bool):
        super().__init__()
        self.is_initialized, self._is_latent = True, is_latent
        self._length = torch.zeros(1, dtype=torch.int64, device=device)
        """A tensor, as in static caches: masks are made on the device."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self._is_latent:
            note_layer(self)
        return key_states, value_states

    def get_seq_length(self) -> Tensor:
        return self._length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # Its name before Transformers 5.16.
