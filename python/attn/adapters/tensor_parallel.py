# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose heads ranks share: Transformers' tensor parallelism (`tp_plan="auto"`, `DistributedConfig`).

Transformers cuts projections, and attention gets the heads of its rank. Kernels, pages and plans follow the tensors'
shapes. Only a rank count that divides no whole heads, and choices of heads by their number, need to know of ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import transformers.modeling_utils as modeling
from torch import nn
from transformers import PreTrainedModel

from ..errors import PlanError
from .transformers_fallback import NAMES


def ranks_of(model: object) -> int:
    """Return how many ranks share the heads of a model."""
    return getattr(model, "_tp_size", None) or 1


def own_heads(model: nn.Module, kv_heads: int) -> range:
    """Return the KV heads of this rank."""
    ranks = ranks_of(model)
    if ranks == 1:
        return range(kv_heads)
    mesh = model._device_mesh
    if "tp" in (mesh.mesh_dim_names or ()):
        mesh = mesh["tp"]
    count = kv_heads // ranks
    return range(mesh.get_local_rank() * count, (mesh.get_local_rank() + 1) * count)


def check_heads(model: PreTrainedModel) -> None:
    """Raise a PlanError if ranks would share a head of a model that attends by attn."""
    config, ranks = model.config.get_text_config(decoder=True), ranks_of(model)
    if ranks == 1 or getattr(config, "_attn_implementation", None) not in NAMES:
        return
    plan = getattr(model, "tp_plan", None) or {}
    if not any(name.endswith(".k_proj") and style == "colwise" for name, style in plan.items()):
        return
    heads = {
        "KV heads": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        "query heads": config.num_attention_heads,
    }
    for kind, count in heads.items():
        if count % ranks:
            nearest = [each for each in range(1, count + 1) if not any(n % each for n in heads.values())]
            legal = min(nearest, key=lambda each: (abs(each - ranks), each))
            raise PlanError(
                f"tp_plan: {type(model).__name__} has {count} {kind}, which {ranks} ranks do not divide; nearest legal: "
                f"{legal} {'rank' if legal == 1 else 'ranks'}. Ranks can share tokens instead: attn.transformers.ShardedCache"
            )


def watch_parallelism() -> None:
    """Check the heads of models that Transformers divides from now on."""
    if hasattr(PreTrainedModel, "maybe_distribute_model"):  # From 5.17 on.
        divide = PreTrainedModel.maybe_distribute_model.__func__
        if not hasattr(divide, "attn_divides"):
            PreTrainedModel.maybe_distribute_model = classmethod(_checked(divide))
    elif hasattr(modeling, "distribute_model") and not hasattr(modeling.distribute_model, "attn_divides"):
        modeling.distribute_model = _checked(modeling.distribute_model)


def _checked(divide: Callable) -> Callable:
    @functools.wraps(divide)
    def checked(*args: Any, **kwargs: Any) -> Any:
        model = divide(*args, **kwargs)
        check_heads(model)
        return model

    checked.attn_divides = divide
    return checked
