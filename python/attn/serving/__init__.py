# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the adapter of a serving engine needs: an engine keeps its pools and block tables, and attn reads them there.

    layer = attn.serving.Layer(q_heads=9, kv_heads=3, head_dim=64, dtype="float16", page_size=16)
    kernel = layer.compile("cpu")                           # once, when the page size is known
    plans = attn.serving.Plans(shared_pages=4)              # of one block table's layers
    pages = layer.pages(cache)                              # of each layer, once
    step = plans.step(q_start, lengths, block_table)        # once a step
    tokens = attn.serving.Tokens(slots)                     # once a step
    pages.write(k, v, tokens)                               # in each layer
    step.run(kernel, q, pages, out=out)

Keys and values in fewer bits, `Layer(format="int8_int4")`, lie in pages with their scales.

Nothing here imports an engine. It needs PyTorch. `attn.vllm` and `attn.sglang` are adapters."""

from __future__ import annotations

from ..memory.page_sizes import page_of as page_of
from .device_steps import DevicePlans as DevicePlans
from .device_steps import DeviceStep as DeviceStep
from .drafts import DraftPlans as DraftPlans
from .drafts import DraftStep as DraftStep
from .drafts import compile_drafts as compile_drafts
from .drafts import parents_of as parents_of
from .latents import write_latents as write_latents
from .layers import KeptPages as KeptPages
from .layers import Layer as Layer
from .packed import PackedPages as PackedPages
from .pages import Pages as Pages
from .pools import page_table as page_table
from .pools import pages_of as pages_of
from .pools import split_lines as split_lines
from .pools import write_tokens as write_tokens
from .steps import Plans as Plans
from .steps import Step as Step
from .tokens import Tokens as Tokens
from .versions import refuse_version as refuse_version

__all__ = [
    "DevicePlans",
    "DeviceStep",
    "DraftPlans",
    "DraftStep",
    "KeptPages",
    "Layer",
    "PackedPages",
    "Pages",
    "Plans",
    "Step",
    "Tokens",
    "compile_drafts",
    "page_of",
    "page_table",
    "pages_of",
    "parents_of",
    "refuse_version",
    "split_lines",
    "write_latents",
    "write_tokens",
]
