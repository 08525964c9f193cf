# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ring-flash-attn over the FlashAttention-2 that PyTorch contains. flash-attn has no wheel for PyTorch 2.11, and building it
takes nvcc; ring-flash-attn itself is Python, and calls two functions of flash-attn, which this file gives it."""

import functools
import importlib
import importlib.util
import sys
import types

import torch

_SEED: list = []  # The last forward pass made it. The backward op asks for one, and reads it with dropout only.


def _flash_attn_forward(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size_left=-1,
    window_size_right=-1,
    alibi_slopes=None,
    return_softmax=False,
):
    """Compute out [batch, seq, heads, dim] and lse [batch, heads, seq]."""
    out, lse, *_SEED[:], _ = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        None,
        None,
        q.shape[1],
        k.shape[1],
        dropout_p,
        causal,
        False,
        scale=softmax_scale,
    )
    return out, lse, None, None


def _flash_attn_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq=None,
    dk=None,
    dv=None,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size_left=-1,
    window_size_right=-1,
    alibi_slopes=None,
    deterministic=False,
):
    """Write the gradients to dq, dk and dv: three copies that flash-attn does not make, about 1 % of the time."""
    found = torch.ops.aten._flash_attention_backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse.contiguous(),
        None,
        None,
        q.shape[1],
        k.shape[1],
        dropout_p,
        causal,
        *_SEED,
        scale=softmax_scale,
    )
    for given, gradient in zip((dq, dk, dv), found, strict=True):
        given.copy_(gradient)


@functools.cache
def zigzag():
    """Return zigzag_ring_flash_attn_func, or None where ring-flash-attn is not installed. Only its own module is imported:
    the package's adapters need Transformers."""
    found = importlib.util.find_spec("ring_flash_attn")
    if found is None:
        return None
    package = types.ModuleType("ring_flash_attn")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["ring_flash_attn"] = package
    if importlib.util.find_spec("flash_attn") is None:
        flash, interface = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.flash_attn_interface")
        flash.__path__ = []
        for function in (_flash_attn_forward, _flash_attn_backward):
            setattr(interface, function.__name__, function)
        sys.modules |= {"flash_attn": flash, "flash_attn.flash_attn_interface": interface}
    module = importlib.import_module("ring_flash_attn.zigzag_ring_flash_attn")
    return module.zigzag_ring_flash_attn_func
