# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where an engine's plans are made: on the device of a GPU, unless `additional_config={"attn_device_plans": False}` says
otherwise, and on the host for a CPU and for attn's formats, whose pages have a block table for each head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import caches

if TYPE_CHECKING:
    from vllm.config import VllmConfig

OPTION = "attn_device_plans"
"""The option's name in additional_config."""


def on_device(config: VllmConfig, device_type: str) -> bool:
    """Return whether the device makes plans. Raises ValueError."""
    options, format = config.additional_config, caches.asked(config)
    asked = options.get(OPTION) if isinstance(options, dict) else None
    if asked is not None and not isinstance(asked, bool):
        raise ValueError(f"{OPTION}: expected True or False, got {asked!r}")
    if asked and format is not None:
        raise ValueError(f"{OPTION}: expected False beside {caches.OPTION}={format}, got True")
    return (device_type == "cuda" and format is None) if asked is None else asked
