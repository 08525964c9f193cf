# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other libraries for the same attention, each as a Side of a contest (contest.py).

cuDNN and FlashAttention are backends of PyTorch's scaled_dot_product_attention; FlexAttention is compiled with a block
mask. All get the tensors of a model: views [batch, heads, tokens, dim] in bf16, with grouped heads. A backend that
declines grouped heads gets keys and values of every query head in prefill, where it reads them from the L2 (its name
says so); in decode that would be other work. FlashInfer and FlashAttention-4 take part if they are installed.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from measuring import flashinfer_peer

EXPANDS = ("cudnn", "flash")  # They get keys and values of every head if they decline grouped ones.


@dataclass(frozen=True)
class Side:
    """A side of a contest. `run` is timed, `result` returns its output [batch, rows, heads, dim], and `record` returns
    a function that a graph may record, if that is another one."""

    run: Callable
    result: Callable
    record: Callable | None = None


def is_causal(tensors):
    """Whether the mask is causal for a backend: the one row of a decoding step sees everything."""
    return tensors.rows[0] > 1 and tensors.point.problem.see == "causal"


def keeping(function, view=lambda result: result):
    """Return the side of a function that makes its result."""
    kept = []

    def run():
        kept[:] = [function()]

    return Side(run, lambda: view(kept[0]))


def expanded(tensors, k, v):
    return (x.repeat_interleave(tensors.point.problem.group, 1) for x in (k, v))


def backend(name, expand=False):
    """Return a maker of the side of a backend of PyTorch."""

    def make(torch, tensors):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        which = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name]
        q, k, v = tensors.heads_first()
        if expand:
            k, v = expanded(tensors, k, v)
        causal, gqa = is_causal(tensors), q.shape[1] != k.shape[1]

        def attention():
            with sdpa_kernel(which):
                return sdpa(q, k, v, is_causal=causal, enable_gqa=gqa)

        return keeping(attention, lambda result: result.transpose(1, 2))

    return make


def causal_mask(batch, head, query, key):
    return query >= key


class Flex:
    """Makes FlexAttention's side. Lengths are marked as dynamic, so that the first of a problem is compiled for itself
    and the others share a compilation if PyTorch can; decoding is compiled for every shape."""

    def __init__(self):
        self.compiled_for = self.flex = None

    def __call__(self, torch, tensors):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q, k, v = tensors.heads_first()
        causal, decode = is_causal(tensors), q.shape[2] == 1
        key = (q.shape[:2], q.shape[3], k.shape[1], causal, decode)
        if key != self.compiled_for:
            torch._dynamo.reset()
            self.compiled_for, self.flex = key, torch.compile(flex_attention)
        for tensor in (q, k, v):
            if not decode:
                torch._dynamo.maybe_mark_dynamic(tensor, 2)
        mask = None
        if causal:
            mask = create_block_mask(causal_mask, None, None, q.shape[2], k.shape[2], device=q.device)
        gqa = q.shape[1] != k.shape[1]
        scale, flex = 1 / math.sqrt(q.shape[3]), self.flex
        return keeping(
            lambda: flex(q, k, v, block_mask=mask, scale=scale, enable_gqa=gqa),
            lambda result: result.transpose(1, 2),
        )


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise RuntimeError("is not installed") from None


def flash4_attention(causal):
    """Return FlashAttention-4 (CuTe DSL), which has kernels for Hopper as well: a function of q, k, v [batch, tokens,
    heads, dim]."""
    attention = installed("flash_attn.cute").flash_attn_func

    def attend(q, k, v):
        found = attention(q, k, v, causal=causal)
        return found[0] if isinstance(found, tuple) else found

    return attend


def flash4(torch, tensors):
    attend = flash4_attention(is_causal(tensors))
    given = [tensors.by_sequence(x) for x in (tensors.q, tensors.k, tensors.v)]
    return keeping(lambda: attend(*given))


def flashinfer(torch, tensors):
    library = installed("flashinfer")
    if tensors.rows[0] == 1:
        return Side(*flashinfer_peer.decode(library, torch, tensors, tensors.pages))
    if tensors.point.problem.dim == 96:
        raise RuntimeError(
            "reads memory that is not its own with heads of 96 (0.7.2): the process could not go on"
        )
    return Side(*flashinfer_peer.prefill(library, torch, tensors, is_causal(tensors)))


def flashinfer_fp8(torch, tensors):
    """Return FlashInfer's decoding of e4m3 without scales."""
    library = installed("flashinfer")
    return Side(*flashinfer_peer.decode(library, torch, tensors.plain, tensors.fp8()))


def flashinfer_single(torch, tensors):
    """Return FlashInfer's call for one sequence, which has a scheduler of its own."""
    prefill = installed("flashinfer").single_prefill_with_kv_cache
    q, k, v, causal = tensors.q, tensors.k, tensors.v, is_causal(tensors)
    return keeping(lambda: prefill(q, k, v, causal=causal), lambda result: result[None])


def makers():
    """Return the makers of all peers, by name."""
    return {
        "cudnn": backend("cudnn"),
        "flash": backend("flash"),
        "flex": Flex(),
        "flashinfer": flashinfer,
        "flashinfer, fp8": flashinfer_fp8,
        "flashinfer, single": flashinfer_single,
        "flash4": flash4,
    }


def reason(error, said=()):
    """Return one line of an exception, whose texts can be pages, and of the warnings before it."""
    texts = [str(error).strip() or type(error).__name__, *(str(warning.message) for warning in said)]
    return "; ".join(dict.fromkeys(text.splitlines()[0].strip() for text in texts))[:240]
