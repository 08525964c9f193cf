# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps the names of other libraries' arguments to attend's."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import SpecError, closest

_MASK = (
    "attn has no mask tensors: say who sees what by causal, window and sink, see=, kv_lengths or cu_seqlens; a bias is "
    "a score function: score=lambda s, h, qi, ki, bias: s + bias[qi, ki], tensors={'bias': bias}"
)
_OF_SDPA = ". Tensors of scaled_dot_product_attention are layout='bhsd'"
_NO_DROPOUT = "attn has no dropout: leave it out where it is 0"
_HINTS = {
    "attn_mask": _MASK + _OF_SDPA,
    "is_causal": "write causal=True. Rows are the last positions of the tokens; in scaled_dot_product_attention they are "
    "the first, which is the same where there are as many rows as tokens" + _OF_SDPA,
    "enable_gqa": "leave it out: which query heads share a KV head follows from the shapes" + _OF_SDPA,
    "dropout_p": _NO_DROPOUT,
    "attention_mask": _MASK,
    "mask": _MASK,
    "softmax_scale": "write scale=",
    "sm_scale": "write scale=",
    "sliding_window": "write causal=True, window=w",
    "alibi_slopes": "write score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi), tensors={'slopes': slopes}",
    "logits_soft_cap": "write softcap=",
    "return_attn_probs": "probabilities are never in memory; return_lse=True gives (out, lse)",
    "return_softmax_lse": "write return_lse=True",
    "cu_seqlens_q": "write cu_seqlens=, and cu_seqlens_k= where keys have others",
    "max_seqlen_q": "leave it out: it follows from cu_seqlens",
    "max_seqlen_k": "leave it out: it follows from cu_seqlens",
    "cache_seqlens": "write kv_lengths=",
    "deterministic": "write ordered=True, for gradients: the same input gives the same bits forward",
    "score_mod": "write score=, without a batch index, and what it captures as arguments by name in tensors=. Tensors of "
    "flex_attention are layout='bhsd'",
    "block_mask": "nothing is to be made: see=, causal, window and sink say the same. Tensors of flex_attention are "
    "layout='bhsd'",
    "sinks": "write sink_logits=",
    "s_aux": "write sink_logits=",
}


def refuse_options(given: Iterable[str], legal: Iterable[str]) -> None:
    """Raise a SpecError for the first argument that attend does not have."""
    for name in given:
        nearest = (closest(name, (*legal, *_HINTS)) or "").strip("'")
        hint = _HINTS.get(name) or _HINTS.get(nearest)
        if hint is None:
            hint = f"nearest legal: {nearest}" if nearest else "see help(attn.attend)"
        raise SpecError(f"attend: has no argument {name!r}; {hint}")
