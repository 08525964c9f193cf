"""KV operands: how the tokens of an instance lie in memory.

An operand is a collection of instances (one per sequence, one shared by many, one per node of a tree), each with a
length, the position of its first token and the rows that see it. Its tensors, for an operand called `kv`:

    Dense     kv.k, kv.v: [instances, tokens, heads, dim]
    Packed    kv.k, kv.v: [tokens, heads, dim], kv.start: int32 [instances + 1]
    Paged     kv.k_pages, kv.v_pages: [pages, page_size, heads, dim], kv.block_table: int32 [instances, max_pages]

and in all of them kv.lengths, kv.pos0: int32 [instances], and optionally kv.rows: int32 [instances, 2]. Ragged ones have
a length and pages for each head: kv.lengths [instances, heads], kv.block_table [instances, heads, max_pages].
(Source: include/attn/Dialect/Attn/IR/AttnTypes.td.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import SpecError, expected
from ..memory.dtypes import storage_name
from . import checks
from .visibility import Visibility, check_visibility


@dataclass(frozen=True, kw_only=True)
class Store:
    """What every store can say; made as `Dense`, `Packed` or `Paged`.

    name        of the operand and the prefix of its tensors; by default `kv`, or `kv0`, `kv1`, ... of several
    see         what rows see of it; by default the `see` of the Spec
    dtype       of keys and values, "bfloat16" or "float16"; by default, and at present always, the Spec's
    ragged      whether every KV head has a length and pages of its own; slice h of a page is head h's, and a token's
                position is its place in its head's list
    head_class  the head class that alone sees it and whose heads alone it holds, in their order
    dims        what commands call its dynamic dimensions: instances and tokens

    Errors: SpecError.
    """

    name: str | None = None
    see: Visibility | None = None
    dtype: str | None = None
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
        checks.boolean(f"{where}(ragged)", self.ragged)
        if self.head_class is not None and not (isinstance(self.head_class, str) and self.head_class):
            raise expected(SpecError, f"{where}(head_class)", "the name of a head class", self.head_class)
        if not isinstance(self.dims, (tuple, list)) or len(self.dims) != 2:
            legal = "the names of two dimensions, of instances and of tokens"
            raise expected(SpecError, f"{where}(dims)", legal, self.dims, nearest=("batch", "kv_len"))
        dims = tuple(checks.name(f"{where}(dims)", dim) for dim in self.dims)
        object.__setattr__(self, "dims", dims)

    def layout(self) -> str:
        """As the text says it: dense, packed or paged<16>."""
        return self.kind

    def resolved(self, **given: object) -> Store:
        """With what it left to the Spec."""
        return replace(
            self, **{field: value for field, value in given.items() if getattr(self, field) is None}
        )


@dataclass(frozen=True, kw_only=True)
class Dense(Store):
    """Keys and values `[instances, tokens, heads, dim]`: room for the longest, lengths say how much is used."""

    kind: ClassVar[str] = "dense"


@dataclass(frozen=True, kw_only=True)
class Packed(Store):
    """Keys and values `[tokens, heads, dim]`, one instance behind the other, without padding."""

    kind: ClassVar[str] = "packed"


@dataclass(frozen=True, kw_only=True)
class Paged(Store):
    """Pages of `page_size` tokens, a power of two from 1 to 256, scattered over a pool and listed in a block table."""

    page_size: int = 16
    kind: ClassVar[str] = "paged"

    def __post_init__(self) -> None:
        super().__post_init__()
        page, legal = self.page_size, "a power of two from 1 to 256"
        if isinstance(page, bool) or not isinstance(page, int):
            raise expected(SpecError, "Paged(page_size)", legal, page, nearest=16)
        if not 1 <= page <= 256 or page & (page - 1):
            below = 1 << (page.bit_length() - 1) if page > 0 else 1
            nearest = str(min(below, 256)) if not 1 <= page <= 256 else f"{below} or {2 * below}"
            raise expected(SpecError, "Paged(page_size)", legal, page, nearest=nearest)

    def layout(self) -> str:
        return f"paged<{self.page_size}>"
