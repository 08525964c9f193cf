# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of tables that a score function reads, by kernels: against the reference, in the same bits in every run,
and refusals."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from attn.run import torch_gradients  # noqa: E402
from attn.run.backward import check_place, missing_kernels  # noqa: E402
from attn.run.reference import Problem  # noqa: E402

tanh = attn.math.tanh
TOLERANCE = 1.6e-2  # of a whole table: sums of terms that cancel, from outputs rounded to bfloat16

torch.manual_seed(0)
# A score function, its tables, and more arguments of attend.
CASES = {
    "slopes": (lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi), {"slopes": torch.rand(4) / 20}, {}),
    "a slope under a cap": (
        lambda s, h, qi, ki, slopes: 5 * tanh((s + slopes[h] * (ki - qi)) / 5),
        {"slopes": torch.rand(4) / 20},
        {"window": 50, "sink": 3},
    ),
    "rows and heads, some read twice": (
        lambda s, h, qi, ki, rows, heads: s * rows[qi] * heads[h, 0] + heads[h, 1] * heads[h, 0] * s,
        {"rows": torch.rand(70) + 0.5, "heads": torch.rand(4, 2) + 0.5},
        {},
    ),
    "one for a head group": (
        lambda s, h, qi, ki, scales: s * scales[h // 2],
        {"scales": torch.rand(2) + 0.5},
        {"kv_lengths": [70, 31], "sink_logits": torch.randn(4), "allow_empty_rows": True},
    ),
    "an element that all read": (lambda s, h, qi, ki, t: s * t[1], {"t": torch.tensor([2.0, 0.7])}, {}),
    "past the end, where indices are clamped": (
        lambda s, h, qi, ki, t: s * t[qi + h],
        {"t": torch.rand(40) + 0.5},
        {},
    ),
}


def given(dim=32, dtype=torch.bfloat16, rows=70):
    torch.manual_seed(1)
    return [torch.randn(2, rows, heads, dim).to(dtype).requires_grad_() for heads in (4, 2, 2)]


def found(tensors, tables, score, **options):
    """Return gradients of a sum with random weights, of the tensors, the tables, and sinks."""
    sinks = [options["sink_logits"].requires_grad_()] if "sink_logits" in options else []
    tables = {name: table.detach().requires_grad_() for name, table in tables.items()}
    results = attn.attend(*tensors, score=score, tensors=tables, return_lse=True, **options)
    random = torch.Generator().manual_seed(2)
    loss = sum((each.float() * torch.randn(each.shape, generator=random)).sum() for each in results)
    return torch.autograd.grad(loss, [*tensors, *tables.values(), *sinks])


def described(q, k, v):
    """Return a batch of `[batch, rows, heads, dim]`, all sequences of one length."""
    batch, rows = q.shape[:2]
    starts = torch.arange(batch + 1, dtype=torch.int32) * rows
    positions = torch.arange(rows, dtype=torch.int32).repeat(batch)
    return {"q": q.flatten(0, 1), "kv.k": k, "kv.v": v, "q_start": starts, "q_pos": positions}


def error(one, other):
    return float((one.double() - other.double()).norm() / other.double().norm())


@contextlib.contextmanager
def no_reference():
    """Fail if the reference is asked for gradients."""

    def asked(*_):
        raise AssertionError("the reference was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "gradients", asked)
        yield


@pytest.mark.parametrize("name", CASES)
def test_tables_have_gradients_by_kernels(name):
    score, tables, options = CASES[name]
    tensors = given()
    wanted = found(tensors, tables, score, causal=True, reference=True, **options)
    with no_reference():
        made = found(tensors, tables, score, causal=True, **options)
    for one, other in zip(made, wanted, strict=True):
        assert error(one, other) <= TOLERANCE


def far(tokens, heads=2, rows=16):
    """Return the last rows of a sequence, output gradients, slopes and sinks, for scores that depend on the distance of
    keys."""
    random = torch.Generator().manual_seed(3)
    shapes = [(1, rows, heads, 64), (1, tokens, heads, 64), (1, tokens, heads, 64), (1, rows, heads, 64)]
    *tensors, back = (torch.randn(shape, generator=random).bfloat16() for shape in shapes)
    slopes, sinks = torch.full((heads,), -1e-4), torch.tensor([0.5, -0.5])
    return tensors, back, slopes, sinks


def eagerly(tensors, back, slopes, sinks, first, dtype):
    """Return PyTorch's gradients of slopes and, if given, sinks: in float64, or in float32 from products of `dtype`."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v = (tensor.to(dtype).transpose(1, 2) for tensor in tensors)
    given = [each.to(wide).requires_grad_() for each in (slopes, sinks) if each is not None]
    at_k = torch.arange(k.shape[2])
    at_q = at_k[-q.shape[2] :, None]
    scores = (q @ k.mT / 8).to(wide) + given[0][:, None, None] * (at_q - at_k)
    scores = scores.masked_fill((at_k > at_q) | (at_k >= first), -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, given[1][:, None, None].expand(*scores.shape[:3], 1)], -1)
    weights = scores.softmax(-1)[..., : len(at_k)]
    return torch.autograd.grad(weights.to(dtype) @ v, given, back.to(dtype).transpose(1, 2))


@pytest.mark.parametrize("tokens", [200, 1000, 4000])
@pytest.mark.parametrize("with_sinks", [False, True], ids=["plain", "sinks"])
def test_gradients_of_tables_and_sinks_far_from_the_first_token(tokens, with_sinks):
    """Gradients are as exact as PyTorch's in bfloat16: the error from a rounded output does not grow with the distance."""
    tensors, back, slopes, sinks = far(tokens)
    sinks = sinks if with_sinks else None
    wanted, theirs = (
        eagerly(tensors, back, slopes, sinks, 16, dtype) for dtype in (torch.float64, torch.bfloat16)
    )
    given = [each.clone().requires_grad_() for each in (slopes, sinks) if each is not None]
    out = attn.attend(
        *(tensor.clone().requires_grad_() for tensor in tensors),
        causal=True,
        sink=16,
        score=lambda s, h, qi, ki, slopes: s + slopes[h] * (qi - ki),
        tensors={"slopes": given[0]},
        sink_logits=given[1] if with_sinks else None,
    )
    with no_reference():
        ours = torch.autograd.grad(out, given, back)
    for one, other, eager in zip(ours, wanted, theirs, strict=True):
        assert error(one, other) <= 2 * error(eager, other) + 1e-3


def test_sinks_are_as_exact_in_order():
    """In the ordered backward pass, where rows stay in registers, deltas are float32 sums, exact also for values with a
    large common part."""
    tensors, back, _, sinks = far(300, rows=300)
    tensors[2] += 8
    # The common part has no weight in these gradients.
    back = (back - back.float().mean(-1, keepdim=True)).bfloat16()
    none = torch.zeros(2)
    wanted, theirs = (
        eagerly(tensors, back, none, sinks, 300, dtype)[1] for dtype in (torch.float64, torch.bfloat16)
    )
    given = sinks.clone().requires_grad_()
    tensors = [tensor.clone().requires_grad_() for tensor in tensors]
    out = attn.attend(*tensors, causal=True, sink_logits=given, ordered=True)
    with no_reference():
        (ours,) = torch.autograd.grad(out, given, back)
    assert error(ours, wanted) <= 2 * error(theirs, wanted) + 1e-3


def test_forests_and_bits():
    """Rows of all responses add to one table, whose bits are the same in every run."""
    score, tables, _ = CASES["slopes"]
    forest = attn.Forest([0, 40, 70, 100, 113], [-1, 0, 0, 0])
    tensors = [tensor.detach()[0, :1].expand(113, -1, -1).clone().requires_grad_() for tensor in given()]
    for tensor in tensors:
        tensor.data += torch.randn_like(tensor)
    with no_reference():
        first = found(tensors, tables, score, causal=True, forest=forest)
    for _ in range(3):
        again = found(tensors, tables, score, causal=True, forest=forest)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_planned_kernels():
    """A table that requires a gradient beside one that does not."""
    spec = attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=32,
        dtype="bfloat16",
        kv=[attn.Dense()],
        see=attn.causal(),
        score=lambda s, h, qi, ki, slopes, scales: s * scales[h] + slopes[h] * (ki - qi),
        tensors={"slopes": (4,), "scales": (4,)},
    )
    kernel = attn.compile(spec, device="host")
    q, k, v = given()
    slopes, scales = torch.rand(4).requires_grad_(), torch.rand(4)
    tables = {"slopes": slopes, "scales": scales}
    plan = kernel.plan(described(q, k, v) | tables)
    out, lse = kernel.run(q.flatten(0, 1), (k, v), plan, slopes=slopes, scales=scales, return_lse=True)
    with no_reference():
        (out.float().square().sum() + lse.sum()).backward()
    exact = slopes.detach().requires_grad_()
    wanted, of_lse = attn.attend(
        *(tensor.detach().double() for tensor in (q, k, v)),
        causal=True,
        score=lambda s, h, qi, ki, slopes, scales: s * scales[h] + slopes[h] * (ki - qi),
        tensors={"slopes": exact, "scales": scales},
        return_lse=True,
        reference=True,
    )
    loss = wanted.square().sum() + of_lse.sum()
    assert error(slopes.grad, torch.autograd.grad(loss, exact)[0]) <= TOLERANCE
    assert out.shape == (140, 4, 32) and slopes.grad.shape == (4,) and scales.grad is None
    assert (wanted.flatten(0, 1) - out).norm() <= 8e-3 * wanted.norm() and of_lse.shape == (2, 70, 4)


def test_windows_of_other_sizes_share_code_but_no_gradients():
    """Descriptions that differ in sizes alone share a kernel, and each has gradients of its own."""
    q, k, v = given()
    exact = []
    for size in (3, 40):
        spec = attn.Spec(
            q_heads=4, kv_heads=2, head_dim=32, dtype="bfloat16", kv=[attn.Dense()], see=attn.window(size)
        )
        kernel = attn.compile(spec, device="host")
        plan = kernel.plan(described(q, k, v))
        out = kernel.run(q.flatten(0, 1), (k, v), plan)
        (of_kernel,) = torch.autograd.grad(out.float().square().sum(), k)
        (wanted,) = torch.autograd.grad(
            attn.attend(q, k, v, causal=True, window=size).float().square().sum(), k
        )
        assert error(of_kernel, wanted) <= 1e-3
        exact.append(wanted)
    assert error(*exact) > 0.1


def test_what_the_position_of_keys_finds_comes_from_the_reference():
    """A table indexed by the position of keys gets its gradient from the reference on the CPU. On a GPU, for which a
    tensor without memory stands here, it is refused by name."""
    score = lambda s, h, qi, ki, bias: s + bias[h, qi - ki]  # noqa: E731
    tensors = given(rows=9)
    bias = {"bias": torch.rand(4, 9)}
    (*_, of_kernels) = found(tensors, bias, score, causal=True)
    (*_, wanted) = found(tensors, bias, score, causal=True, reference=True)
    assert torch.equal(of_kernels, wanted)
    (why,) = (
        why for (*_, asks), why in torch_gradients._without_kernels.items() if asks.backward == ("bias",)
    )
    data = {"q": torch.empty(1, 2, 16, dtype=torch.bfloat16, device="meta")}
    legal = "expected indices of the head and the position of queries alone"
    with pytest.raises(
        attn.TensorError, match=f'gradients on meta: .*elements of "bias" are indexed by .*{legal}'
    ):
        check_place(why, data)
    assert not missing_kernels(object(), data)
