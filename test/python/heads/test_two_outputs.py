# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Full and streaming attention in one pass, and their gradients, against float64 differences."""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.heads import attend_both, two_outputs  # noqa: E402
from attn.heads.distill import Settings, blended  # noqa: E402
from attn.heads.two_outputs import attend_streaming, mix  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
BLENDS = [(window, blend) for blend in ("release", "paper") for window in (0, 6)]


def tensors(tokens, q_heads=6, kv_heads=2, dim=8, value_dim=5, dtype=torch.float64, batch=2, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = (q_heads, dim), (kv_heads, dim), (kv_heads, value_dim)
    made = [torch.randn(batch, heads, tokens, d, generator=random, dtype=dtype) for heads, d in shapes]
    return [x.requires_grad_() for x in made]


def meaning(q, k, v, see):
    """Return attention with a mask, in float64."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(groups, 1) for x in (k, v))
    at = torch.arange(q.shape[2])
    scores = q.double() @ k.transpose(2, 3) * q.shape[3] ** -0.5
    scores = scores.masked_fill(~see.sees(at[:, None], at), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


SIZES = [
    (7, 2, 3, 0),
    (20, 0, 1, 0),
    (20, 4, 5, 9),
    (11, 30, 4, 0),
    (600, 5, 70, 0),
    (40, 3, 8, 4),
    (1, 1, 1, 0),
]


@pytest.mark.parametrize("tokens,sink,recent,window", SIZES)
def test_both_are_what_masks_say(tokens, sink, recent, window):
    q, k, v = tensors(tokens)
    full, lse, streaming, near = attend_both(q, k, v, sink=sink, recent=recent, window=window)
    see = attn.causal() & attn.window(window) if window else attn.causal()
    for found, wanted in (
        ((full, lse), meaning(q, k, v, see)),
        ((streaming, near), meaning(q, k, v, see & (attn.sink(sink) | attn.recent(recent)))),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    if not window:
        alone = attend_streaming(q, k, v, 8**-0.5, sink, recent)
        torch.testing.assert_close(alone, streaming, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows", (256, 4) if FULL else (4,))
@pytest.mark.parametrize("tokens,sink,recent,window", [(9, 2, 3, 0), (10, 0, 2, 5)])
def test_gradients_of_all_four(monkeypatch, rows, tokens, sink, recent, window):
    """Gradients of q, k and v, for groups of three heads, match float64 differences to 1e-6, for any number of rows in
    memory at once."""
    monkeypatch.setattr(two_outputs, "ROWS", rows)
    q, k, v = tensors(tokens, dim=4, value_dim=3, batch=1)
    torch.autograd.gradcheck(
        lambda *qkv: attend_both(*qkv, sink=sink, recent=recent, window=window),
        (q, k, v),
        atol=1e-6,
        rtol=1e-6,
    )


@pytest.mark.parametrize("window,blend", BLENDS if FULL else BLENDS[1:3])
def test_gradients_of_both_blends(blend, window):
    """Both blends have gradients of gates, q, k and v; the release's blend has none of the teacher's output."""
    settings = Settings(blend, 2, 3, 1, 0.02, 0.05, 1.0)
    q, k, v = tensors(9, dim=4, value_dim=3, batch=1)
    gates = torch.tensor([0.3, 0.8], dtype=torch.float64, requires_grad=True)
    full = None
    if blend == "release":
        full = attend_both(*tensors(9, dim=4, value_dim=3, batch=1, seed=1), sink=0, recent=1)[0].detach()

    def student(q, k, v, gates):
        return blended(q, k, v, gates, settings=settings, scale=0.5, window=window, full=full)

    torch.autograd.gradcheck(student, (q, k, v, gates), atol=1e-6, rtol=1e-6)


def test_the_gates_gradient_is_a_sum_in_float32():
    """The sum of <d_out, full - streaming> over half-precision outputs that differ by little is not rounded on the way."""
    random = torch.Generator().manual_seed(0)
    full = torch.randn(1, 4, 2000, 16, generator=random).bfloat16()
    streaming = (full.float() + 0.01 * torch.randn(full.shape, generator=random)).bfloat16()
    gates = torch.tensor([0.25, 1.0], requires_grad=True)
    d_out = torch.randn(full.shape, generator=random)
    mix(full, streaming, gates).backward(d_out)
    wanted = (d_out.double() * (full.double() - streaming.double())).unflatten(1, (2, 2)).sum((0, 2, 3, 4))
    assert ((gates.grad - wanted).abs() <= 1e-5 * wanted.abs().max()).all()


def test_half_precision_is_computed_in_float32():
    q, k, v = tensors(300, dtype=torch.bfloat16)
    found = attend_both(q, k, v, sink=4, recent=32)
    exact = attend_both(*(x.detach().double() for x in (q, k, v)), sink=4, recent=32)
    assert [x.dtype for x in found] == [torch.bfloat16, torch.float32] * 2
    for out, wanted in zip(found[::2], exact[::2], strict=True):
        assert ((out - wanted).norm(dim=-1) <= 2**-8 * wanted.norm(dim=-1)).all()
    for lse, wanted in zip(found[1::2], exact[1::2], strict=True):
        assert (lse - wanted).abs().max() < 1e-5


@pytest.mark.parametrize(
    "shapes,sizes,message",
    [
        (((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), {}, r"q, k, v: expected \[batch, heads, tokens, dim\]"),
        (((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), {}, "k, v: expected a line for each of 4 tokens"),
        (((2, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), {}, "k, v: expected 2 sequences"),
        (((1, 2, 4, 8),) * 3, {"recent": 0}, "sink, recent, window: expected 0, 1 and 0 or more"),
    ],
)
def test_refusals(shapes, sizes, message):
    with pytest.raises(attn.TensorError, match=message):
        attend_both(*(torch.ones(shape) for shape in shapes), **({"sink": 1, "recent": 1} | sizes))
