# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn as the attention of SGLang, by name: `sglang.Engine(model_path=model, attention_backend="attn")`.

SGLang calls `register` in each of its processes (the entry point `attn` of `sglang.srt.plugins`). It adds a name, and
imports nothing else of attn: an engine that asks for another backend is not changed."""

from __future__ import annotations

import logging
from typing import Any

NAME = "attn"
"""The name of the backend in SGLang."""

_logger = logging.getLogger(__name__)


def register() -> None:
    """Register attn's backend with SGLang, and what its options have to be."""
    try:
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
        from sglang.srt.server_args import add_attention_backend_choices
    except ImportError as error:
        _logger.warning(
            "attn is not registered: this SGLang has no registry of attention backends (%s)", error
        )
        return
    register_attention_backend(NAME)(_backend)
    add_attention_backend_choices([NAME])
    _register_deterministic()
    try:
        from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    except ImportError:  # An older version, which the backend refuses when it is made.
        return
    register_resolution_hook("handle_attention_backend_compatibility")(_options)


def _register_deterministic() -> None:
    """Let SGLang take attn for enable_deterministic_inference, with its cache of prefixes."""
    try:
        from sglang.srt.server_args import (
            add_deterministic_attention_backend_choices,
            add_radix_supported_deterministic_attention_backend_choices,
        )
    except ImportError:  # An older version, which the backend refuses when it is made.
        return
    add_deterministic_attention_backend_choices([NAME])
    add_radix_supported_deterministic_attention_backend_choices([NAME])


def _backend(runner: Any) -> Any:
    from .selection import backend

    return backend(runner, NAME)


def _options(server_args: Any, previous: Any) -> None:
    """Run SGLang's step of reading its options, and then attn's, if attn is asked for."""
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view

    previous(server_args)
    if NAME in attention_backends_of(resolved_view(server_args)):
        from .selection import check_options

        check_options(server_args)
