# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dualkv: responses over one context, against attention in which each has a copy of it."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import replicated  # noqa: E402
from attn.dualkv import flash_attn_dualkv_varlen_func  # noqa: E402
from attn.run import backward  # noqa: E402


def problem(rows=(5, 0, 9, 1), tokens=None, context=21, heads=4, kv_heads=2, dim=32, value_dim=32):
    """Return arguments in their order, up to context_seqlen and max_seqlen_k_decoded."""
    tokens = rows if tokens is None else tokens
    random = torch.Generator().manual_seed(0)

    def make(*shape):
        return torch.randn(shape, generator=random).bfloat16().requires_grad_()

    def starts(lengths):
        return torch.tensor([0, *lengths]).cumsum(0).int()

    k_context, v_context = make(context, kv_heads, dim), make(context, kv_heads, value_dim)
    k, v = make(sum(tokens), kv_heads, dim), make(sum(tokens), kv_heads, value_dim)
    given = (make(sum(rows), heads, dim), k_context, v_context, k, v)
    return (*given, starts(rows), starts(tokens), max(rows), context, max(tokens))


def with_copies(q, k_context, v_context, k, v, starts, starts_k, _, context, __, scale=None, causal=False):
    """Return attention of each response over its own tokens after a copy of the context, in float64."""
    outs = []
    for first, last, first_k, last_k in zip(starts, starts[1:], starts_k, starts_k[1:], strict=False):
        rows, tokens = last - first, last_k - first_k
        if rows == 0:
            continue
        at_q = torch.arange(rows) + context + tokens - rows

        def sees(q, k):
            return (k[None] < context) | (k[None] <= q[:, None]) | (not causal)

        keys, values = torch.cat([k_context, k[first_k:last_k]]), torch.cat([v_context, v[first_k:last_k]])
        positions = (at_q, torch.arange(context + tokens))
        outs.append(
            replicated.attend(q[first:last], keys, values, sees=sees, positions=positions, scale=scale)[0]
        )
    return torch.cat(outs)


def compare(given, **options):
    out = flash_attn_dualkv_varlen_func(*given, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = torch.autograd.grad(out, given[:5], weights)
    exact = [tensor.detach().double().requires_grad_() for tensor in given[:5]]
    if "softmax_scale" in options:
        options = {"scale": options["softmax_scale"], "causal": options["causal"]}
    wanted_out = with_copies(*exact, *given[5:], **options)
    wanted = torch.autograd.grad(wanted_out, exact, weights.double())
    assert out.dtype == torch.bfloat16

    def error(one, other):
        return float((one.detach().double() - other.detach()).norm() / other.detach().norm())

    assert error(out, wanted_out) <= 8e-3
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.bfloat16 and error(one, other) <= 2**-8


@pytest.mark.parametrize("causal", [True, False])
def test_is_attention_with_copies_of_the_context(causal):
    compare(problem(), causal=causal)


def test_scale_and_value_dim():
    compare(problem(dim=64, value_dim=32), softmax_scale=0.25, causal=True)


def test_other_numbers_of_rows_than_of_tokens():
    """Rows are the last of their response; where there are more rows than tokens, the first rows see the context alone."""
    compare(problem(rows=(2, 6), tokens=(7, 3)), causal=True)


def test_context_alone_and_no_context():
    compare(problem(rows=(3, 2), tokens=(0, 2)), causal=True)
    out = flash_attn_dualkv_varlen_func(*problem(context=0), causal=True)
    assert out.isfinite().all()


@pytest.mark.parametrize("rows,tokens,context", [((0, 0), (3, 1), 21), ((0,), (0,), 21), ((0,), (2,), 0)])
def test_no_rows(rows, tokens, context):
    """The output requires gradients all the same, so that a step over an empty batch has gradients: zeros."""
    given = problem(rows=rows, tokens=tokens, context=context)
    out = flash_attn_dualkv_varlen_func(*given, causal=True)
    assert out.shape == (0, 4, 32) and out.requires_grad
    for tensor, gradient in zip(given, torch.autograd.grad(out.sum(), given[:5]), strict=False):
        assert gradient.shape == tensor.shape and (gradient == 0).all()


def test_positional_arguments_are_in_their_order():
    given = [tensor.detach() if isinstance(tensor, torch.Tensor) else tensor for tensor in problem()]
    positional = flash_attn_dualkv_varlen_func(*given, 0.25, True)
    assert torch.equal(positional, flash_attn_dualkv_varlen_func(*given, softmax_scale=0.25, causal=True))
    assert torch.equal(positional, attn.dualkv.flash_attn_dualkv_varlen_func(*given, 0.25, True))


@pytest.mark.parametrize(
    "place,value,message",
    [
        (0, None, "q: expected a tensor of PyTorch"),
        (1, torch.zeros(21, 3, 32).bfloat16(), r"v_context: expected shape \[21, 3, 32\], got \[21, 2, 32\]"),
        (2, torch.zeros(20, 2, 32).bfloat16(), r"v_context: expected shape \[21, 2, 32\], got \[20, 2, 32\]"),
        (4, torch.zeros(15, 2, 32), "v_decoded: expected torch.bfloat16 on cpu as q, got torch.float32"),
        (5, [0, 9, 15], "cu_seqlens_k_decoded: expected 3 offsets, as many as cu_seqlens_q, got 5"),
        (5, [0, 5, 5, 14], "cu_seqlens_q: expected offsets that rise from 0 to the 15 tokens of q"),
        (6, [0, 5, 4, 14, 15], "cu_seqlens_k_decoded: expected offsets that rise from 0 to the 15 tokens"),
        (7, 8, "max_seqlen_q: expected at least 9, which cu_seqlens_q asks for, got 8"),
        (8, 20, "context_seqlen: expected the 21 tokens of k_context, got 20"),
        (9, 8.5, "max_seqlen_k_decoded: expected at least 9"),
    ],
)
def test_refusals(place, value, message):
    given = list(problem())
    given[place] = value
    with pytest.raises(attn.TensorError, match=message):
        flash_attn_dualkv_varlen_func(*given, causal=True)
    with pytest.raises(attn.TensorError, match="causal: expected True or False, got 1"):
        flash_attn_dualkv_varlen_func(*problem(), causal=1)


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_short_responses_have_an_order(monkeypatch, causal):
    """They come from two launches, whether positions say that rows see few tokens, or lengths do."""
    asked, order_of = [], backward.order_of
    monkeypatch.setattr(backward, "order_of", lambda *given: asked.append(order_of(*given)) or asked[-1])
    given = problem(rows=(6, 0, 8, 1))
    flash_attn_dualkv_varlen_func(*given, causal=causal).sum().backward()
    assert set(asked) == {"apart"}
