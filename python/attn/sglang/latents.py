# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latent attention (MLA) in SGLang: all steps are of absorbed queries."""

from __future__ import annotations

from typing import Any


def absorb(backend: str) -> None:
    """Let SGLang's models of DeepSeek's kind absorb queries in each step of a backend. By default SGLang expands prompts
    without a prefix to keys and values, which are in no pool."""
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    def absorbed(layer: Any, batch: Any) -> Any:
        return AttnForwardMethod.MLA

    AttentionBackendRegistry.register(backend, absorbed)
