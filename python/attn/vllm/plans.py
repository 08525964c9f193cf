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


def refusals(config: VllmConfig | None) -> list[str]:
    """Return why an engine's option is refused."""
    asked, format = caches.asked(config, OPTION), caches.asked(config)
    if asked is not None and not isinstance(asked, bool):
        return [f"{OPTION}: expected True or False, got {asked!r}"]
    if asked and format is not None:
        return [f"{OPTION}: expected False beside {caches.OPTION}={format}, got True"]
    return []


def on_device(config: VllmConfig, device_type: str) -> bool:
    """Return whether the device makes plans."""
    asked = caches.asked(config, OPTION)
    return (device_type == "cuda" and caches.asked(config) is None) if asked is None else asked
