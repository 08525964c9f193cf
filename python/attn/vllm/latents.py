# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latent attention (MLA) in vLLM: rows of decoding steps read the pool of latents by attn.

vLLM multiplies their queries and outputs by the up-projections of keys and values, and writes latents. It reads prompts
with keys and values that it expands, by the backend of prompts that it chooses apart (`mla_prefill_backend`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm import envs
from vllm.config import get_current_vllm_config, get_layers_from_vllm_config
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonDecodeMetadata,
    MLACommonImpl,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
    get_mla_dims,
)
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionCGSupport

from ..run.kernel import Kernel
from ..serving import DeviceStep, Layer, Step, write_latents
from . import plans
from .checks import Checked, refused_layer
from .limits import LATENT_FORMATS, latent_block

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import AttentionSpec


MOST_ROWS = 512
"""The most rows of steps outside of graphs whose results have memory of their own: 64 MiB with 128 heads of 512."""


class LatentBackend(Checked, MLACommonBackend):
    """Decoding over latents by attn. `validate_configuration` says what it refuses."""

    supported_kv_cache_dtypes = list(LATENT_FORMATS)  # type: ignore[assignment,misc]

    @staticmethod
    def get_impl_cls() -> type[LatentImpl]:
        return LatentImpl

    @staticmethod
    def get_builder_cls() -> type[LatentMetadataBuilder]:
        return LatentMetadataBuilder

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return False  # vLLM's backends of prompts have none over latents.

    @classmethod
    def value_dim(cls, model: Any) -> int | None:
        return None if model is None else get_mla_dims(model).kv_lora_rank

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # `limits.refusals` says which.

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        """Return the tokens of a block where the user names none."""
        return latent_block(default_block_size) if current_platform.is_cuda() else default_block_size


@dataclass
class LatentDecodeMetadata(MLACommonDecodeMetadata):
    """The rows of a step that read latents. `out` is memory for their results [rows, heads, kv_lora_rank], which the next layer
    writes again; None: each layer takes its own."""

    step: Step | DeviceStep | None = None
    out: Tensor | None = None


class LatentMetadataBuilder(MLACommonMetadataBuilder[MLACommonMetadata]):
    """Keeps the plans of a group's layers. Compiles their kernels when it is made."""

    query_len_support = QueryLenSupport.VARLEN

    @classmethod
    def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: Any) -> AttentionCGSupport:
        """Plans of the host are in no graph, nor are prompts."""
        on_device = plans.on_device(vllm_config, vllm_config.device_config.device_type)
        return AttentionCGSupport.UNIFORM_BATCH if on_device else AttentionCGSupport.NEVER

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.plans = plans.made(vllm_config, kv_cache_spec.block_size, device)
        on_device = plans.on_device(vllm_config, device.type)
        # Some models have classes of such layers of their own.
        layers = get_layers_from_vllm_config(vllm_config, AttentionLayerBase, layer_names).values()
        for layer in layers:
            layer.impl.compile(kv_cache_spec.block_size, device, on_device)
        # vLLM multiplies a layer's results before the next layer runs. Memory of their own would be filled with zeros in each
        # layer, for the rows of no sequence, and not once in a step.
        sizes = vllm_config.compilation_config.cudagraph_capture_sizes
        rows = max(sizes) if sizes else min(vllm_config.scheduler_config.max_num_seqs, MOST_ROWS)
        shapes = {(layer.impl.num_heads, layer.impl.kv_lora_rank, layer.impl.dtype) for layer in layers}
        self.out = None
        if on_device and len(shapes) == 1:
            *shape, dtype = shapes.pop()
            self.out = torch.zeros(rows, *shape, dtype=dtype, device=device)

    def _build_decode(
        self,
        block_table_tensor: Tensor,
        seq_lens_device: Tensor,
        max_seq_len: int,
        query_start_loc_cpu: Tensor,
        query_start_loc_device: Tensor,
        num_decode_tokens: int,
        max_query_len: int,
        dcp_tot_seq_lens_device: Tensor | None,
    ) -> LatentDecodeMetadata:
        starts = query_start_loc_cpu, query_start_loc_device
        tables = seq_lens_device, block_table_tensor
        step = plans.step(self.plans, *starts, *tables, rows=num_decode_tokens, longest=max_query_len)
        fits = self.out is not None and num_decode_tokens <= len(self.out)
        out = self.out[:num_decode_tokens].zero_() if fits else None
        return LatentDecodeMetadata(block_table_tensor, seq_lens_device, dcp_tot_seq_lens_device, step, out)


class LatentImpl(MLACommonImpl[MLACommonMetadata]):
    """The attention of a layer over latents."""

    supports_pcp = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        **of_latents: Any,
    ):
        sparse = of_latents.get("indexer") is not None or "topk_indices_buffer" in of_latents
        reasons = refused_layer(
            LatentBackend,
            head_size,
            kv_cache_dtype,
            attn_type,
            kv_sharing_target_layer_name,
            use_mla=True,
            use_sparse=sparse,
            has_sliding_window=sliding_window is not None,
        )
        config = get_current_vllm_config()
        in_chunks = (
            config.cache_config.enable_prefix_caching or config.scheduler_config.enable_chunked_prefill
        )
        if LATENT_FORMATS.get(kv_cache_dtype) and config.device_config.device_type == "cpu" and in_chunks:
            reasons.append(
                f"kv_cache_dtype: expected auto beside prefixes and chunks of prompts over latents on a CPU, got {kv_cache_dtype}: "
                "vLLM reads such a prompt's first tokens from 16 bits alone"
            )
        named = dict(alibi_slopes=alibi_slopes, logits_soft_cap=logits_soft_cap)
        reasons += [f"{name}: attn has no such option over latents" for name in named if named[name]]
        if reasons:
            raise ValueError(f"attn's backend cannot serve this layer: {'; '.join(reasons)}")
        super().__init__(
            num_heads,
            head_size,
            scale,
            num_kv_heads,
            alibi_slopes,
            sliding_window,
            kv_cache_dtype,
            logits_soft_cap,
            attn_type,
            kv_sharing_target_layer_name,
            **of_latents,
        )
        self.supports_quant_query_input = False  # Queries stay in 16 bits over e4m3.
        self.format = LATENT_FORMATS[kv_cache_dtype]
        self.dtype = torch.get_default_dtype()
        self.kernel: Kernel | None = None

    def compile(self, page_size: int, device: torch.device, device_plan: bool) -> None:
        """Compile the kernel, for pages of so many tokens and for plans of the host or of the device."""
        self.layer = Layer(
            q_heads=self.num_heads,
            kv_heads=1,
            head_dim=self.head_size,
            dtype=self.dtype,
            page_size=page_size,
            scale=self.scale,
            format=self.format,
            device_plan=device_plan,
            numerics="row" if envs.VLLM_BATCH_INVARIANT else None,
            value_dim=self.kv_lora_rank,
        )
        self.kernel = self.layer.compile(device)

    def do_kv_cache_update(
        self,
        kv_c_normed: Tensor,
        k_pe: Tensor,
        kv_cache: Tensor,
        slot_mapping: Tensor,
        kv_cache_dtype: str,
        k_scale: Tensor,
    ) -> None:
        """Write new latents into the layer's cache [blocks, tokens, features]. vLLM's kernel for that is one of GPUs."""
        if kv_cache.numel() == 0:
            return
        if kv_cache.device.type != "cpu":
            super().do_kv_cache_update(kv_c_normed, k_pe, kv_cache, slot_mapping, kv_cache_dtype, k_scale)
            return
        slots = slot_mapping.flatten()
        latents = torch.cat([kv_c_normed, k_pe.squeeze(1)], -1)
        scaled = {} if self.format is None else dict(scale=k_scale.view(1))
        write_latents(self._lines(kv_cache), latents, slots, value_dim=self.kv_lora_rank, **scaled)

    def _lines(self, kv_cache: Tensor) -> Tensor:
        """Return the cache in the dtype of its elements: vLLM keeps 8-bit floats as bytes."""
        return kv_cache if self.format is None else kv_cache.view(torch.float8_e4m3fn)

    def forward_mqa(
        self,
        q: Tensor | tuple[Tensor, Tensor],
        kv_c_and_k_pe_cache: Tensor,
        attn_metadata: MLACommonMetadata,
        layer: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the rows of decoding, of absorbed queries [rows, heads, head_size] or their two parts. Returns
        [rows, heads, kv_lora_rank], and no LSE, which contexts in parts would need."""
        assert self.kernel is not None, "vLLM makes a group's builder before it runs a layer"
        assert isinstance(attn_metadata.decode, LatentDecodeMetadata)
        step, out = attn_metadata.decode.step, attn_metadata.decode.out
        assert step is not None
        rows = q if isinstance(q, Tensor) else torch.cat(q, -1)
        lines = self._lines(kv_c_and_k_pe_cache).unsqueeze(2)
        pages = (lines,) if self.format is None else (lines, layer._k_scale.view(1))
        return step.run(self.kernel, rows, pages, out=out), None
