# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers as engines describe them, and their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import math
from ..describe.spec import Spec
from ..describe.stores import Paged
from ..describe.visibility import causal, window
from ..errors import SpecError, closest, expected
from ..run.kernel import Kernel
from ..run.kernels import compile as compile_kernel

FORMATS = ("fp8_e4m3", "fp8_e5m2")
"""Formats of keys and values whose scale is a tensor's, as engines have them."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Describes a decoder layer over pages.

    q_heads, kv_heads, head_dim, dtype    as in attn.Spec
    page_size   tokens of a page, a power of two from 1 to 256
    scale       factor of the products of queries and keys; by default 1/sqrt(head_dim)
    window      the number of tokens that a row sees, with its own; by default all up to its own
    softcap     the cap of scores; 0: none
    alibi       whether a slope times the distance of key and query is added to each score, after the cap
    sinks       whether a logit per query head joins the softmax
    format      of keys and values: None for `dtype`, "fp8_e4m3" or "fp8_e5m2" with a scale of the whole tensor
    device_plan whether DevicePlans may make its plans, on the device

    Raises SpecError, with the nearest legal value."""

    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: Any
    page_size: int
    scale: float | None = None
    window: int | None = None
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False
    format: str | None = None
    device_plan: bool = False

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            legal = f"None, {' or '.join(FORMATS)}"
            raise expected(SpecError, "format", legal, self.format, nearest=closest(self.format, FORMATS))
        self.spec()

    def spec(self) -> Spec:
        """Return the description of its kernel."""
        store = Paged(page_size=self.page_size)
        if self.format is not None:
            scaled = dict(key=self.format, value=self.format, key_scales="tensor", value_scales="tensor")
            store = replace(store, **scaled)
        return Spec(
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv=[store],
            see=causal() if self.window is None else window(self.window),
            score=_score(self.softcap, self.alibi),
            tensors={"slopes": (self.q_heads,)} if self.alibi else None,
            sink_logits=self.sinks,
            scale=self.scale,
            return_lse=False,
            device_plan=self.device_plan,
        )

    def compile(self, device: object) -> Kernel:
        """Compile its kernel. `device`: a torch.device or its name; a CPU is the host device."""
        return compile_kernel(self.spec(), device="host" if str(device) == "cpu" else device)


def _score(cap: float, alibi: bool) -> Callable | None:
    def capped(s: Any) -> Any:
        return math.softcap(s, cap) if cap else s

    if alibi:
        return lambda s, h, qi, ki, slopes: capped(s) + slopes[h] * (ki - qi)
    return (lambda s, h, qi, ki: capped(s)) if cap else None
