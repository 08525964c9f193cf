# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attn.attend and Kernel.run: against differences, against PyTorch's own in float64, and what is refused."""

import functools
import math

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import replicated  # noqa: E402
from attn.run.backward import check_place  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402


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
    """Results of the function, and the gradients of a sum of them with random weights, which are numbers of bfloat16."""
    results = function(*tensors)
    random = torch.Generator().manual_seed(seed)
    weights = [torch.randn(found.shape, generator=random).bfloat16().double() for found in results]
    loss = sum((found.double() * weight).sum() for found, weight in zip(results, weights, strict=True))
    return results, torch.autograd.grad(loss, tensors)


def error(found, wanted):
    """Of the whole tensor, relative."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / max(wanted.norm(), 1e-300))


# --- The reference path --------------------------------------------------------------------------------------

OPTIONS = [
    {},
    {"causal": True},
    {"causal": True, "window": 2, "sink": 1, "scale": 0.7},
    {"causal": True, "softcap": 1.5},
    {"causal": True, "kv_lengths": [5, 3]},
    {"score": lambda s, h, qi, ki: s * attn.math.exp(0.1 * (ki - qi)) + 0.01 * s * s},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_gradcheck(options):
    assert gradcheck(reference(**options), dense(), fast_mode=True)


def test_gradcheck_of_every_element():
    assert gradcheck(
        reference(causal=True), dense(batch=1, rows=1, tokens=2, heads=1, kv_heads=1, value_dim=8)
    )


def test_gradcheck_of_sinks_and_tables():
    sinks, slopes, bias = leaves((4,), (4,), (5, 5))

    def function(q, k, v, sinks, slopes, bias):
        return attn.attend(
            q,
            k,
            v,
            causal=True,
            sink_logits=sinks,
            score=lambda s, h, qi, ki, slopes, bias: s + slopes[h] * (ki - qi) + bias[qi, ki],
            tensors={"slopes": slopes, "bias": bias},
            reference=True,
            return_lse=True,
        )

    assert gradcheck(function, (*dense(), sinks, slopes, bias), fast_mode=True)


def test_gradcheck_of_heads_in_front():
    q, k, v = (tensor.detach().transpose(1, 2).contiguous().requires_grad_() for tensor in dense())
    assert gradcheck(reference(causal=True, layout="bhsd"), (q, k, v), fast_mode=True)


def test_gradcheck_of_packed_sequences():
    options = dict(causal=True, cu_seqlens=[0, 2, 2, 5], cu_seqlens_k=[0, 4, 5, 8])
    assert gradcheck(reference(**options), leaves((5, 2, 8), (8, 1, 8), (8, 1, 8)), fast_mode=True)


def test_of_replicated_attention():
    """Float64 PyTorch, of score functions, sinks and tables."""
    q, k, v = leaves((9, 4, 16), (9, 2, 16), (9, 2, 24))
    sinks, slopes = leaves((4,), (4,), seed=5)
    at = torch.arange(9)

    def ours(q, k, v, sinks, slopes):
        score = lambda s, h, qi, ki, slopes: attn.math.tanh(s) * 3 + slopes[h] * (ki - qi)  # noqa: E731
        return attn.attend(
            q,
            k,
            v,
            causal=True,
            cu_seqlens=[0, 9],
            sink_logits=sinks,
            score=score,
            tensors={"slopes": slopes},
            reference=True,
            return_lse=True,
        )

    def theirs(q, k, v, sinks, slopes):
        score = lambda s, h, qi, ki: torch.tanh(s) * 3 + slopes[h] * (ki - qi)  # noqa: E731
        return replicated.attend(q, k, v, positions=(at, at), score=score, sinks=sinks)

    given = (q, k, v, sinks, slopes)
    (results, found), (expected, wanted) = gradients(ours, given), gradients(theirs, given)
    for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
        assert error(one, other) <= 1e-12


def random_score(random, depth=4):
    """A score function of traced values and of tensors alike, which PyTorch can differentiate."""
    if depth == 0:
        return random.choice(["s", "s", "slopes[h]", "bias[qi, ki]", "slopes[h] * (ki - qi)", "0.7 * s"])
    a, b = (random_score(random, depth - 1) for _ in range(2))
    return random.choice(
        [
            f"({a} + {b})",
            f"({a} - 0.5 * {b})",
            f"({a} * torch.tanh({b}))",
            f"({a} / (1.5 + {b} * {b}))",
            f"torch.exp(0.2 * torch.tanh({a}))",
            f"torch.log(1.5 + torch.abs({a}))",
            f"torch.sqrt(1.0 + {a} * {a})",
            f"torch.maximum({a}, {b})",
            f"torch.minimum({a}, {b})",
            f"torch.where({a} > {b}, {a}, -{b})",
            f"torch.where((ki & 1) == 0, {a}, {b})",
        ]
    )


def test_random_score_functions():
    """Against float64 PyTorch, with the same functions."""
    random = numpy.random.default_rng(11)
    q, k, v = leaves((6, 2, 8), (6, 1, 8), (6, 1, 8))
    slopes, bias = leaves((2,), (6, 6), seed=4)
    at = torch.arange(6)
    for _ in range(25):
        text = f"s + {random_score(random)} + 0.1 * slopes[h] + 0.1 * bias[qi, ki]"
        score = eval(f"lambda s, h, qi, ki, slopes, bias: {text}", {"torch": torch})
        tables = {"slopes": slopes, "bias": bias}

        def ours(q, k, v, slopes, bias, score=score):
            tables = {"slopes": slopes, "bias": bias}
            options = dict(causal=True, cu_seqlens=[0, 6], scale=0.375, score=score, tensors=tables)
            return attn.attend(q, k, v, **options, reference=True, return_lse=True)

        def theirs(q, k, v, slopes, bias, score=score):
            scored = functools.partial(score, slopes=slopes, bias=bias)
            return replicated.attend(q, k, v, positions=(at, at), scale=0.375, score=scored)

        given = (q, k, v, *tables.values())
        (results, found), (expected, wanted) = gradients(ours, given), gradients(theirs, given)
        for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
            assert error(one, other) <= 1e-6, text  # a kernel's constants have 32 bits


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5, 8, 16])
def test_forests_are_replicated_attention(depth):
    """Forward and backward, against float64 PyTorch in which every node has copies of all above it."""
    for seed in range(3 if depth < 8 else 1):
        forest = replicated.random_forest(numpy.random.default_rng(100 * depth + seed), depth)
        given = leaves((forest.tokens, 4, 16), (forest.tokens, 2, 16), (forest.tokens, 2, 8), seed=seed)
        results, found = gradients(reference(causal=True, forest=forest), given)
        theirs = functools.partial(replicated.attend_forest, forest)
        expected, wanted = gradients(theirs, given)
        for one, other in zip((*results, *found), (*expected, *wanted), strict=True):
            assert error(one, other) <= 1e-12


def test_what_float32_gives():
    exact = dense()
    given = [tensor.detach().float().requires_grad_() for tensor in exact]
    (out, lse), found = gradients(reference(causal=True), given)
    assert out.dtype == lse.dtype == torch.float32 and all(g.dtype == torch.float32 for g in found)
    (wanted_out, _), wanted = gradients(reference(causal=True), exact)
    for one, other in zip((out, *found), (wanted_out, *wanted), strict=True):
        assert error(one, other) < 1e-6


# --- Kernels forward -----------------------------------------------------------------------------------------

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3}  # of whole tensors: as of outputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_have_the_gradients_of_the_reference(dtype):
    given = dense(batch=2, rows=20, tokens=33, dim=32, value_dim=64, dtype=dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    options = dict(causal=True, softcap=9.0, return_lse=True)
    (out, lse), found = gradients(lambda *given: attn.attend(*given, **options), given)
    assert torch.equal(out, attn.attend(*(tensor.detach() for tensor in given), causal=True, softcap=9.0))
    assert out.dtype == dtype and lse.dtype == torch.float32
    _, wanted = gradients(lambda *given: attn.attend(*given, **options, reference=True), exact)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == dtype and error(one, other) <= TOLERANCE[dtype]


def test_gradients_come_from_kernels(monkeypatch):
    """Of all that they can make: the reference is not asked."""
    from attn.run.reference import Problem

    asked = []
    ours = Problem.gradients
    monkeypatch.setattr(Problem, "gradients", lambda *given: asked.append(1) or ours(*given))
    given = dense(dim=32, value_dim=64, dtype=torch.bfloat16)
    (sinks, slopes) = leaves((4,), (4,), dtype=torch.float32)
    options = [
        {"sink_logits": sinks},
        {"causal": True, "window": 2, "layout": "bhsd"},
        {"score": lambda s, h, qi, ki, slopes: s * slopes[h], "tensors": {"slopes": slopes}},
    ]
    for each in options:
        tensors = [tensor.transpose(1, 2) for tensor in given] if "layout" in each else given
        attn.attend(*tensors, **each).sum().backward()
    assert not asked and sinks.grad.abs().sum() > 0 and slopes.grad.abs().sum() > 0


def test_sinks_of_rows_that_see_nothing():
    """By kernels: a sink's gradient is summed over rows, and those that have no softmax add nothing."""
    q, k, v = leaves((4, 2, 16), (4, 1, 16), (4, 1, 16), dtype=torch.bfloat16)
    sinks = torch.tensor([0.5, -torch.inf], requires_grad=True)
    options = dict(causal=True, cu_seqlens=[0, 4], cu_seqlens_k=[0, 4], sink_logits=sinks, return_lse=True)
    found = gradients(
        lambda q, k, v, s: attn.attend(q, k, v, **options | {"sink_logits": s}), (q, k, v, sinks)
    )[1]
    exact = [tensor.detach().double().requires_grad_() for tensor in (q, k, v, sinks)]
    wanted = gradients(
        lambda q, k, v, s: attn.attend(q, k, v, **options | {"sink_logits": s}, reference=True), exact
    )[1]
    for one, other in zip(found, wanted, strict=True):
        assert error(one, other) <= TOLERANCE[torch.bfloat16] and one.isfinite().all()


def test_forests_on_kernels():
    forest = replicated.random_forest(numpy.random.default_rng(2), 4, most=40)
    given = leaves(*((forest.tokens, heads, 32) for heads in (4, 2, 2)), dtype=torch.bfloat16)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    (out,), found = gradients(lambda *given: (attn.attend(*given, causal=True, forest=forest),), given)
    (wanted_out,), wanted = gradients(
        lambda *given: replicated.attend_forest(forest, *given, scale=float(numpy.float32(32**-0.5)))[:1],
        exact,
    )
    assert error(out, wanted_out) <= 8e-3
    for one, other in zip(found, wanted, strict=True):
        assert error(one, other) <= TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("strategy", ["flatten", "by-node", "by-query"])
def test_forests_run_clean(strategy):
    """Under all detectors, however shared nodes are read."""
    forest = replicated.random_forest(numpy.random.default_rng(8), 6, most=50)
    spec = attn.Spec(
        q_heads=4, kv_heads=2, head_dim=32, dtype="float16", kv=[attn.Packed()], see=attn.causal()
    )
    q, k, v = (tensor.detach() for tensor in leaves(*((forest.tokens, h, 32) for h in (4, 2, 2))))
    data = {"q": q.half(), "kv.k": k.half(), "kv.v": v.half()}
    assert attn.check(spec, data | forest.tables(), strategy=strategy).right


def test_gradients_of_a_planned_kernel_outlive_its_plan():
    """Two operands, sinks and a table; the plan goes on to another batch before backward is called."""
    spec = attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=32,
        dtype="bfloat16",
        kv=[
            attn.Packed(name="a", see=attn.all_tokens()),
            attn.Dense(name="b", see=attn.causal()),
        ],
        score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi),
        tensors={"slopes": (4,)},
        sink_logits=True,
        scale=0.125,
    )
    kernel = attn.compile(spec, device="host")
    q, ak, av, bk, bv = leaves(
        (6, 4, 32), (7, 2, 32), (7, 2, 32), (2, 5, 2, 32), (2, 5, 2, 32), dtype=torch.bfloat16
    )
    extras = dict(zip(("sink_logits", "slopes"), leaves((4,), (4,), dtype=torch.float32), strict=True))
    batch = {
        "q": q,
        "a.k": ak,
        "a.v": av,
        "b.k": bk,
        "b.v": bv,
        "q_start": [0, 3, 6],
        "q_pos": [9, 10, 11, 8, 9, 10],
        "a.start": [0, 7],
        "a.rows": [[0, 6]],
        "a.pos0": [0],
        "b.lengths": [5, 4],
        "b.pos0": [7, 7],
        "b.rows": [[0, 3], [3, 6]],
        **extras,
    }
    plan = kernel.plan(batch)
    given = (q, ak, av, bk, bv, *extras.values())

    def ours(q, ak, av, bk, bv, sink_logits, slopes):
        out, lse = kernel.run(
            q, (ak, av), (bk, bv), plan, return_lse=True, sink_logits=sink_logits, slopes=slopes
        )
        plan.update(batch | {"b.lengths": [1, 2], "q_pos": [7] * 6})
        return out, lse

    def theirs(q, ak, av, bk, bv, sinks, slopes):
        parts = []
        for i, n in enumerate([5, 4]):
            k, v = torch.cat([ak, bk[i, :n]]), torch.cat([av, bv[i, :n]])
            at_q = torch.tensor(batch["q_pos"])[3 * i : 3 * i + 3]
            sees = lambda q, k: (k[None] < 7) | (k[None] <= q[:, None])  # noqa: E731
            score = lambda s, h, qi, ki: s + slopes[h] * (ki - qi)  # noqa: E731
            positions = (at_q, torch.arange(7 + n))
            options = dict(sees=sees, positions=positions, scale=0.125, score=score, sinks=sinks)
            parts.append(replicated.attend(q[3 * i : 3 * i + 3], k, v, **options))
        return torch.cat([out for out, _ in parts]), torch.cat([lse for _, lse in parts])

    (out, _), found = gradients(ours, given)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    (wanted_out, _), wanted = gradients(theirs, exact)
    assert error(out, wanted_out) <= 8e-3
    for tensor, one, other in zip(given, found, wanted, strict=True):
        assert one.dtype == tensor.dtype
        assert error(one, other) <= TOLERANCE[torch.bfloat16]


def test_gradients_that_lie_anyhow():
    """Expanded, transposed and cut out of others."""
    given = dense(rows=6, tokens=6, heads=2, dim=16, dtype=torch.bfloat16)
    wide = torch.randn(2, 2, 6, 40).transpose(1, 2)[..., 3:19].bfloat16()
    for gradient in (wide, torch.tensor(0.5, dtype=torch.bfloat16).expand(wide.shape)):
        assert not gradient.is_contiguous()
        found = torch.autograd.grad(attn.attend(*given, causal=True), given, gradient)
        wanted = torch.autograd.grad(attn.attend(*given, causal=True), given, gradient.contiguous())
        assert all(map(torch.equal, found, wanted))


def test_only_what_requires_a_gradient_gets_one():
    q, k, v = dense(dim=16, dtype=torch.bfloat16)
    out, lse = attn.attend(q.detach(), k, v.detach(), return_lse=True)
    lse.sum().backward()
    assert k.grad is not None and q.grad is None and v.grad is None
    assert not attn.attend(q.detach(), k.detach(), v.detach()).requires_grad


def test_rows_that_see_nothing_and_empty_sequences():
    q, k, v = leaves((5, 2, 16), (3, 1, 16), (3, 1, 16), dtype=torch.bfloat16)
    out = attn.attend(q, k, v, causal=True, cu_seqlens=[0, 0, 4, 5], cu_seqlens_k=[0, 1, 3, 3])
    out.float().square().sum().backward()
    assert (q.grad[[0, 1, 4]] == 0).all() and (k.grad[0] == 0).all() and (q.grad[2:4] != 0).any()
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        assert tensor.grad.isfinite().all(), name
    nothing = leaves((0, 2, 16), (0, 1, 16), (0, 1, 16), dtype=torch.bfloat16)
    attn.attend(*nothing, causal=True, forest=attn.Forest([0], [])).sum().backward()
    assert all(tensor.grad.shape == tensor.shape for tensor in nothing)


def test_a_nan_stays_in_its_tree():
    forest = attn.Forest([0, 6, 10, 14, 20], [-1, 0, 0, -1])
    given = leaves((20, 2, 16), (20, 1, 16), (20, 1, 16), dtype=torch.bfloat16)
    gradient = torch.ones(20, 2, 16, dtype=torch.bfloat16)
    gradient[12] = math.nan  # a row of the second response of the first tree
    found = torch.autograd.grad(attn.attend(*given, causal=True, forest=forest), given, gradient)
    for tensor in found:
        assert tensor[14:].isfinite().all()
    assert found[0][:12].isfinite().all() and found[0][12].isnan().all()
    assert found[1][6:10].isfinite().all()  # of the other response


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    given = dense(dim=16, dtype=torch.bfloat16)

    def layer(q, k, v):
        return attn.attend(q, k, v, causal=True)

    wanted = torch.autograd.grad(layer(*given).float().sum(), given)
    out = checkpoint(layer, *given, use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(out.float().sum(), given), wanted))


def test_optimizers_see_parameters():
    """A few steps of descent through a layer, as a model has it."""
    torch.manual_seed(0)
    project = torch.nn.Linear(16, 3 * 16).bfloat16()
    x, target = torch.randn(1, 12, 16).bfloat16(), torch.randn(1, 12, 16).bfloat16()
    optimizer = torch.optim.SGD(project.parameters(), lr=1.0)
    losses = []
    for _ in range(10):
        q, k, v = project(x).reshape(1, 12, 3, 1, 16).unbind(2)
        loss = (attn.attend(q, k, v, causal=True).flatten(2) - target).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_a_backward_pass_like_one_before_plans_nothing(monkeypatch):
    """Sizes and tables say whether it is; other tables have a plan, and gradients, of their own."""
    plans, plan = [], attn.Kernel.plan

    def counted(kernel, *given, **named):
        plans.append(kernel)
        return plan(kernel, *given, **named)

    def gradients(starts):
        q, k, v = leaves((24, 2, 32), (24, 1, 32), (24, 1, 32), dtype=torch.bfloat16)
        out = attn.attend(q, k, v, causal=True, cu_seqlens=starts)
        before = len(plans)
        found = torch.autograd.grad(out.float().square().sum(), (q, k, v))
        return len(plans) - before, found

    monkeypatch.setattr(attn.Kernel, "plan", counted)
    counts, found = zip(
        *(gradients(starts) for starts in ([0, 9, 24], [0, 9, 24], [0, 15, 24], [0, 9, 24])), strict=True
    )
    assert counts == (1, 0, 1, 0)
    for again in (1, 3):
        assert all(torch.equal(a, b) for a, b in zip(found[0], found[again], strict=True))
    assert not torch.equal(found[0][1], found[2][1])


def test_what_no_kernel_makes_is_said_before_the_forward_pass():
    """On a GPU, which a tensor without memory stands for."""
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


# --- Refusals ------------------------------------------------------------------------------------------------


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
    with refused("k: expected shape"):
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
        (attn.Packed(value="int8"), r"kv: values as codes \(i8 per 32\) have no gradients"),
    ):
        kernel = attn.compile(
            attn.Spec(q_heads=2, kv_heads=1, head_dim=32, dtype="bfloat16", kv=[store], see=attn.causal()),
            device="host",
        )
        with refused(message):
            kernel.run(q, (q, q), object())


def test_only_once():
    """The gradients have no gradients."""
    given = dense(dim=16, value_dim=16, dtype=torch.bfloat16)
    (gradient,) = torch.autograd.grad(attn.attend(*given).square().sum(), given[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_sizes_of_one_form_have_gradients_of_their_own():
    """Also where the kernel of the form itself has made some first."""

    def backward(size):
        shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "dtype": "bfloat16", "kv": [attn.Dense()]}
        return attn.compile(attn.Spec(**shape, see=attn.window(size)), device="host")._backward(())

    for size in (1, 5, 7):  # 1: as the form has it
        assert f"window({size})" in backward(size).text
