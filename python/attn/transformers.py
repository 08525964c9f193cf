# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn in Hugging Face Transformers: importing this module registers the attention implementations "attn", "attn_row"
and "attn_flash".

    import attn.transformers
    model = AutoModelForCausalLM.from_pretrained(..., dtype=torch.bfloat16, attn_implementation="attn")
    model.generate(**inputs)                                              # dynamic and static caches
    model.generate(**inputs, past_key_values=attn.transformers.PagedCache(model.config, pages=4096))
    model.generate(**inputs, past_key_values=attn.transformers.DiffKVCache(model.config, policy, pages=4096))
    model.generate(**inputs, past_key_values=attn.transformers.ShardedCache(model.config, pages=4096, group=mesh))
    attn.transformers.Decoder(model, sequences=16, tokens=8192).generate(**inputs, max_new_tokens=256)  # recorded steps
    attn.transformers.Decoder(model, sequences=16, tokens=8192, cache=attn.transformers.PagedCache(model.config, pages=4096))
    attn.transformers.Engine(model, sequences=64, tokens=8192, cache=attn.transformers.PagedCache(model.config, pages=16384))
    model.generate_batch(prompts)                                         # continuous batching, "paged|attn"
    attn.transformers.apply_head_gates(model, attn.heads.Gates.load("gates").select(sparsity=0.5))

"attn_row" is "attn" with numerics="row": rows of the same sequence have the same bits in training, `generate`, and the
engine, whatever shares their batch (attn.check_bits). It has no fallback.

"attn_flash" is Transformers' flash path over attn.flash_attn, for packed and padding-free inputs and for the continuous
batching of newer versions, which take a name with "flash" in it.

What a model asks of its attention becomes a description: causal or not, sliding windows, chunks, packed sequences, images
that see themselves both ways, soft caps, learned sinks, grouped heads. No mask is built: of padding only where each sequence
begins and ends is kept. What has no description runs in PyTorch, with a FallbackWarning that names it, or is refused by
that name:

    attn.transformers.set_fallback(False)

(Source: transformers' AttentionInterface and AttentionMaskInterface.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from transformers import AttentionInterface, AttentionMaskInterface

from . import torch_ops
from .adapters.diffkv_cache import DiffKVCache, DiffKVLayer
from .adapters.diffkv_steps import attend_precisions
from .adapters.head_gates import apply_head_gates
from .adapters.latent_layers import latent_call
from .adapters.latent_steps import attend_latents
from .adapters.layer_calls import (
    attend_again,
    attend_planned,
    layer_name,
    learn_layer,
    narrowed,
    read_sinks,
    remember,
    see_without_mask,
    signature_of,
    spans_of,
    visible_of,
)
from .adapters.merged_projections import merge_projections
from .adapters.paged_batches import attend_batch
from .adapters.paged_steps import attend_pages
from .adapters.planned_batches import PagedInputs, is_capturing, is_padded
from .adapters.rows.mask_functions import CAUSAL
from .adapters.rows.padded_calls import PaddedCall, Scores
from .adapters.rows.padded_gradients import attend_with_gradients
from .adapters.sharded_cache import ShardedCache, ShardedLayer
from .adapters.sharded_steps import attend_shards
from .adapters.span_mask import SpanMask, ends_at_rows, is_causal_or_window
from .adapters.tensor_parallel import watch_parallelism
from .adapters.transformers_cache import PagedCache, layer_of
from .adapters.transformers_causes import unserved_cause
from .adapters.transformers_config import CACHE
from .adapters.transformers_fallback import (
    NAME,
    PAGED_NAME,
    ROW_NAME,
    FallbackWarning,
    attend_in_pytorch,
    refuse_in_pytorch,
    set_fallback,
    unserved,
    watch_models,
)
from .adapters.transformers_mask import make_mask
from .errors import TensorError
from .flash_attn.transformers_flash import register_flash
from .generation.decoder import Decoder
from .generation.engine import Engine
from .memory.views import needs_gradient, refuse_tangents
from .run.torch_rules import cast_under_autocast

__all__ = [
    "Decoder",
    "DiffKVCache",
    "Engine",
    "FallbackWarning",
    "PagedCache",
    "ShardedCache",
    "apply_head_gates",
    "attention_forward",
    "merge_projections",
    "paged_attention_forward",
    "set_fallback",
]

_SERVE = {
    DiffKVLayer: (attend_precisions, "a cache in two precisions"),
    ShardedLayer: (attend_shards, "a cache that ranks share"),
}
"""The caches that have no numerics contract."""


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sinks: Tensor | None = None,
    numerics: str | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Compute a layer's attention; Transformers calls it.

    query         [batch, q_heads, rows, dim]
    key, value    [batch, kv_heads, tokens, dim]

    Returns ([batch, rows, q_heads, value_dim], None): attention weights are never in memory. The mask decides which
    tokens rows see, windows included; `is_causal` and `sliding_window` apply when there is no mask. Calls that attn
    does not serve run in PyTorch, or raise a TensorError (set_fallback). With `numerics` they always raise it.
    """
    if "indices" in kwargs or "block_indices" in kwargs:
        _refuse_lists(kwargs)
    if forward_ad._current_level >= 0 and not torch.compiler.is_compiling():
        refuse_tangents(query, key, value)
    if position_bias is not None or sinks is not None:
        return _attend_beside(
            module,
            query,
            key,
            value,
            attention_mask,
            bias=position_bias,
            dropout=dropout,
            scale=scaling if scaling is not None else query.shape[3] ** -0.5,
            causal=bool(is_causal if is_causal is not None else getattr(module, "is_causal", True)),
            numerics=numerics,
            softcap=softcap or 0.0,
            sinks=s_aux if sinks is None else sinks,
        ), None
    latents = None if torch.compiler.is_compiling() else latent_call(module)
    if (narrow := narrowed(query, key, value, attention_mask, latents)) is not None:
        scale = scaling if scaling is not None else query.shape[3] ** -0.5
        out, _ = attention_forward(
            *(module, *narrow, attention_mask, dropout, scale, sliding_window, softcap, is_causal, s_aux),
            numerics=numerics,
            **kwargs,
        )
        return out.to(query.dtype), None
    if latents is not None:
        refuse_in_pytorch(layer_name(module), "a cache of latents", numerics)
        out = attend_latents(
            latents,
            module,
            *cast_under_autocast(query, key, value),
            attention_mask,
            dropout=dropout,
            scale=scaling if scaling is not None else query.shape[3] ** -0.5,
            softcap=softcap or 0.0,
            sinks=s_aux,
        )
        if out is not None:
            return out, None
    options = scaling, softcap, numerics
    if type(attention_mask) is SpanMask and not torch.compiler.is_compiling():
        out = attend_again(attention_mask, module, query, key, value, dropout, options, s_aux)
        if out is not None:
            return out, None
    query, key, value = cast_under_autocast(query, key, value)
    scale = scaling if scaling is not None else query.shape[3] ** -0.5
    gates = module.__dict__.get("attn_head_gates")
    memo = None
    if (
        type(query) is type(key) is type(value) is Tensor
        and type(attention_mask) is SpanMask
        and not (torch.compiler.is_compiling() or dropout or torch.is_grad_enabled())
    ):
        memo = *signature_of(query, key, value, s_aux, scale, softcap, gates), numerics
        call = attention_mask.calls.get(memo)
        if call is not None and call.alive:
            return call(query, key, value, read_sinks(s_aux)), None
    causal, see = False, ""
    if attention_mask is None:
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        causal = bool(causal) and query.shape[2] > 1
        see = see_without_mask(causal, sliding_window or 0, query.shape[2])
    elif isinstance(attention_mask, SpanMask):
        see = attention_mask.see
    layer = layer_of(key)
    cause = unserved_cause(
        query, key, value, attention_mask, dropout, scale, see, softcap or 0.0, s_aux, gates
    )
    if layer is not None:
        if cause is None and (
            attention_mask is None or attention_mask.positions is not None or not is_causal_or_window(see)
        ):
            cause = "a mask that is more than causal with padding"
        if cause is not None:
            raise TensorError(f"{CACHE}: {layer_name(module)}: {cause}, which attn does not serve from pages")
        serve, more = attend_pages, {"numerics": numerics}
        if kind := next((kind for kind in _SERVE if isinstance(layer, kind)), None):
            (serve, what), more = _SERVE[kind], {}
            refuse_in_pytorch(layer_name(module), what, numerics)
        out = serve(
            layer,
            query,
            key,
            value,
            attention_mask.host_spans(),
            scale=scale,
            see=see,
            softcap=softcap or 0.0,
            sinks=s_aux,
            gates=gates,
            **more,
        )
        return out, None
    if cause is not None:
        refuse_in_pytorch(layer_name(module), cause, numerics)
        if gates is not None:
            raise TensorError(
                f"head gates: {layer_name(module)}: {cause}, which attn does not serve, nor PyTorch beside gates"
            )
        unserved(layer_name(module), cause)
        out = attend_in_pytorch(
            query,
            key,
            value,
            attention_mask.dense() if isinstance(attention_mask, SpanMask) else attention_mask,
            dropout=dropout,
            scale=scale,
            causal=causal,
            softcap=softcap or 0.0,
            sinks=s_aux,
        )
        return out, None
    if needs_gradient(query, key, value, s_aux):
        visible = visible_of(attention_mask, query, key, see)
        scores = Scores(scale, softcap or 0.0, numerics=numerics)
        return attend_with_gradients(query, key, value, read_sinks(s_aux), visible, scores), None
    if isinstance(attention_mask, SpanMask) and attention_mask.handle:
        out = attend_planned(
            module,
            query,
            key,
            value,
            attention_mask,
            scale=scale,
            softcap=softcap or 0.0,
            sinks=s_aux,
            gates=gates,
            numerics=numerics,
            eager=memo is not None,
        )
        if out is not None:
            return out, None
    if memo is not None:
        learn_layer(module, attention_mask, query, key, value, scale, softcap, s_aux, gates, numerics)
        streaming = (gates.classes, (gates.sink, gates.recent)) if gates else ((), ())
        scores = Scores(scale, softcap or 0.0, *streaming, numerics)
        sinks = read_sinks(s_aux)
        call = PaddedCall(query, key, value, sinks, attention_mask.visible, scores)
        attention_mask.calls[memo] = call
        if sinks is None and gates is None:
            remember(attention_mask, module, query, key, value, options, call)
        return call(query, key, value, sinks), None
    if attention_mask is None:
        spans, positions = spans_of(query, key, ends_at_rows(see)), None
    else:
        spans, positions = attention_mask.spans, attention_mask.positions
    out = torch_ops.attend_spans(
        query,
        key,
        value,
        spans,
        scale,
        see,
        softcap or 0.0,
        s_aux,
        list(gates.classes) if gates else None,
        [gates.sink, gates.recent] if gates else None,
        positions,
        numerics,
    )
    return out, None


def _attend_beside(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    sinks: Tensor | None,
    causal: bool,
    numerics: str | None,
    **options: float,
) -> Tensor:
    """Run a layer in PyTorch that adds a bias to scores, as T5 does, or has a sink for each row."""
    cause = "learned sinks for each row (sinks)" if bias is None else "a bias of scores (position_bias)"
    if layer_of(key) is not None or "attn_head_gates" in module.__dict__:
        where = "from pages" if layer_of(key) is not None else "beside head gates"
        raise TensorError(f"{layer_name(module)}: {cause}, which attn does not serve {where}")
    refuse_in_pytorch(layer_name(module), cause, numerics)
    unserved(layer_name(module), cause)
    seen = mask.dense() if isinstance(mask, SpanMask) else mask
    causal = causal and query.shape[2] > 1
    return attend_in_pytorch(query, key, value, seen, causal=causal, bias=bias, sinks=sinks, **options)


def _refuse_lists(kwargs: dict[str, object]) -> None:
    for name in ("indices", "block_indices"):
        if kwargs.get(name) is not None:
            raise TensorError(
                f"{name}: attn takes no list of tokens for each row; load the model with another attn_implementation"
            )


@torch.compiler.disable
def paged_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    cache: object = None,
    block_table: Tensor | None = None,
    numerics: str | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Compute a layer's attention in `generate_batch`; Transformers calls it. `query`: [1, q_heads, rows, dim], the
    rows of all sequences, over the pages of Transformers' PagedAttentionCache. TensorError, which names the layer, for
    a call that attn does not serve."""
    scale = scaling if scaling is not None else query.shape[3] ** -0.5
    gates = module.__dict__.get("attn_head_gates")
    cause = unserved_cause(
        query, key, value, attention_mask, dropout, scale, CAUSAL, softcap or 0.0, s_aux, gates
    )
    if cause is None and cache is None:
        cause = f'"{PAGED_NAME}" outside of generate_batch (use "{NAME}")'
    elif cause is None and block_table is not None:
        cause = "a block table instead of indices"
    elif cause is None and gates is not None:
        cause = "head gates in generate_batch (use generate)"
    elif cause is None and (
        given := [name for name in ("position_bias", "sinks") if kwargs.get(name) is not None]
    ):
        cause = f"{given[0]} in generate_batch"
    names = "cu_seq_lens_q", "cu_seq_lens_k", "read_index", "write_index"
    missing = [name for name in names if name not in kwargs]
    if cause is None and missing:
        cause = f"a cache without {', '.join(missing)}"
    inputs = PagedInputs(*(kwargs.get(name) for name in (*names, "max_seqlen_q")))
    if cause is None and is_capturing(query) and not is_padded(inputs, query.shape[2]):
        cause = "a CUDA graph of batches of one request (use max_requests_per_batch=2)"
    if cause is not None:
        raise TensorError(f"generate_batch: {layer_name(module)}: {cause}, which attn does not serve")
    sinks = read_sinks(s_aux)
    out = attend_batch(
        *(module.layer_idx, query, key, value, cache, inputs),
        scale=scale,
        softcap=softcap or 0.0,
        sinks=sinks,
        numerics=numerics,
    )
    return out, None


def row_attention_forward(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """Compute `attention_forward` with numerics="row"."""
    return attention_forward(*args, numerics="row", **kwargs)


def paged_row_attention_forward(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """Compute `paged_attention_forward` with numerics="row"."""
    return paged_attention_forward(*args, numerics="row", **kwargs)


for _name, _forward, _paged in (
    (NAME, attention_forward, paged_attention_forward),
    (ROW_NAME, row_attention_forward, paged_row_attention_forward),
):
    AttentionInterface.register(_name, _forward)
    AttentionInterface.register(f"paged|{_name}", _paged)
    AttentionMaskInterface.register(_name, make_mask)
register_flash()
watch_models()
watch_parallelism()
