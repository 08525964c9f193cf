# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of Transformers over packed forests: importing this module registers the attention "attn_forest".

Only calls inside the context manager `packed_model` use it. A forest travels with a call, not in the model:
checkpointed layers run again in backward, after the context has ended.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from ..describe.forest import Forest
from ..errors import SpecError, TensorError, expected
from ..run.attention import attend
from ..run.torch_rules import cast_under_autocast
from .heads import CHUNK, edge_head
from .packing import Packed

NAME = "attn_forest"
MODELS = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")
_KERNEL_DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class ForestCall:
    """The arguments of a layer's attention for the micro-batch."""

    forest: Forest
    reference: bool


@contextlib.contextmanager
def packed_model(model: nn.Module, packed: Packed, *, reference: bool = False) -> Iterator[nn.Module]:
    """Let `model(input_ids=packed.input_ids(device))` run a packed micro-batch in this context: positions are the
    forest's, and each row attends to its own trajectory.

        with attn.training.packed_model(model, packed):
            logits = model(packed.input_ids(model.device)).logits  # [1, rows, vocabulary]

    model      of Transformers: a decoder of MODELS, with a head or without, wrapped or not. Its attn_implementation does not
               matter. Gradient checkpointing works as it is set; backward may run in the context or after it
    reference  True: attention by the float64 reference, also on CPU tensors of float32 or float64

    Options without a meaning over a forest are refused by name. SpecError, for the model: dropout, balance losses of
    experts, layers of state spaces, RoPE whose frequencies depend on a sequence's length. TensorError, for a call: a
    mask, positions, a cache, labels, other token ids.
    """
    if not isinstance(packed, Packed):
        raise expected(SpecError, "packed", "what attn.training.pack gives", packed)
    if not isinstance(reference, bool):
        raise expected(SpecError, "reference", "True or False", reference)
    _check_model(model)
    for layer in _attention_layers(model):
        if "attn_forest_hooks" not in layer.__dict__:
            # They stay: without a forest they do nothing, and a checkpoint's second run has its forest from
            # the first.
            layer.attn_forest_hooks = (
                layer.register_forward_pre_hook(_enter, with_kwargs=True),
                layer.register_forward_hook(_leave, always_call=True),
            )
    call = ForestCall(packed.forest, reference)

    def with_forest(_: nn.Module, given: tuple, named: dict) -> tuple[tuple, dict]:
        return _inputs(packed, call, given, named)

    handle = model.register_forward_pre_hook(with_forest, with_kwargs=True, prepend=True)
    try:
        yield model
    finally:
        handle.remove()


@overload
def logprobs(
    model: nn.Module,
    packed: Packed,
    *,
    temperature: float = ...,
    entropy: Literal[False] = ...,
    chunk: int | None = ...,
    reference: bool = ...,
) -> Tensor: ...


@overload
def logprobs(
    model: nn.Module,
    packed: Packed,
    *,
    temperature: float = ...,
    entropy: bool,
    chunk: int | None = ...,
    reference: bool = ...,
) -> Any: ...


def logprobs(
    model: nn.Module,
    packed: Packed,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    chunk: int | None = CHUNK,
    reference: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the log-probability of each edge's target under a causal model: [edges]; with `entropy` (these, entropies
    of the edges' rows [edges]).

    temperature  divides the logits
    chunk        rows whose logits exist at a time; None: all. Only rows that have edges get logits
    reference    as of `packed_model`

    Raises the errors of `packed_model`; TensorError, for targets outside of the vocabulary.
    """
    with (
        packed_model(model, packed, reference=reference),
        edge_head(model, packed, temperature=temperature, entropy=entropy, chunk=chunk),
    ):
        device = next(model.parameters()).device
        sources = torch.from_numpy(packed.sources).to(device)
        found = model(input_ids=packed.input_ids(device), logits_to_keep=sources).logits[0]
    return (found[:, 0], found[:, 1]) if entropy else found[:, 0]


def forest_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    attn_forest: ForestCall | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Compute a layer's attention over a forest's rows; the model calls it. `query [1, q_heads, rows, dim]`, `key,
    value [1, kv_heads, rows, dim]`; returns `[1, rows, q_heads, value_dim]`."""
    if attn_forest is None:
        raise TensorError(f"{NAME}: expected to be called by attn.training.packed_model")
    if dropout:
        raise TensorError(f"dropout: expected 0 over a forest, got {dropout}")
    if not attn_forest.reference:
        query, key, value = cast_under_autocast(query, key, value)
    if not attn_forest.reference and query.dtype not in _KERNEL_DTYPES:
        raise TensorError(
            f"{type(module).__name__}: expected bfloat16 or float16, got {query.dtype}; load the model in one of them, or "
            "take packed_model(..., reference=True)"
        )
    q, k, v = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    out = attend(
        q,
        k,
        v,
        causal=True,
        window=sliding_window,
        scale=scaling,
        forest=attn_forest.forest,
        reference=attn_forest.reference,
    )
    return out[None], None


AttentionInterface.register(NAME, forest_attention)


# --- Arguments of layers and models
# ---------------------------------------------------------------------------


def _attention_layers(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, "num_key_value_groups")]


def _enter(layer: nn.Module, given: tuple, named: dict) -> None:
    """Let a layer use the attention over forests during one call of it."""
    if named.get("attn_forest") is not None:
        layer.attn_own_config = layer.config
        layer.config = copy.copy(layer.config)
        layer.config._attn_implementation_internal = NAME


def _leave(layer: nn.Module, given: tuple, output: Any) -> None:
    if "attn_own_config" in layer.__dict__:
        layer.config = layer.__dict__.pop("attn_own_config")


_REFUSED = {
    "attention_mask": "a forest says what each row sees",
    "position_ids": "a forest says where each row is",
    "past_key_values": "rows of a forest see no cache",
    "cache": "rows of a forest see no cache",
    "labels": "a row may have several targets: take attn.training.edge_loss",
    "inputs_embeds": "token ids are compared with the forest's",
}


def _inputs(packed: Packed, call: ForestCall, given: tuple, named: dict) -> tuple[tuple, dict]:
    named = dict(named)
    if given:
        if len(given) > 1 or "input_ids" in named:
            raise TensorError(
                "model: expected input_ids and named arguments beside a forest, got others in order"
            )
        named["input_ids"] = given[0]
    for name, why in _REFUSED.items():
        if named.get(name) is not None:
            raise TensorError(f"{name}: expected None beside a forest, as {why}")
    for name in ("use_cache", "output_attentions", "output_router_logits"):
        if named.get(name):
            raise TensorError(f"{name}: expected False beside a forest, got {named[name]}")
    ids = named.get("input_ids")
    if not isinstance(ids, Tensor) or tuple(ids.shape) != (1, len(packed.tokens)):
        shape = list(ids.shape) if isinstance(ids, Tensor) else ids
        raise TensorError(
            f"input_ids: expected packed.input_ids(device), [1, {len(packed.tokens)}], got {shape}"
        )
    own = packed.input_ids(ids.device)
    if ids is not own and not torch.equal(ids, own):
        raise TensorError("input_ids: expected packed.input_ids(device), got other token ids")
    named["position_ids"] = torch.from_numpy(packed.forest.positions.copy()).long()[None].to(ids.device)
    # It has four dimensions: a model passes such a mask on unchanged, and makes none of its own.
    named["attention_mask"] = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids.device)
    named["use_cache"] = False
    named["attn_forest"] = call
    return (), named


# --- Refused models
# -------------------------------------------------------------------------------------------


def _check_model(model: nn.Module) -> None:
    modules = model.modules() if isinstance(model, nn.Module) else ()
    inner = next((m for m in modules if isinstance(m, PreTrainedModel)), None)
    if inner is None:
        raise expected(SpecError, "model", "a model of Transformers", type(model).__name__)
    config = inner.config
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    others = [
        k for k in dict.fromkeys(kinds) if k not in ("full_attention", "sliding_attention", "attention")
    ]
    if others or any(hasattr(config, name) for name in ("state_size", "mamba_d_state", "ssm_cfg")):
        what = ", ".join(map(str, others)) or "a state space"
        raise SpecError(
            f"model: {config.model_type} has layers of {what}, which run through a row's trajectory: over packed rows they "
            "would run through its neighbours; train it on replicated sequences"
        )
    if config.model_type not in MODELS:
        raise expected(SpecError, "model", f"one of {', '.join(MODELS)}", config.model_type)
    if getattr(config, "output_router_logits", False):
        raise SpecError(
            "model: expected config.output_router_logits=False, as the balance loss of experts would count each shared token "
            "once, where copies count it once for each trajectory"
        )
    if model.training:
        _check_dropout(model, config)
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("dynamic", "longrope"):
        raise SpecError(
            f'model: expected RoPE of fixed frequencies, got rope_type "{kind}", whose depend on the longest trajectory of a '
            "micro-batch"
        )


def _check_dropout(model: nn.Module, config: Any) -> None:
    """Refuse dropout: copies of a shared token would each lose other features, and a forest holds the token once."""
    rate = getattr(config, "attention_dropout", 0.0)
    if rate:
        raise SpecError(f"model: expected config.attention_dropout=0.0 in training over a forest, got {rate}")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p and module.training:
            raise SpecError(f"model: expected no dropout in training over a forest, got {module.p} of {name}")
