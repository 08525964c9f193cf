# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A paged cache behind the interface of Transformers' caches.

The model hands each layer's new keys and values to `update`, before attention is told which of them are padding: so
`update` only passes them on, marked, and attention writes them into pages and reads those. Padding takes no page. What
is passed on holds the new keys alone: nothing but attention by attn may compute with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..cache.batch import CacheBatch
from ..cache.change import CacheChange
from ..cache.paged import PagedCache as Pages
from ..describe.stores import Paged
from ..errors import PlanError, TensorError, expected
from ..run.kernel import Kernel
from ..run.plan import Plan
from .padded_calls import padded_kernel
from .transformers_config import check_config, check_formats

aten = torch.ops.aten


class PagedCache(Cache):
    """Keys and values of a model in pages, for `generate(..., past_key_values=...)` with attn_implementation="attn".

    config     of the model: a decoder with full attention or sliding windows, and keys of its own, in every layer
    pages      of the pool that all sequences share; a page holds `page_size` tokens, in every layer
    page_size  a power of two from 1 to 256
    dtype, device  of keys and values; by default those of the first that come
    formats    how keys and values are stored: key="int8", value="int4", key_group, … as of attn.Paged

    `pages` is the attn.PagedCache behind it, once there are keys; `nodes` the node of each sequence of the batch. Beam
    search and assisted generation, which copy and cut caches, are refused. Errors: OutOfPages, PlanError, TensorError.
    """

    def __init__(
        self,
        config: object,
        *,
        pages: int,
        page_size: int = 16,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        **formats: object,
    ):
        config = config.get_text_config(decoder=True)
        check_config(config)
        self._store = Paged(page_size=page_size, **check_formats(formats))
        self._sizes = {"layers": config.num_hidden_layers, "pages": pages, "page_size": page_size, **formats}
        self._dtype, self._device = dtype, device
        self.pages: Pages | None = None
        self.nodes: list[int] = []
        self.length = 0
        self._step: _Step | None = None
        self._plans: dict[tuple, _Planned] = {}
        super().__init__(layers=[PagedLayer(self, index) for index in range(config.num_hidden_layers)])

    def _begin(self, layer: int, key: Tensor, value: Tensor) -> None:
        """The first keys and values say how large those of all layers are: configurations have many names for it."""
        shape = {"kv_heads": key.shape[1], "head_dim": key.shape[3], "value_dim": value.shape[3]}
        if self.pages is None:
            dtype, device = self._dtype or key.dtype, self._device or key.device
            self.pages = Pages(**self._sizes, **shape, dtype=dtype, device=device)
        held = {name: getattr(self.pages, name) for name in shape}
        if shape != held:
            raise expected(TensorError, f"past_key_values: layer {layer}", f"{held}, as in layer 0", shape)

    def reset(self) -> None:
        """Gives all pages back."""
        if self._step is not None and self._step.change is not None:
            self._step.change.skip()  # of a forward pass that failed half way
        if self.pages is not None and self.nodes:
            self.pages.prune(*self.nodes)
        self.nodes, self.length, self._step = [], 0, None
        self._plans.clear()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        raise PlanError("past_key_values: beam search needs a dynamic or static cache, got attn's PagedCache")

    def crop(self, max_length: int) -> None:
        raise PlanError("past_key_values: assisted generation needs a dynamic cache, got attn's PagedCache")

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.reorder_cache(torch.empty(0))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)


class PagedLayer(CacheLayerMixin):
    """A layer of it."""

    is_compileable = False
    is_sliding = False

    def __init__(self, cache: PagedCache, index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Passes them on to attention, marked."""
        return PagedKeys(key_states, self), value_states

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before Transformers 5.16

    def reset(self) -> None:
        self.cache.reset()


class PagedKeys(torch.Tensor):
    """New keys of a layer, `[batch, kv_heads, rows, dim]`, on their way to attention, which finds those before them in
    pages. Whatever else computes with them would miss those, and is refused."""

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
            f"past_key_values: the model computes with its keys itself ({function}), and attn's PagedCache holds those "
            'before them; load it with attn_implementation="attn", or take a dynamic or static cache'
        )

    def __repr__(self, **kwargs) -> str:
        return f"<new keys {list(self.shape)} of layer {self.layer.index} of attn's PagedCache>"


def layer_of(key: Tensor) -> PagedLayer | None:
    """The layer of a paged cache that keys belong to."""
    return key.layer if isinstance(key, PagedKeys) else None


class _Step:
    """What all layers of a forward pass share."""

    def __init__(self, cache: PagedCache, spans: Tensor, rows: int):
        table = spans.numpy().reshape(-1, 4)
        first, end = table.T[:2].astype(numpy.int64)
        begin, pages = cache.length, cache.pages
        if cache.length == 0 and not cache.nodes:
            cache.nodes = [pages.add() for _ in range(len(table))]
        if len(table) != len(cache.nodes):
            raise TensorError(
                f"past_key_values: holds {len(cache.nodes)} sequences, and the batch has {len(table)}; reset() it "
                "before another batch"
            )
        shown = numpy.maximum(first, begin)
        self.counts = numpy.maximum(end - shown, 0)
        for index, node in enumerate(cache.nodes):
            held, wanted = pages.tokens(node), max(int(min(end[index], begin) - first[index]), 0)
            if held != wanted:
                raise TensorError(
                    f"attention_mask[{index}]: shows {wanted} tokens before this step, and the cache holds {held}"
                )
        flat = [
            numpy.arange(i * rows + s - begin, i * rows + s - begin + n)
            for i, (s, n) in enumerate(zip(shown, self.counts, strict=True))
        ]
        index = numpy.concatenate(flat)
        self.whole = len(index) == len(table) * rows
        self.index = torch.from_numpy(index)
        # A chunk of a prompt may be all padding to a sequence, or to all of them.
        self.requests = [(node, int(n)) for node, n in zip(cache.nodes, self.counts, strict=True) if n]
        nodes, counts = zip(*self.requests, strict=True) if self.requests else ((), ())
        self.change: CacheChange | None = pages.append(list(nodes), list(counts)) if nodes else None
        cache.length += rows
        self.written: set[int] = set()
        self.planned: dict[tuple, tuple[Kernel, Plan]] = {}

    def take(self, tensor: Tensor) -> Tensor:
        """[batch, heads, rows, dim] -> [tokens, heads, dim], without padding."""
        flat = tensor.transpose(1, 2).reshape(-1, tensor.shape[1], tensor.shape[3])
        return flat if self.whole else flat.index_select(0, self.index.to(flat.device))

    def put(self, out: Tensor, batch: int, rows: int) -> Tensor:
        """[tokens, heads, dim] -> [batch, rows, heads, dim]; rows of padding are 0."""
        if not self.whole:
            full = out.new_zeros(batch * rows, *out.shape[1:])
            full.index_copy_(0, self.index.to(out.device), out)
            out = full
        return out.view(batch, rows, *out.shape[1:])


@dataclass
class _Planned:
    plan: Plan
    batch: CacheBatch
    step: _Step


def _plan(cache: PagedCache, step: _Step, kernel: Kernel, classes: tuple[int, ...] | None) -> Plan:
    """One plan for all layers with the same kernel and as many heads in each class, updated from step to step."""
    key = kernel, tuple(sorted(classes or ()))
    known = cache._plans.get(key)
    if known is None:
        batch = cache.pages.batch(step.requests, classes=classes)
        known = cache._plans[key] = _Planned(kernel.plan(batch), batch, step)
    elif known.step is not step:
        if known.step.requests == step.requests:
            known.batch.update()
        else:
            known.batch = cache.pages.batch(step.requests, classes=classes)
        known.plan.update(known.batch)
        known.step = step
    return known.plan


def attend_pages(
    layer: PagedLayer,
    query: Tensor,
    key: PagedKeys,
    value: Tensor,
    spans: Tensor,
    *,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    gates: object,
) -> Tensor:
    """Writes a layer's new keys and values into its pages and attends to all that is there."""
    cache, (batch, q_heads, rows, _) = layer.cache, query.shape
    key = key.keys
    cache._begin(layer.index, key, value)
    step = cache._step
    if step is None or layer.index in step.written:
        step = cache._step = _Step(cache, spans, rows)
    step.written.add(layer.index)
    if step.change is None:
        return query.new_zeros(batch, rows, q_heads, value.shape[3])
    step.change.write(layer.index, step.take(key).contiguous(), step.take(value).contiguous())
    asked = scale, causal, window, softcap, sinks is not None, gates
    planned = step.planned.get(asked)
    if planned is None:
        planned = step.planned[asked] = _planned(cache, step, query, *asked)
    kernel, plan = planned
    extra = {} if sinks is None else {"sink_logits": sinks.float().contiguous()}
    if gates:
        extra["classes"] = gates.classes
    out = kernel.run(step.take(query).contiguous(), cache.pages.layer(layer.index), plan, **extra)
    return step.put(out, batch, rows)


def _planned(
    cache: PagedCache,
    step: _Step,
    query: Tensor,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
    sinks: bool,
    gates: object,
) -> tuple[Kernel, Plan]:
    """The kernel of layers that asked alike, and its plan for this step."""
    kernel = padded_kernel(
        query.shape[1],
        cache.pages.kv_heads,
        (cache.pages.head_dim, cache.pages.value_dim),
        query.dtype,
        scale,
        causal,
        window,
        softcap,
        sinks,
        (gates.sink, gates.recent) if gates else (),
        str(query.device),
        cache._store,
    )
    return kernel, _plan(cache, step, kernel, gates.classes if gates else None)
