# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that do not exist are refused by name."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.run.backward import check_place  # noqa: E402
from gradient_tensors import dense, leaves  # noqa: E402


def refused(message):
    return pytest.raises(attn.TensorError, match=message)


def test_refusals_of_attend():
    q, k, v = dense(dim=16, dtype=torch.bfloat16)
    with refused("out: expected None where a gradient is required"):
        attn.attend(q, k, v, out=torch.empty_like(q))
    with refused("out: expected None of the reference"):
        attn.attend(q.detach(), k.detach(), v.detach(), out=torch.empty_like(q), reference=True)
    with refused("k: expected a tensor of PyTorch, got ndarray"):
        attn.attend(q, k.detach().float().numpy(), v)
    with refused("v: expected the dtype of q, torch.bfloat16, got torch.float16"):
        attn.attend(q, k, v.detach().half())
    with refused("q: the reference reads CPU memory, got a tensor on meta; nearest: q.cpu()"):
        attn.attend(q.detach().to("meta"), k, v, reference=True)
    with refused(r"k: expected \[batch, seq, heads, dim\] of"):
        attn.attend(q, k.detach()[:, :3], v)
    with refused("reference: expected True or False, got 'yes'"):
        attn.attend(q, k, v, reference="yes")
    with refused("q: expected floats of 16, 32 or 64 bits, got torch.int32"):
        attn.attend(q.detach().int(), k, v, reference=True)


def test_refusals_of_forests():
    q, k, v = leaves((4, 2, 16), (4, 1, 16), (4, 1, 16), dtype=torch.bfloat16)
    forest = attn.Forest([0, 4], [-1])
    with refused("q: expected the 4 tokens of the forest, each a row, got 3"):
        attn.attend(q[:3], k, v, causal=True, forest=forest)
    with refused("cu_seqlens: expected None beside forest"):
        attn.attend(q, k, v, causal=True, forest=forest, cu_seqlens=[0, 4])
    with refused(r"q: expected 3 dimensions, \[tokens, heads, dim\]"):
        attn.attend(q[None], k[None], v[None], causal=True, forest=forest)
    with pytest.raises(attn.PlanError, match="forest: expected an attn.Forest, got list"):
        attn.attend(q.detach(), k.detach(), v.detach(), causal=True, forest=[0, 4])


def test_gradients_of_wrong_shape_are_refused():
    given = dense(dim=16, dtype=torch.bfloat16)
    out = attn.attend(*given, causal=True)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        out.backward(torch.ones(2, 3, 4, 8))


def test_pages_and_codes_are_refused_by_name():
    q = torch.zeros(1, 2, 32, dtype=torch.bfloat16, requires_grad=True)
    for store, message in (
        (attn.Paged(), "kv: a paged store has no gradients"),
        (
            attn.Packed(value="int8"),
            r"kv: values in a quantized format \(value='int8', value_group=32\) have no gradients",
        ),
    ):
        kernel = attn.compile(
            attn.Spec(q_heads=2, kv_heads=1, head_dim=32, dtype="bfloat16", kv=[store], see=attn.causal()),
            device="host",
        )
        with refused(message):
            kernel.run(q, (q, q), object())


def test_what_no_kernel_makes_is_said_before_the_forward_pass():
    """On a GPU, for which a tensor without memory stands here, unsupported gradients are refused before the forward
    pass."""
    q = torch.empty(1, 2, 16, dtype=torch.bfloat16, device="meta")
    data = {"q": q, "kv.k": q, "kv.v": q}
    check_place(object(), data)
    for kernel, given, why in (
        ("it has classes", data, r"no kernel gives the gradients of this description \(it has classes\)"),
        (object(), data | {"q": q.float()}, "bfloat16 and float16, not in torch.float32"),
    ):
        with refused(why):
            check_place(kernel, given)
        check_place(kernel, {name: torch.empty(0, dtype=t.dtype) for name, t in given.items()})
