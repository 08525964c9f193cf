# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGLang's interface over attn.serving: the attention of all layers of a model runner.

SGLang's pools have a slot for each token, `[slots, heads, dim]`, keys and values apart, and a table names the slot of each
token of a request. With a page size above 1 the slots of a page are one behind the other, and kernels read whole pages;
with a page size of 1 each token is a page. Layers with a sliding window may have a pool of their own, whose slots another
table gives.

A pool of latents (MLA) has a line `[slots, 1, dim]` for each token, which is its key, and whose first features are its
value. All steps are of absorbed queries: SGLang multiplies queries and outputs by the up-projections of keys and
values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from torch import Tensor

from ..errors import SpecError
from ..run.kernel import Kernel
from ..serving import (
    DeviceStep,
    DraftPlans,
    DraftStep,
    Layer,
    Plans,
    Step,
    compile_drafts,
    page_of,
    page_table,
    pages_of,
    parents_of,
)
from .graphs import GraphPlans
from .limits import FORMATS, layer_of, reads_latents, refused_layer, refused_pool

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

SHARED_TOKENS = 64
"""Tokens in front of the rows of neighbours in a batch, at least, that are read once for all of them."""

_MODES = ("EXTEND", "MIXED", "DECODE", "SPLIT_PREFILL", "TARGET_VERIFY")


@dataclass
class AttnMetadata:
    """A step of a batch. `windowed` and its slots are of layers whose window has a pool of its own."""

    step: Step | DraftStep | DeviceStep
    windowed: Step | DraftStep | DeviceStep | None = None
    windowed_slots: Tensor | None = None


def windowed_table(pool: SWAKVPool, slots: Tensor, page_size: int) -> Tensor:
    """Return the block table in a windowed pool. `slots` are those of page_table, in the pool of all tokens."""
    return page_table(pool.translate_loc_from_full_to_swa(slots), page_size)


def tree_masks(mask: Tensor, lengths: Tensor, drafts: int) -> Tensor:
    """Return which drafts each draft sees, bool [sequences, drafts, drafts], of SGLang's mask: that, or one whose rows have
    the tokens in front of the drafts, too, sequence behind sequence. `lengths` are of these tokens."""
    if mask.numel() == len(lengths) * drafts * drafts:
        return mask.view(-1, drafts, drafts).bool()
    sizes = [(length + drafts) * drafts for length in lengths.tolist()]
    return torch.stack(
        [part.view(drafts, -1)[:, -drafts:] for part in mask[: sum(sizes)].split(sizes)]
    ).bool()


def _longest(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


class AttnBackend(AttentionBackend):
    """Decoder attention by attn, of a model runner whose model is loaded. Compiles the kernels of its layers. Raises
    ValueError for layers and pools that attn does not serve."""

    forward_metadata: AttnMetadata | None

    def __init__(self, runner: Any):
        super().__init__()
        self.device, self.dtype = runner.device, runner.dtype
        self.requests, self.pool = runner.req_to_token_pool, runner.token_to_kv_pool
        self.page_size = page_of(runner.page_size or 1)
        self.has_windowed_pool = isinstance(self.pool, SWAKVPool) and self.pool.swa_layer_nums > 0
        self.has_latents = isinstance(self.pool, MLATokenToKVPool)
        self.format: str | None = None
        self.layers: dict[RadixAttention, Layer] = {}
        self.kernels: dict[tuple[Layer, bool], Kernel] = {}
        """Kernels by layer, and by whether they verify drafts."""
        self._scales: dict[RadixAttention, tuple[Tensor, ...]] = {}
        options = getattr(runner, "server_args", None)
        self.numerics = "row" if getattr(options, "enable_deterministic_inference", False) else None
        # A prefix that is read once is a part of its own, and moves bits.
        shared = 0 if self.numerics else -(-SHARED_TOKENS // self.page_size)
        self.plans, self.windowed_plans = Plans(shared), Plans(shared)
        self.draft_plans, self.windowed_draft_plans = DraftPlans(), DraftPlans()
        self.graph_plans: tuple[GraphPlans, ...] = ()
        """The plans of CUDA graphs, and if there is a windowed pool, those of its table."""
        reasons = self._pool_refusals()
        for name, module in runner.model.named_modules():
            if isinstance(module, RadixAttention):
                reasons += self._layer_refusals(name, module)
        if self.has_latents and not self.layers and not reasons:
            reasons.append("pool: expected layers that read its latents, got none")
        if reasons:
            raise ValueError(f"attn's backend cannot serve this model: {'; '.join(reasons)}")
        for layer in self.layers.values():
            self._kernel(layer)

    def _pool_refusals(self) -> list[str]:
        pool = self.pool
        pools = (pool.full_kv_pool, pool.swa_kv_pool) if isinstance(pool, SWAKVPool) else (pool,)
        found: list[str] = []
        for each in pools:
            layout = getattr(each, "kv_cache_layout", "")
            quantized = bool(getattr(each, "is_quantized_kv_cache", False))
            found += refused_pool(type(each).__name__, layout, quantized, each.dtype, self.dtype)
        self.format = FORMATS.get(pool.dtype)
        return list(dict.fromkeys(found))

    def _layer_refusals(self, name: str, module: RadixAttention) -> list[str]:
        if self.has_latents:
            value_dim = self.pool.kv_lora_rank
            if not reads_latents(module, value_dim, value_dim + self.pool.qk_rope_head_dim):
                return []  # No step of attn's reads expanded keys and values.
        found = refused_layer(module, self.has_latents)
        try:
            found_layer = layer_of(module, self.page_size, self.dtype, self.format, self.has_latents)
            self.layers[module] = replace(found_layer, numerics=self.numerics)
        except SpecError as error:
            found.append(str(error))
        return [f"{name}: {reason}" for reason in found]

    def _kernel(self, layer: Layer, drafts: bool = False) -> Kernel:
        if (layer, drafts) not in self.kernels:
            made = compile_drafts(layer, self.device) if drafts else layer.compile(self.device)
            self.kernels[layer, drafts] = made
        return self.kernels[layer, drafts]

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Make the step of a batch that is run without a graph. Plans are made on the host: a GPU's table of slots is
        waited for."""
        mode = forward_batch.forward_mode
        self.forward_metadata = None
        if mode.is_idle():
            return
        if mode.name not in _MODES:
            raise NotImplementedError(
                f"attn's backend: expected a mode of {', '.join(_MODES)}, got {mode.name}"
            )
        self.forward_metadata = (
            self._verified(forward_batch) if mode.is_target_verify() else self._made(forward_batch)
        )

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Prepare graphs of decoding, of `max_bs` sequences at most: compile their kernels, and make their tables."""
        if max_num_tokens > max_bs:
            raise NotImplementedError(
                f"attn's backend: expected graphs of one row a sequence, got {max_num_tokens} rows of {max_bs} sequences"
            )
        pages = -(-self.requests.req_to_token.shape[1] // self.page_size)
        tables = 2 if self.has_windowed_pool else 1
        self.graph_plans = tuple(GraphPlans(max_bs, pages, self.device) for _ in range(tables))
        for layer in self.layers.values():
            self._kernel(replace(layer, device_plan=True))

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Return the tokens of the sequences that fill a graph's batch, which read those of another request."""
        return 1

    def init_forward_metadata_out_graph(self, forward_batch: ForwardBatch, in_capture: bool = False) -> None:
        """Make the step of a graph. The device makes the plans, and nothing is waited for."""
        mode = forward_batch.forward_mode
        if not mode.is_decode():
            raise NotImplementedError(f"attn's backend: expected a graph of DECODE, got one of {mode.name}")
        lengths, known = forward_batch.seq_lens, forward_batch.seq_lens_cpu
        longest = self.requests.req_to_token.shape[1] if known is None else _longest(known)
        slots = self._slots(forward_batch, longest)
        plans = self.graph_plans
        self.forward_metadata = AttnMetadata(plans[0].step(lengths, page_table(slots, self.page_size)))
        if self.has_windowed_pool:
            table = windowed_table(self.pool, slots, self.page_size)
            self.forward_metadata.windowed = plans[1].step(lengths, table)

    def init_forward_metadata_in_graph(self, forward_batch: ForwardBatch) -> None:
        """Find the slots of new tokens in the windowed pool, at each replay."""
        assert self.forward_metadata is not None, "init_forward_metadata_out_graph comes first"
        if self.has_windowed_pool:
            slots = self.pool.translate_loc_from_full_to_swa(forward_batch.out_cache_loc)
            self.forward_metadata.windowed_slots = slots

    def _made(self, batch: ForwardBatch) -> AttnMetadata:
        """Return the step of prompts and decoding."""
        lengths = batch.seq_lens if batch.seq_lens_cpu is None else batch.seq_lens_cpu
        rows = None if batch.forward_mode.is_decode() else batch.extend_seq_lens_cpu
        starts = torch.arange(len(lengths) + 1)
        if rows is not None:
            starts[1:] = torch.as_tensor(rows, dtype=torch.long).cumsum(0)
        return self._rows_of(batch, starts, lengths)

    def _rows_of(self, batch: ForwardBatch, starts: Tensor, lengths: Tensor) -> AttnMetadata:
        """Return the step of rows that are the last of their sequences."""
        slots = self._slots(batch, _longest(lengths))
        made = AttnMetadata(self.plans.step(starts, lengths, page_table(slots, self.page_size)))
        if self.has_windowed_pool:
            table = windowed_table(self.pool, slots, self.page_size)
            made.windowed = self.windowed_plans.step(starts, lengths, table)
            made.windowed_slots = self.pool.translate_loc_from_full_to_swa(batch.out_cache_loc)
        return made

    def _slots(self, batch: ForwardBatch, longest: int) -> Tensor:
        """Return the slot of the first token of each page of sequences, of which the longest has so many tokens."""
        return self.requests.req_to_token[:, : longest : self.page_size][batch.req_pool_indices]

    def _verified(self, batch: ForwardBatch) -> AttnMetadata:
        """Return the step of drafts, whose tokens SGLang does not count in its lengths."""
        about, front = batch.spec_info, batch.seq_lens.cpu()
        drafts = about.draft_token_num
        starts, lengths = torch.arange(len(front) + 1) * drafts, front + drafts
        if about.tree_topk == 1 or about.custom_mask is None:
            return self._rows_of(batch, starts, lengths)
        parents = parents_of(tree_masks(about.custom_mask, front, drafts)).ravel()
        slots, at = self._slots(batch, _longest(front)), batch.out_cache_loc[: int(starts[-1])]
        table = page_table(slots, self.page_size)
        made = AttnMetadata(self.draft_plans.step(starts, lengths, table, at, parents))
        if self.has_windowed_pool:
            table = windowed_table(self.pool, slots, self.page_size)
            at = made.windowed_slots = self.pool.translate_loc_from_full_to_swa(batch.out_cache_loc)
            made.windowed = self.windowed_draft_plans.step(
                starts, lengths, table, at[: int(starts[-1])], parents
            )
        return made

    def forward_decode(self, *given: Any, **options: Any) -> Tensor:
        return self._forward(*given, **options)

    def forward_extend(self, *given: Any, **options: Any) -> Tensor:
        return self._forward(*given, **options)

    def _forward(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Compute attention of a layer, after writing its new keys and values. `q` and the result are
        `[rows, heads * dim]`; rows past the step's are zero."""
        unknown = [name for name, value in others.items() if value is not None and value is not False]
        if unknown:
            raise NotImplementedError(f"attn's backend: expected no {', '.join(unknown)} of a layer")
        assert self.forward_metadata is not None, "SGLang prepares a batch before it runs a layer"
        if layer not in self.layers:
            raise NotImplementedError(
                f"attn's backend: expected absorbed queries over latents in layer {layer.layer_id}, got "
                f"{layer.tp_k_head_num} heads of expanded keys with {layer.qk_head_dim} features"
            )
        if save_kv_cache and k is not None:
            slots = self.forward_metadata.windowed_slots
            where = KVWriteLoc.for_layer(forward_batch, layer, swa_loc=slots)
            scales = () if self.has_latents else (layer.k_scale, layer.v_scale)
            self.pool.set_kv_buffer(layer, where, k, v, *scales)
        described, tensors = self.layers[layer], {}
        if sinks is not None:
            described, tensors["sink_logits"] = replace(described, sinks=True), sinks.detach().float()
        step = self._step(layer)
        if isinstance(step, DeviceStep):
            described = replace(described, device_plan=True)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = torch.empty(*q.shape[:2], layer.v_head_dim, dtype=q.dtype, device=q.device)
        out[step.rows :] = 0
        pages = self._pages(layer, self.page_size)
        if isinstance(step, DraftStep):
            kernel = self._kernel(described, drafts=True)
            step.run(kernel, q, pages, self._pages(layer, 1), out=out, **tensors)
        else:
            step.run(self._kernel(described), q, pages, out=out, **tensors)
        return out.flatten(1)

    def _step(self, layer: RadixAttention) -> Step | DraftStep | DeviceStep:
        """Return the step with the table of a layer's pool."""
        metadata = self.forward_metadata
        assert metadata is not None
        if self.has_windowed_pool and self.pool.layers_mapping[layer.layer_id][1]:
            assert metadata.windowed is not None
            return metadata.windowed
        return metadata.step

    def _pages(self, layer: RadixAttention, size: int) -> tuple[Tensor, ...]:
        if self.has_latents:
            pages: tuple[Tensor, ...] = (pages_of(self.pool.get_key_buffer(layer.layer_id), size),)
        else:
            pages = tuple(pages_of(pool, size) for pool in self.pool.get_kv_buffer(layer.layer_id))
        return pages if self.format is None else pages + self._scales_of(layer)

    def _scales_of(self, layer: RadixAttention) -> tuple[Tensor, ...]:
        """Return the factors of the elements of 8-bit pools: SGLang's, or 1. SGLang writes latents without one."""
        if layer not in self._scales:
            one = torch.ones(1, dtype=torch.float32, device=self.device)
            if self.has_latents:
                self._scales[layer] = (one,)
                return self._scales[layer]
            given = layer.k_scale, layer.v_scale
            key, value = (one if scale is None else scale.detach().float().view(1) for scale in given)
            self._scales[layer] = key, value
        return self._scales[layer]
