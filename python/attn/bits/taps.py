# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what flows through a model's modules, and through its attention.

A tap copies each tensor into memory of its own, which a captured graph copies into again in every replay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class Point(NamedTuple):
    """A place in a forward pass."""

    module: str
    """The name of the module in the model."""
    part: str
    """"input" or "output" of a module; "query", "key", "value" or "attention" of a layer."""


class Taps:
    """The latest tensors [batch, rows, features] at all points, in the order of the forward pass."""

    def __init__(self) -> None:
        self.latest: dict[Point, Tensor] = {}
        self._memory: dict[tuple, Tensor] = {}

    def put(self, point: Point, given: Any) -> None:
        if isinstance(given, (tuple, list)):  # The cosines and sines of rotary embeddings.
            tensors = [each for each in given if isinstance(each, Tensor)]
            if not tensors or any(each.dim() != 3 for each in tensors):
                return
            given = torch.cat(tensors, -1)
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.dim() < 3:
            return
        given = given.detach().flatten(2)
        key = point, given.shape, given.dtype
        if key not in self._memory:
            self._memory[key] = torch.empty_like(given, memory_format=torch.contiguous_format)
        self._memory[key].copy_(given)
        self.latest.pop(point, None)  # The order is that of the latest pass.
        self.latest[point] = self._memory[key]


@contextlib.contextmanager
def tapped(model: nn.Module) -> Iterator[Taps]:
    """Read all modules without modules of their own, and attention, while the block runs."""
    taps, handles = Taps(), []
    names = {module: name for name, module in model.named_modules()}
    for module, name in names.items():
        if not any(True for _ in module.children()):
            handles.append(module.register_forward_pre_hook(_reader(taps, Point(name, "input"))))
            handles.append(module.register_forward_hook(_writer(taps, Point(name, "output"))))
    implementation = model.config.get_text_config(decoder=True)._attn_implementation
    attend = ALL_ATTENTION_FUNCTIONS[implementation]

    def watched(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any
    ) -> Any:
        name = names.get(module, type(module).__name__)
        for part, tensor in (("query", query), ("key", key), ("value", value)):
            tensor = getattr(tensor, "keys", tensor)  # With a cache in pages, the new ones.
            if type(tensor) in (Tensor, nn.Parameter) and tensor.shape[2] == query.shape[2]:
                taps.put(Point(name, part), tensor.transpose(1, 2))
        found = attend(module, query, key, value, *args, **options)
        taps.put(Point(name, "attention"), found[0])
        return found

    AttentionInterface.register(implementation, watched)
    try:
        yield taps
    finally:
        AttentionInterface.register(implementation, attend)
        for handle in handles:
            handle.remove()


def _reader(taps: Taps, point: Point) -> Callable:
    return lambda module, args: taps.put(point, args[0] if args else None)


def _writer(taps: Taps, point: Point) -> Callable:
    return lambda module, args, out: taps.put(point, out)
