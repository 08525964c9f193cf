# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's context_parallel with attn's attention inside, against PyTorch's attention in one process."""

import attn
import pytest
import torch
from attn import distributed
from ranks import run_ranks

TOKENS = 64


def made():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, TOKENS, 64, generator=generator).bfloat16() for heads in (4, 2, 2)]


def in_context(rank, form):
    """Run PyTorch's context with attn's attention; returns the whole output and gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn import functional

    mesh, buffers = init_device_mesh("cpu", (2,)), made()
    before = functional.scaled_dot_product_attention
    with (
        context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3),
        distributed.patch_sdpa(mesh, form=form),
    ):
        own = [each.clone().requires_grad_() for each in buffers]
        out = functional.scaled_dot_product_attention(*own, is_causal=True, enable_gqa=True)
        out.square().sum().backward()
        with pytest.raises(attn.TensorError, match="dropout_p: expected 0.0 under patch_sdpa, got 0.5"):
            functional.scaled_dot_product_attention(*own, dropout_p=0.5)
    assert functional.scaled_dot_product_attention is before and buffers[0].shape[2] == TOKENS
    split = distributed.split(TOKENS, 2, method="zigzag")
    return [distributed.unshard(each, split, mesh, dim=2) for each in (out, *(each.grad for each in own))]


def test_context_parallel_runs_on_attn(tmp_path):
    found, _ = run_ranks(2, in_context, "ring", tmp_path=tmp_path)
    given = [each.double().requires_grad_() for each in made()]
    out = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
    out.square().sum().backward()
    for got, want in zip(found, [out, *(each.grad for each in given)], strict=True):
        assert (got.double() - want).norm() < 1.2e-2 * want.norm()


def differentiated_again(rank, form):
    """Differentiate gradients again, and forward; returns the messages."""
    from torch.autograd import forward_ad

    given = [each.transpose(1, 2)[:, : TOKENS // 2].contiguous().requires_grad_() for each in made()]

    split = distributed.split(TOKENS, 2, method="zigzag")

    def attend(*tensors):
        return distributed.attend(*tensors, form=form, split=split, causal=True)

    (once,) = torch.autograd.grad(attend(*given).float().sum(), given[:1], create_graph=True)
    told = []
    for of in range(3):
        with pytest.raises(attn.TensorError) as error:
            torch.autograd.grad(once.float().sum(), given[of : of + 1], allow_unused=True, retain_graph=True)
        told.append(str(error.value))
    with forward_ad.dual_level(), pytest.raises(attn.TensorError) as error:
        q = given[0].detach()
        attend(forward_ad.make_dual(q, q), *given[1:])
    return [*told, str(error.value)]


@pytest.mark.parametrize("form", ["all_gather", "ring"])
def test_second_and_forward_derivatives_are_refused(form, tmp_path):
    for told in run_ranks(2, differentiated_again, form, tmp_path=tmp_path):
        assert all("does not support second derivatives" in each for each in told[:3])
        assert told[3].startswith(
            "attn does not support torch.func.jvp, jacfwd and torch.autograd.forward_ad"
        )
