# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn's backends of vLLM have in common: what they say of themselves, and why they refuse a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm import envs
from vllm.config import get_current_vllm_config, get_current_vllm_config_or_none

from . import caches, plans
from .limits import PAGE_SIZES, VAGUE, refusals

if TYPE_CHECKING:
    from vllm.v1.attention.backend import AttentionBackend

    _Base = AttentionBackend
else:
    _Base = object


class Checked(_Base):
    """A part of a backend, in front of vLLM's class: decoder attention over pages."""

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @classmethod
    def value_dim(cls, model: Any) -> int | None:
        """Return the features of a value that are a part of its key, in vLLM's configuration of a model."""
        return None

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return list(PAGE_SIZES)

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return capability is None or capability >= (8, 0)

    @classmethod
    def validate_configuration(  # type: ignore[override]
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: Any,
        block_size: int | None,
        use_mla: bool,
        *others: Any,
        attn_type: str,
        **named: Any,
    ) -> list[str]:
        """Return why a configuration is refused; [] if it is served."""
        given = head_size, dtype, kv_cache_dtype, block_size
        of_vllm = super().validate_configuration(*given, use_mla, *others, attn_type=attn_type, **named)
        config = get_current_vllm_config_or_none()
        packed = caches.asked(config)
        value_dim = cls.value_dim(None if config is None else config.model_config)
        latent = cls.is_mla()
        ours = refusals(*given, attn_type=attn_type, packed=packed, latent=latent, value_dim=value_dim)
        if packed is not None:
            ours += caches.refusals(packed, config.cache_config)
        ours += plans.refusals(config)
        said = VAGUE | {f"attention type {attn_type} not supported"}
        return ours + [reason for reason in of_vllm if reason not in said]


def refused_layer(
    backend: type[Checked],
    head_size: int,
    kv_cache_dtype: str,
    attn_type: str,
    shared: str | None,
    **named: Any,
) -> list[str]:
    """Return why a layer is refused, for what vLLM's platform of CPUs does not ask `validate_configuration`, and what this
    layer alone has. `shared`: the layer whose cache it reads; `named`: arguments of validate_configuration."""
    config = get_current_vllm_config()
    cache, parallel, model = config.cache_config, config.parallel_config, config.model_config
    reasons = backend.validate_configuration(
        head_size,
        torch.get_default_dtype(),
        kv_cache_dtype,
        cache.block_size if cache is not None and cache.user_specified_block_size else None,
        attn_type=attn_type,
        use_mm_prefix=model is not None and model.is_mm_prefix_lm,
        use_per_head_quant_scales=False,
        device_capability=None,
        use_non_causal=config.attention_config.use_non_causal,
        use_batch_invariant=envs.VLLM_BATCH_INVARIANT,
        use_kv_connector=config.kv_transfer_config is not None,
        use_pcp=parallel.prefill_context_parallel_size > 1,
        use_dcp=parallel.decode_context_parallel_size > 1,
        use_rswa=model is not None and model.rswa_window is not None,
        **dict(use_mla=False, has_sink=False, use_sparse=False) | named,
    )
    if shared is not None:
        reasons.append(f"keys and values of another layer, {shared}")
    return reasons
