# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The classes whose names vLLM is told. They are chosen when vLLM asks for them: then its configuration is known."""

from __future__ import annotations

from ..serving import refuse_version
from . import CPU_NAMES

RUN_WITH = ("0.32.0",)
"""The versions of vLLM that attn was run in, the oldest first."""


def _backend(latent: bool) -> type:
    from vllm import __version__
    from vllm.logger import init_logger

    if why := refuse_version("vLLM", __version__, RUN_WITH):
        raise ImportError(why)
    # vLLM shows what loggers below its own say; on a CPU it has just said that it cannot use CUSTOM.
    init_logger("vllm.attn").info_once("Using attn as attention backend CUSTOM.")
    if latent:
        from .latents import LatentBackend

        return LatentBackend
    from .backend import AttnBackend

    return AttnBackend


def _backend_of_model() -> type:
    """Return the backend of a GPU: vLLM has one name for layers of MLA and for others."""
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    model = None if config is None else config.model_config
    return _backend(model is not None and model.use_mla)


def _backend_of_cpu(name: str) -> type:
    from vllm.config import get_current_vllm_config_or_none
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    custom = AttentionBackendEnum.CUSTOM
    config = get_current_vllm_config_or_none()
    if config is not None:
        if config.attention_config.backend is custom:
            return _backend(name != "CPU_ATTN")
        if custom in config.attention_config.backend_per_kind.values():
            raise ValueError(
                "attention_config.backend_per_kind: vLLM chooses no backend by kind on a CPU; nearest legal: "
                "attention_config.backend = CUSTOM"
            )
    return resolve_obj_by_qualname(AttentionBackendEnum[name].value)


def __getattr__(name: str) -> type:
    if name == "Backend":
        return _backend_of_model()
    if name in CPU_NAMES:
        return _backend_of_cpu(CPU_NAMES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
