# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized keys and values in an engine's pages: codes, scales and zero points side by side.

An engine gives each layer memory in pages, and each page has a block of bytes for each KV head. In a block lie, one
behind the other and each from a multiple of 16 bytes on:

    codes of keys       [page_size, bytes of a key]
    codes of values     [page_size, bytes of a value]
    metadata of keys    [page_size, bytes]: scales, or scales and zero points
    metadata of values  [page_size, bytes]

So tokens of a head are neighbours, and a kernel loads codes in whole lines of 16 bytes. That is a page of attn.Unified: kernels
take its distance from the next one at launch. Head h of page p is their page `p * apart + h`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import torch
from torch import Tensor

from ..cache.appender import device_of
from ..cache.operations import Shape
from ..cache.rope import Norm, Rope
from ..errors import TensorError, expected
from ..memory.page_views import page_views
from ..memory.tensors import written
from ..run.kernel import Kernel
from .formats import Packing
from .tokens import Tokens, tokens_of, write_rows

_UNIT = 16  # In bytes: blocks begin at multiples of it.


class PackedPages(Sequence[Tensor]):
    """A layer's quantized pages: the tensors that its kernel reads, in its order; `Layer.pages` returns it."""

    def __init__(
        self, packing: Packing, cache: Tensor, k_scale: Tensor | None = None, v_scale: Tensor | None = None
    ):
        heads, block = packing.heads, packing.block_bytes
        lies = _lie(cache, packing)
        self.packing, self.cache = packing, cache
        self.apart = lies // block if len(cache) > 1 else heads
        """Blocks from a page to the next."""
        count = (len(cache) - 1) * self.apart + heads if len(cache) else 0
        if count * (step := 1 << (packing.page_size - 1).bit_length()) >= 1 << 31:  # as kernels count slots
            most = ((1 << 31) - 1) // (self.apart * step)
            raise expected(TensorError, "cache", f"at most {most} pages, 2^31 tokens of heads", cache)
        memory = cache.view(torch.uint8).as_strided((count, block), (block, 1))
        described = packing.description()
        named = page_views(memory, described)
        parts = [part for part, *_ in described.tensors]
        for name, scale in (("k_tensor_scale", k_scale), ("v_tensor_scale", v_scale)):
            if name in parts:
                named[name] = _scale(name, scale, cache.device)
            elif scale is not None:
                raise TensorError(f"{name[0]}_scale: expected none beside {packing.format}, got one")
        self.named = {part: named[part] for part in parts}
        """The tensors by their names in a kernel's batch without the operand's, such as k_pages."""
        self._tensors = tuple(self.named.values())
        self._places, self._shape = self._addresses(), self._described()

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        return self._tensors[index]

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def write(
        self,
        k: Tensor,
        v: Tensor,
        slots: Tensor | Tokens,
        *,
        q: Tensor | None = None,
        out: Tensor | None = None,
        rope: Rope | None = None,
        norm: Norm | None = None,
    ) -> Tensor | None:
        """Quantize new keys and values, and write them; prepare keys and queries on the way.

        k, v        [tokens, kv_heads, head_dim] of the layer's dtype; tokens past the slots are not read
        slots       int32 or int64 [tokens]: page * page_size + offset, no slot twice; a negative slot's token is not written.
                    `Tokens` of a step: its layers share one list
        rope, norm  what is done to each head of keys and queries, the norm first; `rope` needs `Tokens` with positions
        q           [tokens or more, q_heads, head_dim] beside `rope` or `norm`
        out         where prepared queries are written, as q, or q itself; by default a new tensor

        On a CPU, a slot past the pool is a TensorError; on a GPU its token is not written. The bits are those of
        `attn.quantize`: numbers that are not finite are clamped, NaN becomes 0. One kernel of attn writes all, and waits for
        nothing. Returns the prepared queries, or None without q. Raises TensorError."""
        tokens = tokens_of(slots)
        tokens.check_device(self.cache.device)
        for name, rows in (("k", k), ("v", v)):
            self._check(name, rows, len(tokens))
        heads = self.packing.heads
        out = write_rows(self._places, self._shape, heads, tokens, k, v, q, out, rope, norm)
        written(self.cache)
        return out

    def _check(self, name: str, rows: Tensor, tokens: int) -> None:
        _, heads, dim, _, dtype = self.packing
        if rows.ndim != 3 or rows.shape[1:] != (heads, dim) or len(rows) < tokens or rows.dtype != dtype:
            raise expected(TensorError, name, f"{dtype} [{tokens} or more, {heads}, {dim}]", rows)
        if rows.device != self.cache.device:
            raise expected(TensorError, name, f"memory of {self.cache.device}", rows.device)

    def _described(self) -> Shape:
        """Return what decides the kernel that writes: pages with strides are a paged store's."""
        packing, found = self.packing, self.packing.description()
        dtype = {torch.float16: "f16", torch.bfloat16: "bf16"}[packing.dtype]
        sizes = packing.page_size, packing.dim, packing.dim
        return Shape(0, *sizes, dtype, device_of(self.cache), found.key, found.value)

    def _addresses(self) -> dict[str, int]:
        """Return the pages of all heads, by addresses and strides."""
        block = self.packing.block_bytes
        found = {"pages": len(self.cache), "page_tokens": self.packing.page_size}
        for name, tensor in self.named.items():
            part, _, rest = name.partition("_")
            if rest == "tensor_scale":
                found[f"{part}_scale"] = tensor.data_ptr()
                continue
            part += "" if rest == "pages" else "_meta"
            found |= {
                part: tensor.data_ptr(),
                f"{part}_page_stride": self.apart * block,
                f"{part}_head_stride": block,
                f"{part}_token_stride": tensor.stride(1) * tensor.element_size(),
            }
        return found


def check_kind(kernel: Kernel, pages: Sequence[Tensor]) -> None:
    """Refuse pages of another kind than a kernel reads: PackedPages, or tensors of a paged store. TensorError."""
    packed = any(argument.get("store") == "unified" for argument in kernel.manifest["arguments"])
    if packed is not isinstance(pages, PackedPages):
        legal = (
            "what Layer.pages returns, for a kernel of a packed format"
            if packed
            else "tensors of pages that are not packed, as the kernel's layer has them"
        )
        shown = pages.cache if isinstance(pages, PackedPages) else tuple(pages)
        raise expected(TensorError, "pages", legal, shown)


def _lie(cache: Tensor, packing: Packing) -> int:
    """Return the bytes from a page to the next. TensorError if blocks of heads do not follow each other."""
    heads, page_size, token_bytes = packing.heads, packing.page_size, packing.token_bytes
    itemsize, block = cache.element_size(), packing.block_bytes
    shape = (*cache.shape[1:3], cache.shape[3] * itemsize) if cache.ndim == 4 else ()
    if shape != (heads, page_size, token_bytes) or cache.stride(3) != 1:
        legal = f"[pages, heads, page_size, bytes] with {heads} * {page_size} * {token_bytes} bytes a page"
        raise expected(TensorError, "cache", legal, cache)
    apart = cache.stride(0) * itemsize
    if not _is_compact(cache) or (len(cache) > 1 and (apart % block or apart < heads * block)):
        legal = f"pages of {heads * block} bytes in one piece, a multiple of {block} bytes apart"
        given = f"strides {list(cache.stride())} of {itemsize} bytes for {list(cache.shape)}"
        raise TensorError(f"cache: expected {legal}, got {given}")
    if cache.data_ptr() % _UNIT:
        raise TensorError(f"cache: expected memory at a multiple of {_UNIT} bytes, got {cache.data_ptr()}")
    return apart


def _is_compact(cache: Tensor) -> bool:
    """Whether the elements of a page are one piece of memory, in any order of heads and tokens."""
    size = 1
    for stride, extent in sorted(zip(cache.stride()[1:], cache.shape[1:], strict=True)):
        if extent > 1 and stride != size:
            return False
        size *= extent
    return True


def _scale(name: str, scale: Tensor | None, device: torch.device) -> Tensor:
    if scale is None:
        return torch.ones(1, dtype=torch.float32, device=device)
    if scale.dtype is not torch.float32 or scale.numel() != 1 or scale.device != device:
        raise expected(TensorError, f"{name[0]}_scale", f"float32 [1] on {device}", scale)
    return scale.view(1)
