# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training over shared prefixes: each token that trajectories share is one row, in the whole model.

    trees = [attn.training.group(prompt, responses) for prompt, responses in batch]
    for packed in attn.training.pack(trees, budget=32768):
        logprobs = attn.training.logprobs(model, packed)  # [edges]: of each response's tokens, one response behind the other
        ...

A trie of token ids becomes an `attn.Forest`; `packed_model` runs a model of Transformers over it; losses go along edges, each
a row that predicts, a target and a trajectory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decoders import logprobs as logprobs
    from .decoders import packed_model as packed_model
    from .edges import edge_logprobs as edge_logprobs
    from .edges import edge_loss as edge_loss
    from .edges import edge_weights as edge_weights
    from .edges import trajectory_sums as trajectory_sums
    from .packing import Packed as Packed
    from .packing import pack as pack
    from .sharing import ModelShape as ModelShape
    from .sharing import Report as Report
    from .sharing import report as report
    from .tries import Tree as Tree
    from .tries import group as group
    from .tries import groups as groups

# The module of each public name: only `decoders` needs Transformers, and `edges` PyTorch.
_LAZY: dict[str, str] = {
    "ModelShape": "sharing",
    "Packed": "packing",
    "Report": "sharing",
    "Tree": "tries",
    "edge_logprobs": "edges",
    "edge_loss": "edges",
    "edge_weights": "edges",
    "group": "tries",
    "groups": "tries",
    "logprobs": "decoders",
    "pack": "packing",
    "packed_model": "decoders",
    "report": "sharing",
    "trajectory_sums": "edges",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'attn.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
