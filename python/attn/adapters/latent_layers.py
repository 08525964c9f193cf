# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with latent attention (MLA) of Transformers' models, over pages that hold latents.

Such a layer projects a token to a latent and to a rotated key that its heads share. `kv_b_proj` expands the latent to a
key and a value for each head, and Transformers attends to those. A cache of latents needs what goes into that projection,
and its weights:

    q . k = (q W_k) . latent + q_rotated . k_rotated        queries in latent form: W_k is absorbed
    out   = (sum of weights * latent) W_v

So a latent cache lets `kv_b_proj` say what it read (LatentLinear), while the layer's `forward` runs (`watch_latents`).
All else is the model's own: norms, rotations and factors. The rows of an empty cache attend to each other in expanded
form, which has fewer products; all others attend to pages in latent form, and their expansion is left out.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..describe.stores import first as first_features
from ..errors import PlanError, TensorError, expected
from ..memory.formats import MIXED, check_latent_key
from .transformers_config import CACHE, check_formats


class _Calls(threading.local):
    current: LatentCall | None = None


_calls = _Calls()


class LatentCall:
    """The forward pass of one layer over a cache of latents."""

    def __init__(self, module: nn.Module, expands: bool):
        self.module, self.expands = module, expands
        """Whether rows attend to each other in expanded form, because nothing was before them."""
        self.latents: Tensor | None = None
        """The input of kv_b_proj, [batch, rows, kv_lora_rank] or [batch, 1, rows, kv_lora_rank]."""
        self._weight: Tensor | None = None
        """The weights of kv_b_proj in the dtype of the queries."""
        self.layer: Any = None
        """The layer of the cache, once the model has given it the new keys; None before."""

    def lines(self, key: Tensor) -> Tensor:
        """Return the new lines of the cache, [batch, 1, rows, kv_lora_rank + rotated], from keys [batch, heads, rows,
        dim], whose last features are those that all heads share."""
        batch, _, rows, dim = key.shape
        assert self.latents is not None
        latents = self.latents.reshape(batch, 1, rows, -1).to(key.dtype)
        return torch.cat((latents, key[:, :1, :, dim - self.rotated :]), -1)

    @property
    def rotated(self) -> int:
        """The rotated features of a key."""
        return int(self.module.config.qk_rope_head_dim)

    def weights(self, value_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the projections of keys [heads, dim, kv_lora_rank] and of values [heads, value_dim, kv_lora_rank]."""
        if self._weight is None or self._weight.dtype != dtype:
            self._weight = self.module.kv_b_proj.weight.to(dtype)
        weight = self._weight
        heads = self.module.num_heads
        whole = weight.view(heads, -1, weight.shape[1])
        return whole[:, : whole.shape[1] - value_dim], whole[:, whole.shape[1] - value_dim :]

    def absorb(self, query: Tensor, value_dim: int) -> Tensor:
        """Return queries [tokens, heads, dim] in latent form, [tokens, heads, kv_lora_rank + rotated]."""
        plain, turned = query.split((query.shape[2] - self.rotated, self.rotated), -1)
        absorbed = torch.matmul(plain.transpose(0, 1), self.weights(value_dim, query.dtype)[0])
        return torch.cat((absorbed.transpose(0, 1), turned), -1)

    def expand(self, out: Tensor, value_dim: int) -> Tensor:
        """Return outputs [tokens, heads, kv_lora_rank] as outputs of the heads, [tokens, heads, value_dim]."""
        of_values = self.weights(value_dim, out.dtype)[1].transpose(1, 2)
        return torch.matmul(out.transpose(0, 1), of_values).transpose(0, 1)


class LatentLinear(nn.Linear):
    """The projection that expands latents. Over a cache of latents it says what it read."""

    def forward(self, input: Tensor) -> Tensor:
        call = _calls.current
        if call is None or call.module.kv_b_proj is not self:
            return super().forward(input)
        call.latents = input
        if call.expands:
            return super().forward(input)
        return input.new_zeros(1).expand(*input.shape[:-1], self.out_features)  # Nobody reads the expansion.


def latent_features(config: Any) -> tuple[int, int] | None:
    """Return the features of a latent, and the rotated features behind them, of a model with latent attention; None for
    other models, and for those whose layers select tokens with a cache of their own (DeepSeek-V3.2)."""
    if getattr(config, "index_topk", None):
        return None
    found = getattr(config, "kv_lora_rank", None), getattr(config, "qk_rope_head_dim", None)
    return found if all(found) else None


def check_latent(config: Any, latent: bool | None, formats: dict[str, object]) -> bool:
    """Return whether a cache of the model holds latents: `latent`, or by default if it can. PlanError if it cannot."""
    known = latent_features(config)
    if latent is None:
        return known is not None and not formats
    if latent and known is None:
        name = getattr(config, "model_type", type(config).__name__)
        legal = f"False or None, as {name} has no layers with latent attention"
        raise expected(PlanError, "latent", legal, latent, nearest=False)
    return latent


def latent_formats(config: Any, formats: dict[str, object]) -> dict[str, object]:
    """Return the formats of a cache of latents, of which values are a part. PlanError for formats that it cannot have."""
    features = config.kv_lora_rank
    check_formats({name: given for name, given in formats.items() if name != "key_scales"})
    for name, given in formats.items():
        if name not in ("key", "key_scales") and given is not None:
            raise expected(
                PlanError, name, "None for a cache of latents, whose values are a part of keys", given
            )
    scales = formats.get("key_scales")
    if (key := formats.get("key")) is None:
        if scales is not None:
            raise expected(PlanError, "key_scales", "None without key", scales)
        return {"value": first_features(features)}
    check_latent_key("key", key, features, PlanError)
    if key == MIXED:
        if scales is not None:
            raise expected(
                PlanError, "key_scales", f"None beside key={MIXED!r}, whose lines hold them", scales
            )
        return {"key": key, "value": first_features(features)}
    return {"key": key, "key_scales": scales or "tensor", "value": first_features(features)}


def note_layer(layer: Any) -> None:
    """Note which layer of a cache of latents the layer of the model has given its keys to. TensorError if the model is not
    watched."""
    call = _calls.current
    if call is None:
        raise TensorError(
            f"{CACHE}: holds latents, and the model gives it keys and values of its heads: load a model with kv_b_proj "
            'and attn_implementation="attn", or take a dynamic or static cache'
        )
    call.layer = layer


def latent_call(module: nn.Module) -> LatentCall | None:
    """Return the pass of a layer whose new keys went to a cache of latents; None of other layers."""
    call = _calls.current
    return call if call is not None and call.module is module and call.layer is not None else None


def watch_latents(model: type[nn.Module], name: str) -> None:
    """Watch the layers with latent attention of a class of models from now on: what they give to caches of latents.
    `name`: the attn_implementation that they must have."""
    home = sys.modules.get(model.__module__)
    for layer in list(vars(home).values()) if home is not None else ():
        if not (
            isinstance(layer, type) and issubclass(layer, nn.Module) and layer.__module__ == home.__name__
        ):
            continue
        forward = layer.__dict__.get("forward")
        if forward is None or hasattr(forward, "attn_forward") or not _expands_latents(layer):
            continue
        layer.forward = _watched(forward, name)


def _expands_latents(layer: type[nn.Module]) -> bool:
    try:
        return "self.kv_b_proj = nn.Linear(" in inspect.getsource(layer.__init__)
    except (OSError, TypeError):
        return False


def _watched(forward: Callable, name: str) -> Callable:
    @functools.wraps(forward)
    def watched(self: nn.Module, *args: object, **kwargs: object) -> object:
        cache = kwargs.get("cache")
        if cache is None:
            cache = kwargs.get("past_key_values")
        if not getattr(cache, "is_latent", False) or self.config._attn_implementation != name:
            return forward(self, *args, **kwargs)
        _check_projection(self)
        call = LatentCall(self, expands=not cache.holds_tokens(self.layer_idx))
        before, _calls.current = _calls.current, call
        try:
            return forward(self, *args, **kwargs)
        finally:
            _calls.current = before

    watched.attn_forward = forward  # type: ignore[attr-defined]
    return watched


def _check_projection(module: nn.Module) -> None:
    """Let the projection say what it reads. TensorError if its weights are not a plain matrix."""
    projection = module.kv_b_proj
    if type(projection) is nn.Linear and projection.bias is None:
        projection.__class__ = LatentLinear
    if type(projection) is not LatentLinear:
        legal = "a torch.nn.Linear without bias, whose weights queries and outputs are multiplied by"
        where = f"{type(module).__name__}.kv_b_proj over a cache of latents"
        raise expected(TensorError, where, legal, type(projection).__name__)
    config, rows = module.config, projection.weight.shape[0]
    whole = module.num_heads * (config.qk_nope_head_dim + config.v_head_dim)
    if rows != whole:
        legal = f"weights of all {module.num_heads} heads, {whole} rows, on every rank"
        hint = "Heads that ranks share have PagedCache(latent=False)"
        raise expected(TensorError, f"{type(module).__name__}.kv_b_proj", legal, rows, hint=hint)
