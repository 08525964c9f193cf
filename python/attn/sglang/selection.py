# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happens when SGLang is asked for attn: its version and its options are checked, CUDA graphs that attn does not serve
are switched off, and the backend is made."""

from __future__ import annotations

import logging
from typing import Any

from ..serving import refuse_version
from .limits import refused_options

RUN_WITH = ("0.5.23",)
"""The versions of SGLang that attn was run in, the oldest first."""

_logger = logging.getLogger("sglang.attn")  # SGLang shows what loggers below its own say.


def check_options(server_args: Any) -> None:
    """Switch those CUDA graphs off that attn does not serve. Raises ValueError, with all reasons, if attn does not serve
    what the options ask for."""
    from sglang.srt.arg_groups.overrides import (
        declare_resolution,
        model_config_of,
        resolved_view,
    )
    from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, with_phase

    options = resolved_view(server_args)
    model = model_config_of(server_args)
    reasons = refused_options(options, model.is_encoder_decoder)
    if reasons:
        raise ValueError(f"attn's backend cannot serve these options: {'; '.join(reasons)}")
    graphs, off = options.cuda_graph_config, []
    if graphs[Phase.PREFILL].backend != Backend.DISABLED:
        off.append((Phase.PREFILL, "prompts: attn's backend plans them on the host"))
    decode = graphs[Phase.DECODE].backend
    if decode != Backend.DISABLED and options.speculative_algorithm:
        off.append((Phase.DECODE, "drafts: attn's backend plans them on the host"))
    elif decode == Backend.BREAKABLE:
        off.append((Phase.DECODE, f"decoding: attn serves those of {Backend.FULL!r}, not of {decode!r}"))
    for phase, why in off:
        graphs = with_phase(graphs, phase, backend=Backend.DISABLED)
        _logger.warning("CUDA graphs are switched off for %s", why)
    if off:
        declare_resolution(server_args, "attn", cuda_graph_config=graphs)


def backend(runner: Any, name: str) -> Any:
    """Make the backend of a model runner, which SGLang knows by `name`. Raises ImportError for older versions of SGLang, and ValueError for layers and
    pools that attn does not serve."""
    from sglang.version import __version__

    if why := refuse_version("SGLang", __version__, RUN_WITH):
        raise ImportError(why)
    from .backend import AttnBackend
    from .latents import absorb

    made = AttnBackend(runner)
    if made.has_latents:
        absorb(name)
    _logger.info("Using attn as attention backend, in pages of %d tokens.", made.page_size)
    return made
