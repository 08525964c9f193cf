# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merges projections of the same input into one matrix product.

With few rows, a product takes as long as reading its weights, if these are enough to occupy the whole GPU; those of
keys and values alone are not. So the weights of one input are concatenated, once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..errors import PlanError, expected

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of Transformers' modules that project one input, in the order in which the model calls them."""


class _Group:
    """The product that the first projection of a group computed, until the last one has taken its part."""

    def __init__(self) -> None:
        self.held: tuple[Tensor, Tensor] | None = None
        """The input and its product, in one attribute, so that threads do not see half of another's."""


class MergedLinear(nn.Linear):
    """A projection whose weights are a part of its group's weights. The first of a group multiplies for all. Parameters
    keep their names, values and shapes."""

    # `_join` makes it from an nn.Linear, without new weights.
    group: _Group
    weights: Tensor
    biases: Tensor | None
    rows: tuple[int, int]
    last: bool

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # Gradients belong to each projection's own parameters.
            return linear(input, self.weight, self.bias)
        held, (first, end) = self.group.held, self.rows
        if held is not None and held[0] is input and first:
            product = held[1]
        else:
            product = linear(input, self.weights, self.biases)
        self.group.held = None if self.last else (input, product)
        return product[..., first:end]


def merge_projections(model: nn.Module) -> int:
    """Merge the projections of queries, keys and values of each layer, and those of its gate, into one matrix product
    each, for forward passes without gradients. Returns how many products were merged. Results may differ by rounding.

    Weights are moved: call it before anything that keeps their addresses, as a Decoder does, and after `model.to(...)`.
    Copying into them (`load_state_dict`) leaves them merged. Layers whose projections are not plain nn.Linear
    (quantized, with adapters, with hooks) stay unchanged, and so do merged ones.
    """
    if not isinstance(model, nn.Module):
        raise expected(PlanError, "model", "a torch.nn.Module", model)
    merged = 0
    for module in list(model.modules()):
        for names in GROUPS:
            parts = [getattr(module, name, None) for name in names]
            if _fit(parts):
                _join(parts)
                merged += 1
    return merged


def _fit(parts: list) -> bool:
    first = parts[0]
    if any(type(part) is not nn.Linear or part._forward_hooks or part._forward_pre_hooks for part in parts):
        return False
    if any("forward" in part.__dict__ for part in parts) or len(set(map(id, parts))) < len(parts):
        return False
    alike = {(p.in_features, p.weight.dtype, p.weight.device, p.bias is None) for p in parts}
    return len(alike) == 1 and first.weight.device.type != "meta"


@torch.no_grad()
def _join(parts: list[nn.Linear]) -> None:
    group, end = _Group(), 0
    weights = torch.cat([part.weight for part in parts])
    biases = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
    for part in parts:
        first, end = end, end + part.out_features
        part.weight.data = weights[first:end]
        if biases is not None:
            part.bias.data = biases[first:end]
        part.__class__ = MergedLinear
        part.group, part.rows, part.last = group, (first, end), part is parts[-1]
        # Buffers of the module, but not part of its state.
        part.register_buffer("weights", weights, persistent=False)
        part.register_buffer("biases", biases, persistent=False)
