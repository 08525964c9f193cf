# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn as the attention of vLLM, by name: `vllm.LLM(model, attention_backend="CUSTOM")`.

vLLM calls `register` in each of its processes (the entry point `attn` of `vllm.general_plugins`). It gives vLLM the name
of `selection.Backend` and imports nothing else: an engine that asks for another backend is not changed."""

from __future__ import annotations

import logging

CPU_NAMES = {"BackendOfCpu": "CPU_ATTN", "LatentsOfCpu": "CPU_MLA", "LatentsOfAmx": "AMX_MLA"}
"""vLLM's backends of CPUs by the names in `selection` that are in their place."""

_logger = logging.getLogger(__name__)


def register() -> None:
    """Register attn as vLLM's backend CUSTOM. vLLM's platform of CPUs chooses among its own backends whatever a user asks
    for: there their names are resolved to attn if CUSTOM is asked for, and else to vLLM's own."""
    try:
        from vllm.platforms import current_platform
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except ImportError as error:
        _logger.warning("attn is not registered: this vLLM has no registry of attention backends (%s)", error)
        return
    register_backend(AttentionBackendEnum.CUSTOM, "attn.vllm.selection.Backend")
    if current_platform.is_cpu():
        for name, of_vllm in CPU_NAMES.items():
            if of_vllm in AttentionBackendEnum.__members__:  # Older versions have fewer.
                register_backend(AttentionBackendEnum[of_vllm], f"attn.vllm.selection.{name}")
