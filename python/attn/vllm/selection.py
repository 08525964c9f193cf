# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The classes whose names vLLM is told. They are chosen when vLLM asks for them: then its configuration is known."""

from __future__ import annotations

from ..serving import refuse_version

RUN_WITH = ("0.32.0",)
"""The versions of vLLM that attn was run in, the oldest first."""


def _backend() -> type:
    from vllm import __version__
    from vllm.logger import init_logger

    if why := refuse_version("vLLM", __version__, RUN_WITH):
        raise ImportError(why)
    from .backend import AttnBackend

    # vLLM shows what loggers below its own say; on a CPU it has just said that it cannot use CUSTOM.
    init_logger("vllm.attn").info_once("Using attn as attention backend CUSTOM.")
    return AttnBackend


def _backend_of_cpu() -> type:
    from vllm.config import get_current_vllm_config_or_none
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    custom = AttentionBackendEnum.CUSTOM
    config = get_current_vllm_config_or_none()
    if config is not None:
        if config.attention_config.backend is custom:
            return _backend()
        if custom in config.attention_config.backend_per_kind.values():
            raise ValueError(
                "attention_config.backend_per_kind: vLLM chooses no backend by kind on a CPU; nearest legal: "
                "attention_config.backend = CUSTOM"
            )
    return resolve_obj_by_qualname(AttentionBackendEnum.CPU_ATTN.value)


def __getattr__(name: str) -> type:
    if name == "Backend":
        return _backend()
    if name == "BackendOfCpu":
        return _backend_of_cpu()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
