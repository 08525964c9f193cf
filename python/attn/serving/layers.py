# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers as engines describe them, and their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import math
from ..describe.spec import Spec
from ..describe.stores import Paged, Store, first
from ..describe.visibility import causal, window
from ..errors import SpecError, closest, expected
from ..memory.dtypes import storage_name
from ..run.kernel import Kernel
from ..run.kernels import compile as compile_kernel
from .formats import NAMES, PACKED, SCALED, Packing
from .packed import PackedPages
from .pages import Pages


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Describes a decoder layer over pages.

    q_heads, kv_heads, head_dim, dtype    as in attn.Spec
    page_size   tokens of a page, 1 to 8 or a multiple of 16 up to 2048
    scale       factor of the products of queries and keys; by default 1/sqrt(head_dim)
    window      the number of tokens that a row sees, with its own; by default all up to its own
    softcap     the cap of scores; 0: none
    alibi       whether a slope times the distance of key and query is added to each score, after the cap
    sinks       whether a logit per query head joins the softmax
    format      of keys and values: None for `dtype`; "fp8_e4m3" or "fp8_e5m2" with a scale of the whole tensor; or with
                metadata of each token and head "int8", "int8_int4" (keys of 8 bits, values of 4), "int4", "int4_int2",
                "mxfp8", "mxfp4", "nvfp4"
    output      "fp8_e4m3": the output is float8_e4m3fn, and a step's run takes `output_scale`, float32 [1], as of attn.Spec;
                None: the output has `dtype`
    output_scales  "head": a step's run takes no `output_scale`, and returns (out, output_scales), as of attn.Spec
    device_plan whether DevicePlans may make its plans, on the device: of formats without metadata of each token
    numerics    "row" or None, as of attn.Spec
    value_dim   of latents (MLA): a line of head_dim features is a key, and its first value_dim are the value. Steps
                run over the pool alone, `(lines,)` of [pages, page_size, 1, head_dim], with format "fp8_e4m3"
                `(lines, scale)`; their outputs are [rows, q_heads, value_dim]. kv_heads is 1, `write_latents` writes

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
    output: str | None = None
    output_scales: str = "tensor"
    device_plan: bool = False
    numerics: str | None = None
    value_dim: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in NAMES:
            legal = f"None, {', '.join(NAMES[:-1])} or {NAMES[-1]}"
            nearest = "fp8_e4m3" if self.format == "fp8" else closest(self.format, NAMES)
            raise expected(SpecError, "format", legal, self.format, nearest=nearest)
        if self.device_plan and self.is_packed:
            raise expected(
                SpecError, "device_plan", f"False with format {self.format!r}", True, nearest=False
            )
        if self.value_dim is not None and self.kv_heads != 1:
            raise expected(SpecError, "kv_heads", "1 beside value_dim", self.kv_heads, nearest=1)
        if self.value_dim is not None and self.format not in (None, "fp8_e4m3"):
            legal = "None or 'fp8_e4m3' beside value_dim"
            raise expected(SpecError, "format", legal, self.format, nearest="fp8_e4m3")
        self.spec()

    @property
    def is_packed(self) -> bool:
        """Whether scales and zero points lie beside keys and values, so that `pages` are its operand."""
        return self.format in PACKED

    @property
    def torch_dtype(self) -> torch.dtype:
        """PyTorch's dtype of queries, and of new keys and values."""
        return getattr(torch, storage_name("dtype", self.dtype))

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's key and value of one head, with their metadata: C of an engine's [pages, heads, page_size,
        C]. A block of page_size * C bytes is a multiple of 16 in packed formats."""
        if self.is_packed:
            return self._packing().token_bytes
        return (2 if self.value_dim is None else 1) * self.head_dim * (1 if self.format in SCALED else 2)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page of all KV heads."""
        return self.kv_heads * self.page_size * self.token_bytes

    def store(self) -> Store:
        """Return the store of keys and values."""
        if self.value_dim is not None:
            scaled = {} if self.format is None else dict(key=self.format, key_scales="tensor")
            return Paged(page_size=self.page_size, value=first(self.value_dim), **scaled)
        if self.format is None:
            return Paged(page_size=self.page_size)
        if self.format in SCALED:
            scaled = dict(key=self.format, value=self.format, key_scales="tensor", value_scales="tensor")
            return Paged(page_size=self.page_size, **scaled)
        return self._packing().store()

    def _packing(self) -> Packing:
        assert self.format is not None
        return Packing(self.format, self.kv_heads, self.head_dim, self.page_size, self.torch_dtype)

    def pages(
        self, cache: Tensor, *, k_scale: Tensor | None = None, v_scale: Tensor | None = None
    ) -> Pages | PackedPages:
        """Return the pages in an engine's memory, to write and to read.

        cache   [pages, kv_heads, page_size, C] with a key and then a value in each line, and any strides: C is 2 * head_dim
                elements of `dtype`, or as many bytes of an 8-bit float. In packed formats C is token_bytes bytes, or as many
                in another dtype. Pages are then in one piece each, heads before tokens or tokens before heads, and bytes
                are laid out anew (packed.py)
        k_scale, v_scale  of 8-bit floats and of nvfp4: the scale of the whole tensor, float32 [1]; by default 1. A change of
                its element is seen

        Raises TensorError; SpecError with `value_dim`, whose pool has no values beside keys."""
        if self.value_dim is not None:
            raise expected(SpecError, "value_dim", "None: steps take (lines,) of latents", self.value_dim)
        if self.is_packed:
            return PackedPages(self._packing(), cache, k_scale, v_scale)
        return Pages(cache, self.head_dim, self.format, k_scale, v_scale)

    def spec(self) -> Spec:
        """Return the description of its kernel."""
        return Spec(
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv=[self.store()],
            see=causal() if self.window is None else window(self.window),
            score=_score(self.softcap, self.alibi),
            tensors={"slopes": (self.q_heads,)} if self.alibi else None,
            sink_logits=self.sinks,
            output=self.output,
            output_scales=self.output_scales,
            scale=self.scale,
            return_lse=False,
            device_plan=self.device_plan,
            numerics=self.numerics,
        )

    def compile(self, device: object) -> Kernel:
        """Compile its kernel. `device`: a torch.device or its name; a CPU is the host device."""
        return compile_kernel(self.spec(), device="host" if str(device) == "cpu" else device)


class KeptPages:
    """The pages of a layer, made once for its cache, and again when an engine moves the cache or its scales."""

    def __init__(self, layer: Layer):
        self.layer = layer
        self._kept: tuple[tuple, Pages | PackedPages] | None = None

    def of(self, cache: Tensor, **scales: Tensor) -> Pages | PackedPages:
        """Return the pages in an engine's memory; `cache` and `scales` as of `Layer.pages`. Raises TensorError."""
        lies = cache.data_ptr(), cache.shape, cache.stride(), *map(Tensor.data_ptr, scales.values())
        if self._kept is None or self._kept[0] != lies:
            self._kept = lies, self.layer.pages(cache, **scales)
        return self._kept[1]


def _score(cap: float, alibi: bool) -> Callable | None:
    def capped(s: Any) -> Any:
        return math.softcap(s, cap) if cap else s

    if alibi:
        return lambda s, h, qi, ki, slopes: capped(s) + slopes[h] * (ki - qi)
    return (lambda s, h, qi, ki: capped(s)) if cap else None
