# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""KV operands: the memory layout of an instance's tokens.

An operand is a collection of instances (one per sequence, one shared by many, one per node of a tree), each with a
length, the position of its first token and the rows that see it. Its tensors, for an operand called `kv`:

    Dense     kv.k, kv.v: [instances, tokens, heads, dim]
    Packed    kv.k, kv.v: [tokens, heads, dim], kv.start: int32 [instances + 1]
    Paged     kv.k_pages, kv.v_pages: [pages, page_size, heads, dim], kv.block_table: int32 [instances, max_pages]

All have kv.lengths, kv.pos0: int32 [instances], and optionally kv.rows: int32 [instances, 2]. Ragged operands have a
length and pages for each head: kv.lengths [instances, heads], kv.block_table [instances, heads, max_pages].

Quantized keys and values (key="int4") have metadata: `kv.k_meta` f16 [..., groups, 2] with scale and zero point of
integers, `kv.k_scales` f32 of floats; values likewise. If each head's line has its own metadata, pages lie [pages,
heads, page_size, ...], values like metadata, so that one head's part of a page is contiguous.

A latent operand (value=attn.first(512)) has no tensor of values: a value is the first features of its token's key,
`kv.k` or `kv.k_pages`. With key="fp8_ds_mla" that is uint8 [..., heads, 656], and a line holds its scales.

Pages of a Unified store belong to no head, kv.k_pages, kv.v_pages: [pages, page_size, dim]. Their tensors are views
into one memory, uint8 [pages, bytes] (attn.UnifiedPages makes it): only pages lie apart, all by as many bytes. (Source:
include/attn/Dialect/Attn/IR/AttnTypes.td.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import SpecError, expected
from ..memory.dtypes import DTypeLike, in_python, short_name, storage_name
from ..memory.formats import (
    PART_OF_KEY,
    Description,
    First,
    Format,
    check_apart,
    check_latent_key,
    describe_store,
    part_names,
    read_format,
)
from ..memory.page_sizes import check_page_size
from . import checks
from .visibility import Visibility, check_visibility


@dataclass(frozen=True, kw_only=True)
class Store:
    """The options of every store; made as `Dense`, `Packed`, `Paged` or `Unified`.

    name        of the operand and the prefix of its tensors; by default `kv`, or `kv0`, `kv1`, ... of several
    see         the visibility of its tokens; by default the `see` of the Spec
    dtype       of keys and values, "bfloat16" or "float16"; by default, and at present always, the Spec's
    key, value  quantized format, instead of `dtype`: "int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2"
    value       `attn.first(n)`: a value is the first n features of its token's key, stored once (latent attention); `key` is
                then None, "fp8_e4m3" or, with `first(512)` of 576, "fp8_ds_mla", and values share the keys' scales
    key_group, value_group    of integers, the number of neighbouring features that share a scale and a zero point: 16, 32,
                64, 128, or all of them; by default all, at most 128
    key_scales, value_scales  of fp8, the extent that shares a scale: "tensor", "head", or by default "token" (of one head)
    ragged      whether every KV head has a length and pages of its own; slice h of a page is head h's, and a token's
                position is its index in its head's list
    head_class  the head class that alone sees it and whose heads alone it holds, in their order
    dims        names of its dynamic dimensions in commands: instances and tokens

    Raises SpecError.
    """

    name: str | None = None
    see: Visibility | None = None
    dtype: DTypeLike | None = None
    key: str | None = None
    value: str | First | None = None
    key_group: int | None = None
    value_group: int | None = None
    key_scales: str | None = None
    value_scales: str | None = None
    ragged: bool = False
    head_class: str | None = None
    dims: tuple[str, str] = ("batch", "kv_len")

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        where = type(self).__name__
        if self.name is not None:
            checks.name(f"{where}(name)", self.name)
        if self.see is not None:
            check_visibility(f"{where}(see)", self.see)
        if self.dtype is not None:
            object.__setattr__(self, "dtype", storage_name(f"{where}(dtype)", self.dtype))
        for part in ("key", "value"):
            self._format(part, where + "({})")
        if self.is_latent and self.kind == "unified":
            legal = "values apart from keys in unified pages"
            raise expected(SpecError, f"{where}(value)", legal, self.value, nearest=None)
        if self.is_latent:
            check_latent_key(f"{where}(key)", self.key, self.value.features)
        else:
            check_apart(f"{where}(value)", self.key, self.value)
        checks.boolean(f"{where}(ragged)", self.ragged)
        if self.head_class is not None and not (isinstance(self.head_class, str) and self.head_class):
            raise expected(SpecError, f"{where}(head_class)", "the name of a head class", self.head_class)
        if not isinstance(self.dims, (tuple, list)) or len(self.dims) != 2:
            legal = "the names of two dimensions, of instances and of tokens"
            raise expected(SpecError, f"{where}(dims)", legal, self.dims, nearest=("batch", "kv_len"))
        dims = tuple(checks.name(f"{where}(dims)", dim) for dim in self.dims)
        object.__setattr__(self, "dims", dims)

    def layout(self) -> str:
        """Return its layout in text: dense, packed, paged<16> or unified<32>."""
        return self.kind

    @property
    def is_latent(self) -> bool:
        """Whether values are a part of their keys."""
        return isinstance(self.value, First)

    def _format(self, part: str, where: str = "{}") -> Format | None:
        if part == "value" and self.is_latent:
            names, given = part_names(part, where)[1:], (self.value_group, self.value_scales)
            for name, option in zip(names, given, strict=True):
                if option is not None:
                    raise expected(SpecError, name, "None where values are a part of keys", option)
            return None
        given = tuple(getattr(self, name) for name in part_names(part))
        return read_format(part_names(part, where), given)

    def formats(self) -> tuple[Format, Format]:
        """Return the formats of keys and of values."""
        plain = Format(short_name(self.dtype) or "bf16")
        key = self._format("key") or plain
        return key, key if self.is_latent else self._format("value") or plain

    def description(self, kv_heads: int, head_dim: int, value_dim: int) -> Description:
        """Return its tensors, for so many heads, unless it holds those of a class alone. Raises the extension's Failure
        if its formats and sizes do not fit."""
        key, value = self.formats()
        heads = 0 if self.head_class else kv_heads
        page = getattr(self, "page_size", 0)
        return describe_store(
            self.kind,
            page,
            self.ragged,
            heads,
            head_dim,
            value_dim,
            key.text(),
            PART_OF_KEY if self.is_latent else value.text(),
        )

    def svg(self, *, kv_heads: int, head_dim: int, value_dim: int | None = None) -> str:
        """Return a picture as SVG text of the memory layout of keys and values of so many heads: a page, or the first
        tokens."""
        from .page_pictures import draw_page

        heads = checks.integer("kv_heads", kv_heads, 1, checks.MAX_HEADS)
        key_dim = checks.key_features("head_dim", head_dim)
        if value_dim is None and isinstance(self.value, First):
            value_dim = self.value.features
        dims = key_dim, key_dim if value_dim is None else checks.value_features("value_dim", value_dim)
        found = self._checked_description(heads, dims)
        return draw_page(self.layout(), getattr(self, "page_size", 0), found, heads, dims)

    def _checked_description(self, heads: int, dims: tuple[int, int]) -> Description:
        from .._attn import Failure

        try:
            return self.description(heads, *dims)
        except Failure as failure:
            part, _, why = in_python(failure.message).partition(": ")
            raise SpecError(f"{type(self).__name__}({part}): {why}") from None

    def settled(self, head_dim: int, value_dim: int) -> Store:
        """Return the store with the defaults of its formats, so that equal stores are equal."""
        changes: dict[str, object] = {}
        if self.key or isinstance(self.value, str):
            found = self.description(1, head_dim, value_dim)
            for part, name, format in (("key", self.key, found.key), ("value", self.value, found.value)):
                if isinstance(name, str):
                    per = format.per or ""
                    changes |= {f"{part}_group": int(per)} if per.isdigit() else {f"{part}_scales": per}
        return replace(self, **changes) if changes else self

    def resolved(self, **given: object) -> Store:
        """Return the store with the Spec's values for options that it does not have."""
        return replace(
            self, **{field: value for field, value in given.items() if getattr(self, field) is None}
        )


def first(features: int) -> First:
    """Describe values that are the first features of their token's key, for `value` of a store.

    One line of memory then holds both, and kernels read it once. In multi-head latent attention (DeepSeek-V2) the key
    is a latent of 512 features and 64 rotated features, and the value is the latent: `Spec(head_dim=576, ...,
    kv=[attn.Paged(value=attn.first(512))])`.

    features    a multiple of 8 from 8 to 256, or of 128 up to 512; at most those of the key

    Raises SpecError.
    """
    return First(checks.value_features("features", features))


@dataclass(frozen=True, kw_only=True)
class Dense(Store):
    """Keys and values `[instances, tokens, heads, dim]`, with capacity for the longest instance; lengths say how much
    is used."""

    kind: ClassVar[str] = "dense"


@dataclass(frozen=True, kw_only=True)
class Packed(Store):
    """Keys and values `[tokens, heads, dim]`, one instance after the other, without padding."""

    kind: ClassVar[str] = "packed"


@dataclass(frozen=True, kw_only=True)
class Paged(Store):
    """Pages of `page_size` tokens, 1 to 8 or a multiple of 16 up to 2048, scattered over a pool and listed in a block
    table."""

    page_size: int = 16
    kind: ClassVar[str] = "paged"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_page_size(SpecError, f"{type(self).__name__}(page_size)", self.page_size)

    def layout(self) -> str:
        return f"paged<{self.page_size}>"


@dataclass(frozen=True, kw_only=True)
class Unified(Store):
    """Pages of `page_size` tokens of one KV head, with quantized keys and values and their metadata side by side. A
    page belongs to no head: each list of tokens of any head may take any page, and so may operands of other formats and
    page sizes that share the memory. Always ragged."""

    page_size: int = 32
    ragged: bool = True
    kind: ClassVar[str] = "unified"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_page_size(SpecError, f"{type(self).__name__}(page_size)", self.page_size)
        if not self.ragged:
            raise expected(SpecError, "Unified(ragged)", "True: heads share no page", False, nearest=True)

    def layout(self) -> str:
        return f"unified<{self.page_size}>"
