# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that require gradients, and the error of gradients, for tests that have PyTorch."""

import attn
import torch


def leaves(*shapes, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def dense(batch=2, rows=3, tokens=5, heads=4, kv_heads=2, dim=8, value_dim=16, **named):
    return leaves(
        (batch, rows, heads, dim),
        (batch, tokens, kv_heads, dim),
        (batch, tokens, kv_heads, value_dim),
        **named,
    )


def reference(**options):
    return lambda *tensors: attn.attend(*tensors, **options, reference=True, return_lse=True)


def gradients(function, tensors, seed=1):
    """Return the function's results, and the gradients of their sum with random weights, which are numbers of bfloat16."""
    results = function(*tensors)
    random = torch.Generator().manual_seed(seed)
    weights = [torch.randn(found.shape, generator=random).bfloat16().double() for found in results]
    loss = sum((found.double() * weight).sum() for found, weight in zip(results, weights, strict=True))
    return results, torch.autograd.grad(loss, tensors)


def error(found, wanted):
    """Return the relative error of the whole tensor."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / max(wanted.norm(), 1e-300))
