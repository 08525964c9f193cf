# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches whose layers are of several kinds: each kind has heads, dims, formats, a window and pages of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..describe.checks import nearest_value_features
from ..errors import PlanError, expected
from ..memory.formats import First, Format
from .integers import integers, items, whole


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Layers of a model that are alike, in a PagedCache(kinds=[...]).

    name      of the kind; its kernel shows the kind by an operand of this name, attn.Paged(name=name)
    layers    numbers of its layers
    pages     of its pool
    kv_heads, head_dim, value_dim    as in the Spec
    recent, sink    tokens that the kind keeps, as of CacheClass: windowed layers give other pages back; 0: all
    draft     capacity of the ring of an unbranched sequence beyond `recent`, in tokens
    key, value, key_group, value_group, key_scales, value_scales    storage formats, as of attn.Paged; a kind
              of latents has value=attn.first(n)
    """

    name: str
    layers: Sequence[int]
    pages: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    recent: int = 0
    sink: int = 0
    draft: int = 0
    key: str | None = None
    value: str | First | None = None
    key_group: int | None = None
    value_group: int | None = None
    key_scales: str | None = None
    value_scales: str | None = None

    def formats(self) -> dict[str, tuple]:
        """Return the formats of keys and of values, as they were given."""
        return {
            "key": (self.key, self.key_group, self.key_scales),
            "value": (self.value, self.value_group, self.value_scales),
        }


class Stored(NamedTuple):
    """The sizes and the formats of a class's tokens."""

    kv_heads: int
    """Of all classes of a layer."""
    head_dim: int
    value_dim: int
    key: Format
    value: Format
    latent: bool
    """Whether values are a part of their keys."""

    def said(self, dtype: str) -> str:
        """Return the formats, for messages: 'key=int8, value=int4'; `dtype` if nothing is quantized."""
        parts = [("key", self.key)] if self.latent else [("key", self.key), ("value", self.value)]
        formats = [each.said(part) for part, each in parts if not each.is_plain]
        if self.latent:
            formats.append(f"value=attn.first({self.value_dim})")
        return ", ".join(formats) or dtype


def value_dim_of(head_dim: int, value: object, value_dim: int | None) -> int:
    """Return the features of a value, which may be the first ones of the key. PlanError."""
    if not isinstance(value, First):
        return head_dim if value_dim is None else whole("value_dim", value_dim, 1)
    if value.features > head_dim:
        legal = f"attn.first(n) with n up to {head_dim}, the features of the key"
        raise expected(PlanError, "value", legal, value.features, nearest=nearest_value_features(head_dim))
    if value_dim not in (None, value.features):
        legal = f"None, or {value.features}, the features of value"
        raise expected(PlanError, "value_dim", legal, value_dim, nearest=value.features)
    return value.features


def sees_no_more(visibility: Mapping[str, Any], ends: Sequence[int], recent: int, sink: int) -> bool:
    """Whether rows see no tokens but the `recent` last and the `sink` first ones, by the visibility of a manifest."""
    kind, parts = visibility["kind"], visibility.get("of", ())
    if kind in ("and", "or"):
        # A row sees at most what any part of an intersection shows.
        held = [sees_no_more(part, ends, recent, sink) for part in parts]
        return any(held) if kind == "and" else all(held)
    if kind not in ("recent", "window", "chunk", "sink"):
        return False
    size = ends[visibility["end"]] + (
        visibility.get("sizes") == 2
    )  # A window of two sides: without the row's own.
    return size <= (sink if kind == "sink" else recent)


def check_kinds(given: object) -> tuple[list[LayerKind], tuple[int, ...]]:
    """Return the kinds, and the index of each layer's kind. PlanError unless the kinds share out layers 0 to n - 1."""
    kinds = items("kinds", given)
    of_layer: dict[int, int] = {}
    for index, kind in enumerate(kinds):
        if not isinstance(kind, LayerKind):
            raise expected(PlanError, "kinds", "attn.LayerKind(name=..., layers=..., pages=..., ...)", kind)
        if kind.name in [other.name for other in kinds[:index]]:
            raise expected(PlanError, "kinds", "kinds of different names", kind.name)
        layers = integers("layers", kind.layers)
        if not layers:
            raise PlanError(f"kinds: {kind.name}: expected one layer or more, got none")
        for layer in layers:
            if (other := of_layer.setdefault(whole("layers", layer, 0), index)) != index:
                raise PlanError(f"kinds: layer {layer} is of {kinds[other].name} and of {kind.name}")
        for name in ("pages", "kv_heads", "head_dim"):
            whole(f"{kind.name}.{name}", getattr(kind, name), 1)
    missing = sorted(set(range(max(of_layer) + 1)) - set(of_layer))
    if missing:
        raise PlanError(f"kinds: layer {missing[0]} is of no kind; {max(of_layer)} is the last layer")
    return kinds, tuple(of_layer[layer] for layer in range(len(of_layer)))
