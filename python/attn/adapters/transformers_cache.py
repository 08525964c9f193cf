# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A paged cache with the interface of Transformers' caches.

The model passes each layer's new keys and values to `update`, before attention is told which of them are padding. So
`update` only marks them and passes them on, and attention writes them into pages and reads those (paged_steps.py).
Padding takes no page. The marked tensors hold only the new keys: no computation but attention by attn may use them.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..cache.paged import PagedCache as Pages
from ..describe.stores import Paged
from ..errors import PlanError, TensorError, expected
from .latent_layers import check_latent, latent_formats, note_layer
from .transformers_config import CACHE, check_config, check_formats, kept_columns

aten = torch.ops.aten


class PagedCache(Cache):
    """Keys and values of a model in pages. Pass it as `generate(..., past_key_values=...)` to a model with
    attn_implementation="attn", or as `Decoder(..., cache=...)` for recorded steps.

    config     of the model: a decoder with full attention or sliding windows, and keys of its own, in every layer
    pages      of the pool that all sequences share; a page holds `page_size` tokens, in every layer
    page_size  1 to 8 or a multiple of 16 up to 2048
    dtype, device  of keys and values; by default those of the first ones. With a dtype of 16 bits a float32 model attends
               in it: queries, keys and values are rounded, and results are float32
    latent     whether pages hold one latent for a token, not keys and values of heads: of models with latent attention (MLA,
               DeepSeek-V2 and V3). By default those models without formats
    formats    storage of keys and values: key="int8", value="int4", key_group, … as of attn.Paged. Latents are in 16 bits, or
               in key="fp8_e4m3" with a scale of 1

    `pages` is its attn.PagedCache, once there are keys; `nodes` the node of each sequence of the batch. Beams share the
    pages of their common tokens, from the first generated token on; the prompt is read once for each beam. Assisted
    generation cuts off refused candidates. `copy.deepcopy` forks all sequences, so that a prompt is read once for
    several continuations: a copy shares the pool and whole pages, and frees its own when nothing refers to it, or by
    `reset`. A copy of an empty cache has a pool of its own. Raises OutOfPages, PlanError, TensorError.
    """

    def __init__(
        self,
        config: object,
        *,
        pages: int,
        page_size: int = 16,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        latent: bool | None = None,
        **formats: object,
    ):
        config = config.get_text_config(decoder=True)
        check_config(config)
        self.is_latent = check_latent(config, latent, formats)
        """Whether pages hold latents, not the keys and values of heads."""
        self._given = formats
        formats = latent_formats(config, formats) if self.is_latent else check_formats(formats)
        self._store = Paged(page_size=page_size, **formats)
        self._sizes = {"layers": config.num_hidden_layers, "pages": pages, "page_size": page_size, **formats}
        self._dtype, self._device = dtype, device
        self.pages: Any = None
        """Its attn.PagedCache; None until there are keys."""
        self.nodes: list[int] = []
        self.length = 0
        self.shown: list[tuple[int, int]] = []
        """The columns of the batch between which each sequence has tokens; the rest is padding."""
        self._step: Any = None
        """The PagedStep of the forward pass in progress, or of the last one."""
        self._plans: dict[tuple, Any] = {}
        self._dropped: list[int] = []
        """Nodes of copies that are gone; all caches that share the pool share this list."""
        super().__init__(layers=[PagedLayer(self, index) for index in range(config.num_hidden_layers)])

    def _begin(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Make the pages. The first keys and values give the sizes of all layers: configurations have many names for
        them."""
        shape = {"kv_heads": key.shape[1], "head_dim": key.shape[3], "value_dim": value.shape[3]}
        if self.pages is None:
            dtype, device = self._dtype or key.dtype, self._device or key.device
            self.pages = Pages(**self._sizes, **shape, dtype=dtype, device=device)
        held = {name: getattr(self.pages, name) for name in shape}
        if shape != held:
            raise expected(TensorError, f"{CACHE}: layer {layer}", f"{held}, as in layer 0", shape)

    def _beside(self, config: object, pages: int) -> PagedCache:
        """Return an empty cache of the same form with a pool of its own."""
        kind: dict[str, Any] = {"dtype": self._dtype, "device": self._device, "latent": self.is_latent}
        return PagedCache(config, pages=pages, page_size=self._store.page_size, **kind, **self._given)

    def holds_tokens(self, layer: int) -> bool:
        """Whether there are tokens before those of the forward pass that a layer takes part in next."""
        step = self._step
        return bool(self.length if step is None or layer in step.written else step.before[0])

    def __deepcopy__(self, memo: dict) -> PagedCache:
        """Return sequences with the same tokens in the same pool. Raises PlanError while a forward pass is unfinished,
        and OutOfPages; both change nothing."""
        self._free_dropped()
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.nodes, twin.shown, twin._step, twin._plans = [], list(self.shown), None, {}
        twin._dropped = [] if self.pages is None else self._dropped
        twin.layers = [PagedLayer(twin, index) for index in range(len(self.layers))]
        for node in self.nodes:  # If one fails, the earlier ones go with the twin.
            twin.nodes.append(self.pages.fork(node))
        memo[id(self)] = twin
        return twin

    def __copy__(self) -> PagedCache:
        return self.__deepcopy__({})

    def __reduce_ex__(self, protocol: object) -> tuple:
        raise TypeError(
            "attn.transformers.PagedCache cannot be pickled: it owns the pages of its device; copy.deepcopy makes a "
            "copy in this process, which shares them"
        )

    def __del__(self) -> None:
        # Pages may be in the middle of a change, or used by another thread: a cache that shares them frees
        # the nodes.
        if nodes := self.__dict__.get("nodes"):
            self._dropped.extend(nodes)

    def _free_dropped(self) -> None:
        if self._dropped:
            nodes = self._dropped[:]
            self.pages.prune(*nodes)
            del self._dropped[: len(nodes)]

    def reset(self) -> None:
        """Free all pages."""
        if self.pages is not None:
            self.pages.rollback()  # Undo a forward pass that failed half way.
            self._free_dropped()
            if self.nodes:
                self.pages.prune(*self.nodes)
        self.nodes, self.shown, self.length, self._step = [], [], 0, None
        self._plans.clear()

    def crop(self, tokens: int) -> None:
        """Remove the last `-tokens` columns of the batch, including padding, or if `tokens` is positive all after the
        first `tokens`. Assisted generation removes candidates so that the model refused. `crop(0)` does what the
        installed Transformers does: 5.12 empties the cache, 5.16 and later versions change nothing. Tokens of a forward
        pass that failed half way go first, whatever `tokens` is."""
        self._roll_back()
        self.keep(kept_columns(tokens, self.length))

    def _roll_back(self) -> None:
        if self._step is not None and self._step.unfinished:
            self.pages.rollback()
            self.length, self.shown, self._step = *self._step.before, None

    def keep(self, length: int) -> None:
        """Remove everything after the first `length` columns of the batch, including padding."""
        self._roll_back()
        if length >= self.length or self.pages is None:
            return
        self._free_dropped()
        kept = []
        for node, (first, end) in zip(self.nodes, self.shown, strict=True):
            kept.append((first, max(min(end, length), first)))
            if kept[-1][1] < end:
                self.pages.truncate(node, end - kept[-1][1])
        self.shown, self.length, self._step = kept, length, None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Make sequence i a copy of sequence beam_idx[i], as beam search asks after each token. Copies share their
        whole pages; each has its own last page if that is not full."""
        self._choose(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Make `repeats` copies of each sequence, next to each other."""
        self._choose([index for index in range(len(self.nodes)) for _ in range(repeats)])

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the sequences with these numbers, or those with True in a mask, in this order."""
        self._choose((indices.nonzero()[:, 0] if indices.dtype == torch.bool else indices).tolist())

    def _choose(self, chosen: list[int]) -> None:
        if self.pages is None or chosen == list(range(len(self.nodes))):
            return
        self._free_dropped()
        nodes = self.nodes
        for index in chosen:
            if not 0 <= index < len(nodes):
                legal = f"numbers of {len(nodes)} sequences"
                raise expected(PlanError, f"{CACHE}: beams", legal, index)
        own = {index: nodes[index] for index in chosen}  # Each continues as itself once.
        self.pages.prune(*(node for index, node in enumerate(nodes) if index not in own))
        shown = self.shown
        self.nodes, self._step = list(own.values()), None  # The sequences that live if pages run out.
        self.shown = [shown[index] for index in own]
        taken, twins, left = [], [], dict(own)
        try:
            for index in chosen:
                node = left.pop(index, None)
                if node is None:
                    node = self.pages.fork(own[index])
                    twins.append(node)
                taken.append(node)
        except BaseException:
            self.pages.prune(*twins)
            raise
        self.nodes, self.shown = taken, [shown[index] for index in chosen]


class PagedLayer(CacheLayerMixin):
    """A layer of a PagedCache."""

    is_compileable = False
    is_sliding = False
    is_croppable = True

    def __init__(self, cache: PagedCache, index: int):
        super().__init__()
        self._cache, self.index = (
            weakref.ref(cache),
            index,
        )  # A cache without references frees its pages at once.
        self.is_initialized = True

    @property
    def cache(self) -> Any:
        return self._cache()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Mark keys and values and pass them on to attention."""
        if getattr(self.cache, "is_latent", False):  # Caches of other kinds have no latents.
            note_layer(self)
            return key_states, value_states
        return PagedKeys(key_states, self), value_states

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # Its name before Transformers 5.16.

    def reset(self) -> None:
        self.cache.reset()


class PagedKeys(torch.Tensor):
    """New keys of a layer, [batch, kv_heads, rows, dim], on their way to attention, which finds earlier keys in pages.
    Any other computation would miss the earlier keys, and is refused."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, keys: Tensor, layer: PagedLayer) -> PagedKeys:
        return torch.Tensor._make_wrapper_subclass(cls, keys.shape, dtype=keys.dtype, device=keys.device)

    def __init__(self, keys: Tensor, layer: PagedLayer):
        self.keys, self.layer = keys, layer

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        keys = args[0] if args else None
        if isinstance(keys, PagedKeys) and function in (aten.detach.default, aten.alias.default):
            return PagedKeys(keys.keys, keys.layer)
        raise TensorError(
            f"{CACHE}: the model computes with its keys itself ({function}), and attn's cache holds those before "
            'them; load it with attn_implementation="attn", or take a dynamic or static cache'
        )

    def __repr__(self, **kwargs) -> str:
        return f"<new keys {list(self.shape)} of layer {self.layer.index} of attn's {type(self.layer.cache).__name__}>"


def layer_of(key: Tensor) -> PagedLayer | None:
    """Return the layer of a paged cache that keys belong to, or None."""
    return key.layer if isinstance(key, PagedKeys) else None
