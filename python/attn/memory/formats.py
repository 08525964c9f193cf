# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Storage formats of keys and values by Python's names, and the tensors of a store in them.

    int8, int4, int2      unsigned integers, x = q * scale + zero, both f16, shared by a feature group: neighbours of one
                          token and head
    fp8_e4m3, fp8_e5m2    8-bit floats, x = q * scale, f32, shared by a whole tensor, a head, or a token's head; "fp8" is
                          fp8_e4m3
    mxfp8_e4m3, mxfp8_e5m2, mxfp4
                          8-bit and 4-bit floats, x = q * 2^(scale - 127), a byte shared by a block: 32 neighbours of one
                          token and head (OCP Microscaling Formats v1.0); "mxfp8" is mxfp8_e4m3
    fp8_ds_mla            latents of 576 features, as vLLM, SGLang and FlashMLA store them: 512 e4m3, x = q * scale, 4
                          f32, each shared by 128 neighbours, and 64 bf16, in a line of 656 bytes
    nvfp4                 4-bit floats, x = q * scale * tensor_scale: an e4m3 shared by a block, 16 neighbours of one
                          token and head, and an f32 shared by a whole tensor

The runtime defines the tensors and their shapes, and how rows are quantized (attn_rt/tensor/Format.h,
attn_rt/tensor/Store.h); this module has only the names.
"""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Error, SpecError, closest, expected
from .dtypes import short_name

# By Python's name: the element type in MLIR, which the manifest has in lower case.
_CODES = {"int8": "i8", "int4": "i4", "int2": "i2", "fp8_e4m3": "f8E4M3FN", "fp8_e5m2": "f8E5M2"}
_SCALES = ("tensor", "head", "token")


class Format(NamedTuple):
    """The format of keys or values. `per`: the features, or the extent, that share a scale; None: the default, or 16
    bits."""

    code: str
    per: str | None = None
    by: str | None = None
    """The type of the scales of blocks."""
    has_tensor_scale: bool = False
    """Whether a tensor has a scale beside those of its blocks."""
    rest: int = 0
    """The last features of a line, which are bf16 beside quantized features whose scales the line holds."""

    @property
    def blocks(self) -> bool:
        return self.by is not None

    @property
    def is_plain(self) -> bool:
        return self.code in ("bf16", "f16")

    def text(self) -> str:
        """Return the manifest's text: "i4 per 64", "f8e4m3fn per head", "bf16"."""
        per = f" per {self.per}" if self.per else ""
        rest = f" rest {self.rest}" if self.rest else ""
        return self.code.lower() + per + (f" by {self.by.lower()}" if self.by else "") + rest

    def said(self, part: str) -> str:
        """Return Python's arguments, for messages: "key='int4', key_group=64", "key=None" for 16 bits."""
        if self.is_plain:
            return f"{part}=None"
        if self.blocks or self.rest:
            return f"{part}={next(name for name, each in _FIXED.items() if each.text() == self.text())!r}"
        name = next(name for name, code in _CODES.items() if code.lower() == self.code.lower())
        if self.per is None:
            return f"{part}={name!r}"
        of = f"{part}_scales={self.per!r}" if name.startswith("fp8") else f"{part}_group={self.per}"
        return f"{part}={name!r}, {of}"

    def mlir(self) -> str:
        """Return the type in the description language."""
        scale = f", scale = {self.by}" if self.by else f", rest = {self.rest}" if self.rest else ""
        return self.code if self.is_plain else f"!attn.quantized<{self.code}, per = {self.per}{scale}>"


# Formats whose groups of features have one size, by Python's name.
_FIXED = {
    "fp8_ds_mla": Format("f8E4M3FN", "128", rest=64),
    "mxfp8_e4m3": Format("f8E4M3FN", "32", "f8E8M0FNU"),
    "mxfp8_e5m2": Format("f8E5M2", "32", "f8E8M0FNU"),
    "mxfp4": Format("f4E2M1FN", "32", "f8E8M0FNU"),
    "nvfp4": Format("f4E2M1FN", "16", "f8E4M3FN", has_tensor_scale=True),
}
MIXED = "fp8_ds_mla"
"""The name of the format of latents whose last features are bf16."""
MIXED_FORMAT = _FIXED[MIXED]
MIXED_FEATURES, MIXED_BYTES = 576, 656
"""The features of a line of MIXED, and its bytes."""
NAMES = (*_CODES, *_FIXED)


@dataclass(frozen=True)
class First:
    """Values that are the first features of their token's key, as `attn.first` makes them."""

    features: int

    def __repr__(self) -> str:
        return f"attn.first({self.features})"


PART_OF_KEY = "key"
"""The manifest's format of values that are a part of their keys."""


def check_latent_key(label: str, key: object, features: int, kind: type[Error] = SpecError) -> None:
    """Check the format of keys whose first features are their values. Raises `kind`."""
    if key is None:
        return
    if key == MIXED:
        if features != 512:
            legal = f"None or 'fp8_e4m3' where values are the first {features} features of keys: {MIXED!r} has values of 512"
            raise expected(kind, label, legal, key, nearest=None)
        return
    if key not in ("fp8", "fp8_e4m3"):
        legal = f"None, 'fp8_e4m3' or {MIXED!r} where values are a part of keys"
        raise expected(kind, label, legal, key, nearest="fp8_e4m3")
    if features % 16 or 256 < features < 512:
        legal = f"None where values are the first {features} features of keys: 'fp8_e4m3' has values of a multiple of 16 up "
        legal += "to 256, or of 512"
        raise expected(kind, label, legal, key, nearest=None)


def check_apart(label: str, key: object, value: object, kind: type[Error] = SpecError) -> None:
    """Check the formats of keys and values apart from each other. `label` names the value. Raises `kind`."""
    if MIXED in (key, value):
        legal = f"attn.first(512) beside key={MIXED!r}, whose lines hold both"
        raise expected(kind, label, legal, value, nearest=None)


class Description(NamedTuple):
    """The formats and tensors of a store: (name, dtype, dims), whose dims are numbers, or names of sizes of a run."""

    key: Format
    value: Format
    token_bytes: int
    """Bytes of a token of one head, including metadata."""
    heads_first: bool
    """Whether pages lie head by head, values like their metadata."""
    strided: frozenset[str]
    """Tensors that need not be dense."""
    page_bytes: int
    """Bytes of a unified page, 0 for other stores."""
    in_page: dict[str, int]
    """The offsets of tensors in a unified page, in bytes."""
    tensors: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    latent: bool = False
    """Whether values are a part of their keys, and have no tensor."""


def part_names(part: str, where: str = "{}") -> tuple[str, str, str]:
    """Return the names of the arguments for the format of "key" or "value"."""
    return where.format(part), where.format(f"{part}_group"), where.format(f"{part}_scales")


def read_format(names: tuple[str, str, str], given: tuple, kind: type[Error] = SpecError) -> Format | None:
    """Return the format given by a name, a group and scales; None without a name. `names`: of these arguments. Raises
    `kind`."""
    (label, of_group, of_scales), (name, group, scales) = names, given
    if name is None:
        for said, value in ((of_group, group), (of_scales, scales)):
            if value is not None:
                raise expected(kind, said, f"None without {label}, as 16-bit values share nothing", value)
        return None
    if name == "fp8":
        name = "fp8_e4m3"  # The usual meaning: the format with more digits.
    if name == "mxfp8":
        name = "mxfp8_e4m3"
    if not isinstance(name, str) or name not in NAMES:
        legal = ", ".join(map(repr, NAMES)) + ", or None for the dtype of the queries"
        is_plain = short_name(name) in ("bf16", "f16")
        hint = f"Leave {label} out, and give dtype=" if is_plain else ""
        raise expected(
            kind, label, legal, name, nearest=None if is_plain else closest(name, NAMES), hint=hint
        )
    if name in _FIXED:
        block = _FIXED[name].per
        if group is not None and str(group) != block:
            raise expected(kind, of_group, f"None or {block} beside {name!r}", group, nearest=int(block or 0))
        if scales is not None:
            raise expected(kind, of_scales, f"None beside {name!r}, of which each block has a scale", scales)
        return _FIXED[name]
    if name.startswith("int"):
        if scales is not None:
            hint = f"Integers have a scale and a zero for every group: {of_group}"
            raise expected(kind, of_scales, f"None beside {name!r}", scales, hint=hint)
        return Format(_CODES[name], None if group is None else str(_group(of_group, group, kind)))
    if group is not None:
        hint = f"Floats have scales per tensor, head or token: {of_scales}"
        raise expected(kind, of_group, f"None beside {name!r}", group, hint=hint)
    if scales is not None and scales not in _SCALES:
        legal = "'tensor', 'head' or 'token'"
        raise expected(kind, of_scales, legal, scales, nearest=closest(scales, _SCALES))
    return Format(_CODES[name], scales)


def _group(label: str, group: object, kind: type[Error]) -> int:
    try:
        number = 0 if isinstance(group, bool) else operator.index(group)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        legal = "16, 32, 64, 128 or all features of a row"
        raise expected(kind, label, legal, group, nearest=128)
    return number


def parse_format(text: str) -> Format:
    """Parse a manifest's text."""
    for each in _FIXED.values():
        if each.text() == text:
            return each
    code, _, per = text.partition(" per ")
    spelled = {code.lower(): code for code in _CODES.values()}
    return Format(spelled.get(code, code), per or None)


@functools.lru_cache(maxsize=256)
def describe_store(
    store: str, page: int, ragged: bool, heads: int, key_dim: int, value_dim: int, key: str, value: str
) -> Description:
    """Describe a store, as the runtime defines it; `heads` 0: the heads of its head class. Raises the extension's
    Failure."""
    from .. import _attn

    said = json.loads(
        _attn.store_tensors(
            store=store,
            page=page,
            ragged=ragged,
            heads=heads,
            key_dim=key_dim,
            value_dim=value_dim,
            key=key,
            value=value,
        )
    )
    tensors = tuple((each["name"], each["dtype"], tuple(each["dims"])) for each in said["tensors"])
    return Description(
        key=parse_format(said["key"]),
        value=parse_format(said["key" if said["value"] == PART_OF_KEY else "value"]),
        token_bytes=said["token_bytes"],
        heads_first=said["heads_first"],
        strided=frozenset(each["name"] for each in said["tensors"] if each["strided"]),
        page_bytes=said["page_bytes"],
        in_page={each["name"]: each["in_page"] for each in said["tensors"] if each["in_page"] is not None},
        tensors=tensors,
        latent=said["value"] == PART_OF_KEY,
    )


def describe_argument(argument: dict) -> Description:
    """Describe the store of a manifest's KV argument."""
    return describe_store(
        argument["store"],
        argument.get("page", 0),
        argument.get("ragged", False),
        argument.get("kv_heads") or 0,
        argument["key_dim"],
        argument["value_dim"],
        argument["key_format"],
        argument["value_format"],
    )
