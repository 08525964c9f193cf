# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's interfaces over attn.serving: the backend, its metadata of a step, and the attention of a layer.

vLLM gives a layer's cache as `[blocks, heads, tokens, key and value]` in any order of memory; kernels read it as it is.
Layers of a group share a block table, and so the plan of a step: one for each kernel among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm import envs
from vllm.config import (
    get_current_vllm_config,
    get_current_vllm_config_or_none,
    get_layers_from_vllm_config,
)
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.quantization.utils.quant_utils import QuantKey, kFp8StaticTensorSym
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
)
from vllm.v1.kv_cache_interface import KVCacheLayout

from ..run.kernel import Kernel
from ..serving import (
    DeviceStep,
    KeptPages,
    Layer,
    PackedPages,
    Pages,
    Step,
    Tokens,
)
from . import caches, plans
from .checks import Checked, refused_layer
from .limits import FORMATS

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import AttentionSpec

_SCALED = "fp8_e4m3", "fp8_e5m2", "nvfp4"  # Formats with a scale of the whole tensor, vLLM's own.


class AttnBackend(Checked, AttentionBackend):
    """Decoder attention by attn. `validate_configuration` says what it refuses."""

    forward_includes_kv_cache_update = False
    supported_kv_cache_dtypes = list(FORMATS)  # type: ignore[assignment,misc]

    @staticmethod
    def get_impl_cls() -> type[AttnImpl]:
        return AttnImpl

    @staticmethod
    def get_builder_cls() -> type[AttnMetadataBuilder]:
        return AttnMetadataBuilder

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return KVCacheLayout.LBNHC, KVCacheLayout.LBHNC

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        """Return the spec with the bytes of a token of a head, where attn's format is asked for."""
        return caches.customized(spec, get_current_vllm_config_or_none())

    @classmethod
    def supports_sink(cls) -> bool:
        return True


@dataclass
class AttnMetadata(AttentionMetadata):
    """A step of a group of layers."""

    step: Step | DeviceStep
    tokens: Tokens | None = None

    def new_tokens(self, slots: Tensor) -> Tokens:
        """Return the step's new tokens, which all layers of the group have."""
        known = self.tokens
        if known is None or (known.slots.data_ptr(), len(known)) != (slots.data_ptr(), len(slots)):
            known = self.tokens = Tokens(slots)
        return known


class AttnMetadataBuilder(AttentionMetadataBuilder[AttnMetadata]):
    """Keeps the plans of a group's layers. Compiles their kernels when it is made."""

    _cudagraph_support = AttentionCGSupport.ALWAYS

    @classmethod
    def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: Any) -> AttentionCGSupport:
        """Plans of the host are in no graph."""
        on_device = plans.on_device(vllm_config, vllm_config.device_config.device_type)
        return AttentionCGSupport.ALWAYS if on_device else AttentionCGSupport.NEVER

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
        if kv_cache_spec.head_size_v != kv_cache_spec.head_size:
            raise ValueError(
                f"attn's backend: expected values of the keys' {kv_cache_spec.head_size} features, "
                f"got {kv_cache_spec.head_size_v}"
            )
        for layer in get_layers_from_vllm_config(vllm_config, Attention, layer_names).values():
            fuses = bool(vllm_config.compilation_config.pass_config.fuse_attn_quant)
            layer.impl.compile(kv_cache_spec.block_size, device, on_device, quantizes=fuses)
            if layer.impl.layer.is_packed:
                caches.check_spec(kv_cache_spec, layer.impl.layer)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> AttnMetadata:
        """Return the step. Plans of the host wait for lengths and block tables on a GPU; plans of the device wait for
        nothing."""
        asked = common_attn_metadata
        if asked.causal is not True:
            raise ValueError("attn's backend: expected causal rows, got others in a step")
        count, lengths, table = asked.num_reqs, asked.seq_lens, asked.block_table_tensor
        if lengths.shape[0] > count or table.shape[0] > count:
            lengths, table = lengths[:count], table[:count]
        starts, of_host = asked.query_start_loc, asked.query_start_loc_cpu[: count + 1]
        if starts.shape[0] > count + 1:
            starts = starts[: count + 1]
        rows, longest = asked.num_actual_tokens, asked.max_query_len
        step = plans.step(self.plans, of_host, starts, lengths, table, rows=rows, longest=longest)
        return AttnMetadata(step)


class AttnImpl(AttentionImpl[AttnMetadata]):
    """The attention of a layer."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: Tensor | None = None,
        **others: Any,
    ):
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.sliding_window, self.kv_cache_dtype, self.sinks = sliding_window, kv_cache_dtype, sinks
        self.logits_soft_cap, self.alibi_slopes = logits_soft_cap or 0.0, alibi_slopes
        self.dtype = torch.get_default_dtype()
        reasons = refused_layer(
            AttnBackend,
            head_size,
            kv_cache_dtype,
            attn_type,
            kv_sharing_target_layer_name,
            has_sink=sinks is not None,
            has_sliding_window=sliding_window is not None,
        )
        unknown = [name for name, value in others.items() if value not in (None, False, -1)]
        reasons += [f"{name}: attn has no such option" for name in unknown]
        if reasons:
            raise ValueError(f"attn's backend cannot serve this layer: {'; '.join(reasons)}")
        packed = caches.asked(get_current_vllm_config())
        caches.remember(packed)
        self.format = packed or FORMATS[kv_cache_dtype]
        self.kernel: Kernel | None = None
        self.quantizing: Kernel | None = None
        self.tensors: dict[str, Tensor] = {}

    def fused_output_quant_supported(self, quant_key: QuantKey) -> bool:
        """Whether the kernel quantizes its output so: to e4m3, with a static scale of the whole tensor."""
        return quant_key == kFp8StaticTensorSym

    def compile(
        self, page_size: int, device: torch.device, device_plan: bool, quantizes: bool = False
    ) -> None:
        """Compile the kernel, for pages of so many tokens and for plans of the host or of the device. `quantizes`: another
        one, too, whose output is in e4m3."""
        self.layer = Layer(
            q_heads=self.num_heads,
            kv_heads=self.num_kv_heads,
            head_dim=self.head_size,
            dtype=self.dtype,
            page_size=page_size,
            scale=self.scale,
            window=self.sliding_window,
            softcap=self.logits_soft_cap,
            alibi=self.alibi_slopes is not None,
            sinks=self.sinks is not None,
            format=self.format,
            device_plan=device_plan,
            numerics="row" if envs.VLLM_BATCH_INVARIANT else None,
        )
        self.kernel, self.pages = self.layer.compile(device), KeptPages(self.layer)
        if quantizes:
            self.quantizing = replace(self.layer, output="fp8_e4m3").compile(device)
        if self.sinks is not None:  # Weights are loaded by now.
            self.tensors["sink_logits"] = self.sinks.detach().to(device, torch.float32).contiguous()
        if self.alibi_slopes is not None:
            self.tensors["slopes"] = torch.tensor(self.alibi_slopes, dtype=torch.float32, device=device)

    def _pages(self, layer: Any, kv_cache: Tensor) -> Pages | PackedPages:
        scales = dict(k_scale=layer._k_scale, v_scale=layer._v_scale) if self.format in _SCALED else {}
        return self.pages.of(kv_cache, **scales)

    def do_kv_cache_update(
        self, layer: Any, key: Tensor, value: Tensor, kv_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Write new keys and values into the layer's cache."""
        if kv_cache.numel() == 0:
            return
        step = _metadata_of(layer)
        tokens = Tokens(slot_mapping) if step is None else step.new_tokens(slot_mapping)
        self._pages(layer, kv_cache).write(key, value, tokens)

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: AttnMetadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """Compute attention of a layer into `output` [rows, heads, head_size]; with `output_scale` in e4m3."""
        if output_block_scale is not None:
            raise NotImplementedError(
                "attn's backend: expected one scale of a quantized output, got scales of blocks"
            )
        if attn_metadata is None:  # A run that measures memory.
            return output.zero_()
        assert self.kernel is not None, "vLLM makes a group's builder before it runs a layer"
        pages = self._pages(layer, kv_cache)
        if output_scale is None:
            return attn_metadata.step.run(self.kernel, query, pages, out=output, **self.tensors)
        if self.quantizing is None:
            raise NotImplementedError(
                "attn's backend: expected pass_config.fuse_attn_quant beside a scale of outputs, got neither when kernels "
                "were compiled"
            )
        named = self.tensors | {"output_scale": output_scale.view(1)}
        return attn_metadata.step.run(self.quantizing, query, pages, out=output, **named)


def _metadata_of(layer: Any) -> AttnMetadata | None:
    """Return the metadata of the step that runs, if each layer has one."""
    of_layers = get_forward_context().attn_metadata
    found = of_layers.get(layer.layer_name) if isinstance(of_layers, dict) else None
    return found if isinstance(found, AttnMetadata) else None
