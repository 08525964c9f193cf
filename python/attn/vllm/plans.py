# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where an engine's plans are made: on the device of a GPU, unless `additional_config={"attn_device_plans": False}` says
otherwise, and on the host for a CPU and for attn's formats, whose pages have a block table for each head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from vllm import envs

from ..serving import DevicePlans, DeviceStep, Plans, Step
from . import caches

if TYPE_CHECKING:
    from vllm.config import VllmConfig

OPTION = "attn_device_plans"
"""The option's name in additional_config."""

SHARED_TOKENS = 64
"""Tokens in front of the rows of neighbours in a batch, at least, that are read once for all of them."""


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


def made(config: VllmConfig, block_size: int, device: torch.device) -> Plans | DevicePlans:
    """Return what makes the plans of a group of layers, whose blocks have so many tokens."""
    if on_device(config, device.type):  # Steps that vLLM pads for its graphs have the sizes of these.
        sizes = config.compilation_config.cudagraph_capture_sizes or ()
        most = config.scheduler_config.max_num_seqs
        return DevicePlans(most, None, device, sizes, in_place=True)  # vLLM keeps a table.
    # A prefix that is read once is a part of its own, and moves bits.
    return Plans(0 if envs.VLLM_BATCH_INVARIANT else -(-SHARED_TOKENS // block_size))


def step(
    plans: Plans | DevicePlans,
    starts_of_host: Tensor,
    starts: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    *,
    rows: int,
    longest: int,
) -> Step | DeviceStep:
    """Return a step. Plans of the host wait for lengths and block tables on a GPU; plans of the device wait for nothing."""
    if isinstance(plans, Plans):
        return plans.step(starts_of_host, lengths, block_table)
    return plans.step(starts, lengths, block_table, rows=rows, longest=longest)
