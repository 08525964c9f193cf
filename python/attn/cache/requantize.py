# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies sequences of one paged cache to another, which stores their keys and values in fewer bits."""

from __future__ import annotations

import numpy

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import PlanError
from ..memory.devices import failed, get_device, stream_number
from ..memory.formats import Format
from .integers import node_number
from .operations import requantize_text
from .pages import Run
from .state import CacheState

_BITS = {"bf16": 16, "f16": 16, "i4": 4, "f4E2M1FN": 4, "i2": 2}


def check_pair(source: object, target: CacheState) -> None:
    """Raise a PlanError unless the tokens of both caches have the same numbers, and the target at most as many bits."""
    if not isinstance(source, CacheState) or source is target:
        raise PlanError("source: expected another attn.PagedCache, whose tokens this one is to store")
    facts = {
        "layers": (source.layers, target.layers),
        **{
            name: (_size(source, name), _size(target, name)) for name in ("kv_heads", "head_dim", "value_dim")
        },
        "device": (source.device, target.device),
        "classes": tuple([(c.name, c.heads) for c in cache._classes] for cache in (source, target)),
    }
    if source.is_latent or target.is_latent:
        raise PlanError(
            "source: expected caches with values apart from keys, got values that are a part of keys"
        )
    for fact, (theirs, ours) in facts.items():
        if theirs != ours:
            raise PlanError(f"source: expected {fact} {ours}, as this cache has, got {theirs}")
    pairs = [
        (part, getattr(theirs, part), getattr(ours, part))
        for theirs, ours in zip(source._stored, target._stored, strict=True)
        for part in ("key", "value")
    ]
    for part, theirs, ours in pairs:
        if theirs != ours and (ours.is_plain or _bits(ours) > _bits(theirs)):
            raise PlanError(
                f"source: expected a {part} of at least as many bits as {ours.said(part)}, which this cache stores, got "
                f"{theirs.said(part)}"
            )
    if source._native.is_open:
        raise PlanError("source: the keys and values of its last change are not written yet")


def _size(cache: CacheState, name: str) -> object:
    """Return a size of the cache's tokens; of several kinds of layers the size of each."""
    found = [getattr(each, name) for each in cache._stored]
    return found if cache._kinds else found[0]


def _bits(format: Format) -> int:
    return _BITS.get(format.code, 8)


def path_slots(source: CacheState, node: int, head_class: int) -> numpy.ndarray:
    """Return the slots of the tokens of the sequence that ends with the node, int32."""
    found, at = [], node_number(node)
    while at is not None:
        found.insert(0, source.slots(at, head_class))
        at = source.parent(at)
    return numpy.concatenate(found).astype(numpy.int32)


class Requantizer:
    """A kernel from the layers of one cache to those of another, with workspace for the longest lists so far."""

    def __init__(self, source: Run, target: Run):
        self.target, self.room = target, 0
        place = get_device(target.shape.device)
        text = requantize_text(target.heads, source.shape, target.shape)
        request = request_for(text, target=place.target, form=form_of(place))
        self.kernel = _attn.Requantizer(load_native(request, place)[0])

    def execute(self, source: Run, read: numpy.ndarray, written: numpy.ndarray) -> None:
        device = self.target.shape.device
        stream = stream_number(device, None)
        try:
            if len(read) > self.room:
                get_device(device).synchronize(stream)  # Launches may still use the lists that grow.
                self.room = max(2 * len(read), 64)
                self.kernel.reserve(self.room, self.target.layers)
            pages = source.pages(), self.target.pages()
            self.kernel.execute(*pages, read.tolist(), written.tolist(), stream)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None


def find_requantizer(source: Run, target: Run) -> Requantizer:
    """Return the requantizer of two memories, compiled once."""
    if source not in target.requantizers:
        target.requantizers[source] = Requantizer(source, target)
    return target.requantizers[source]
