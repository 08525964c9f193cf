# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attn.attend and Kernel.run after a forward pass of kernels: against the reference and PyTorch."""

import math

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import replicated  # noqa: E402
from attn.run import attention, backward, kernels, torch_gradients  # noqa: E402
from gradient_tensors import dense, error, gradients, leaves  # noqa: E402

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3}  # of whole tensors, as for outputs


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
    """Kernels make all gradients that they support, and the reference makes none."""
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
    """A sink's gradient by kernels is a sum over rows; rows that see nothing add nothing."""
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


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"softcap": 30.0},
        {"softcap": 50.0},
        {"score": lambda s, h, qi, ki: attn.math.tanh(s) + 2 * attn.math.tanh(s / 4)},
    ],
    ids=["plain", "30", "50", "tanh"],
)
def test_a_row_that_sees_one_token_has_no_gradient_of_scores(options, heads):
    """The weight is 1 for any score."""
    given = dense(1, 90, 90, heads, heads, 64, 64, dtype=torch.bfloat16)
    (out,), (dq, dk, dv) = gradients(
        lambda *given: (attn.attend(*given, causal=True, window=1, **options),), given
    )
    assert torch.equal(out, given[2])
    assert max(dq.abs().max(), dk.abs().max()) <= 1e-5
    assert torch.equal(dv, gradients(lambda v: (v,), given[2:])[1][0])


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
    """Forests run under all detectors without a finding, for each way to read shared nodes."""
    forest = replicated.random_forest(numpy.random.default_rng(8), 6, most=50)
    spec = attn.Spec(
        q_heads=4, kv_heads=2, head_dim=32, dtype="float16", kv=[attn.Packed()], see=attn.causal()
    )
    q, k, v = (tensor.detach() for tensor in leaves(*((forest.tokens, h, 32) for h in (4, 2, 2))))
    data = {"q": q.half(), "kv.k": k.half(), "kv.v": v.half()}
    assert attn.check(spec, data | forest.tables(), strategy=strategy).right


def test_gradients_of_a_planned_kernel_outlive_its_plan():
    """A kernel with two operands, sinks and a table: the plan moves to another batch before backward is called."""
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
    """Gradients may be expanded, transposed or slices of other tensors."""
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
    offsets = {"cu_seqlens": [0, 0, 4, 5], "cu_seqlens_k": [0, 1, 3, 3]}
    out = attn.attend(q, k, v, causal=True, **offsets, allow_empty_rows=True)
    out.float().square().sum().backward()
    assert (q.grad[[0, 1, 4]] == 0).all() and (k.grad[0] == 0).all() and (q.grad[2:4] != 0).any()
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        assert tensor.grad.isfinite().all(), name
    nothing = leaves((0, 2, 16), (0, 1, 16), (0, 1, 16), dtype=torch.bfloat16)
    attn.attend(*nothing, causal=True, forest=attn.Forest([0], [])).sum().backward()
    assert all(tensor.grad.shape == tensor.shape for tensor in nothing)


def test_padding_behind_the_last_sequence_has_no_gradient():
    q, k, v = leaves((9, 4, 64), (12, 2, 64), (12, 2, 64), dtype=torch.bfloat16)
    options = dict(causal=True, cu_seqlens=[0, 4, 6], cu_seqlens_k=[0, 5, 8])
    out = attn.attend(q, k, v, **options)
    weights = torch.randn_like(out)
    found = torch.autograd.grad((out * weights).sum(), (q, k, v))
    used = [x[:n].detach().clone().requires_grad_() for x, n in ((q, 6), (k, 8), (v, 8))]
    wanted = torch.autograd.grad((attn.attend(*used, **options) * weights[:6]).sum(), used)
    for each, of_used in zip(found, wanted, strict=True):
        assert torch.equal(each[: len(of_used)], of_used) and not each[len(of_used) :].any()


def test_a_nan_stays_in_its_tree():
    forest = attn.Forest([0, 6, 10, 14, 20], [-1, 0, 0, -1])
    given = leaves((20, 2, 16), (20, 1, 16), (20, 1, 16), dtype=torch.bfloat16)
    gradient = torch.ones(20, 2, 16, dtype=torch.bfloat16)
    gradient[12] = math.nan  # a row of the second response of the first tree
    found = torch.autograd.grad(attn.attend(*given, causal=True, forest=forest), given, gradient)
    for tensor in found:
        assert tensor[14:].isfinite().all()
    assert found[0][:12].isfinite().all() and found[0][12].isnan().all()
    assert found[1][6:10].isfinite().all()  # rows of the other response


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    given = dense(dim=16, dtype=torch.bfloat16)

    def layer(q, k, v):
        return attn.attend(q, k, v, causal=True)

    wanted = torch.autograd.grad(layer(*given).float().sum(), given)
    out = checkpoint(layer, *given, use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(out.float().sum(), given), wanted))


def test_optimizers_see_parameters():
    """A layer's parameters train in a few steps of descent."""
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
    """A backward pass with the same sizes and tables reuses its plan; other tables get another plan, and other
    gradients."""
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


def test_sizes_of_one_form_have_gradients_of_their_own():
    """Each size has gradients of its own, also after the kernel of the form itself has made some."""

    def backward(size):
        shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "dtype": "bfloat16", "kv": [attn.Dense()]}
        return attn.compile(attn.Spec(**shape, see=attn.window(size)), device="host")._backward((), {})

    for size in (1, 5, 7):  # 1: the size of the form itself
        assert f"window({size})" in backward(size).text


@pytest.mark.parametrize("see", [{"causal": True}, {}])
def test_short_sequences_have_gradients_in_two_launches(monkeypatch, see):
    """They are quicker there, and have an order; longer ones get the compiler's choice, and a caller's choice applies to
    both."""
    asked = []

    def compile_asked(text, asks, device):
        asked.append(asks.ordered)
        return kernels.compile_asked(text, asks, device)

    monkeypatch.setattr(torch_gradients, "compile_asked", compile_asked)
    torch_gradients._without_kernels.clear()
    q, k, v = dense(2, 24, 24, dim=64, value_dim=64, dtype=torch.bfloat16)

    def run(**ordered):
        asked.clear()
        torch_gradients._known.clear()
        attention._launches.clear()
        attn.attend(q, k, v, **see, **ordered).sum().backward()
        return asked

    assert run() == run(ordered=True) == ["apart"] and run(ordered=False) == [False]
    seen = 12.5 if see else 24
    monkeypatch.setattr(backward, "_FEW", seen)
    assert run() == [None] and run(ordered=True) == [True]
    monkeypatch.setattr(backward, "_FEW", seen + 0.1)
    assert run() == ["apart"]


def test_how_much_rows_see():
    """The mean number of visible tokens: positions of a tree count the tokens above a row; without tables it is
    infinite."""
    tables = {"q_pos": numpy.arange(10_000, dtype=numpy.int32), "kv.lengths": numpy.array([9, 3])}
    causal, whole = attn.causal(), attn.all_tokens()
    assert backward._seen([causal], tables) == pytest.approx(5000.5, rel=2e-3)
    assert backward._seen([whole], tables) == 6
    # Every 512th row is the first of its sequence.
    batch = numpy.tile(numpy.arange(512, dtype=numpy.int32), 1022)
    assert backward._seen([causal], {"q_pos": batch}) == pytest.approx(256.5, rel=0.05)
    assert backward._seen([whole, causal], tables) > 4000
    assert backward._seen([whole, attn.window(3)], tables) == 6
    assert backward._seen([attn.sink(3) | causal], tables) > 4000
    assert backward._seen([causal], {}) == backward._seen([whole], {}) == math.inf


def test_how_much_rows_see_of_packed_tokens():
    """Each row counts, not each sequence; starts say lengths, and rows who sees them."""
    whole = attn.all_tokens()
    of_rows = {"q_start": numpy.array([0, 1, 9])}
    assert backward._seen([whole], of_rows | {"kv.lengths": numpy.array([9, 900])}) == pytest.approx(801)
    assert backward._seen([whole], of_rows | {"kv.start": numpy.array([0, 9, 909])}) == pytest.approx(801)
    prompt = {"a.start": numpy.array([0, 700]), "a.rows": numpy.array([[0, 9]])}
    assert backward._seen([whole, whole], of_rows | prompt | {"b.start": [0, 1, 9]}) == pytest.approx(
        700 + 65 / 9
    )
    tree = {"kv.lengths": numpy.array([800, 10]), "kv.rows": numpy.array([[0, 9], [0, 9]])}
    assert backward._seen([whole], {"q_start": numpy.array([0, 9])} | tree) == 810
    assert backward._seen([whole], {"q_start": numpy.array([0]), "kv.start": numpy.array([0])}) == 0


@pytest.mark.parametrize(
    "see,names",
    [(attn.all_tokens(), ("rows", "causal_rows")), (attn.window(40), ("@rows", '@"see all"'))],
    ids=["causal", "see all"],
)
def test_names_decide_nothing(monkeypatch, see, names):
    """A function with the name of a visibility changes neither the order of gradients nor a bit of them."""
    rows = 24
    q, k, v = dense(1, rows, rows, dim=64, value_dim=64, dtype=torch.bfloat16)
    given = {
        **{"q": q[0].detach(), "kv.k": k.detach(), "kv.v": v.detach()},
        "kv.lengths": numpy.array([rows], dtype=numpy.int32),
        "q_start": numpy.array([0, rows], dtype=numpy.int32),
        "q_pos": numpy.arange(rows, dtype=numpy.int32),
    }
    monkeypatch.setattr(backward, "_FEW", 20)  # between the mean position, 12.5, and the length
    shape = {"q_heads": q.shape[2], "kv_heads": k.shape[2], "head_dim": 64, "dtype": "bfloat16"}
    asked, found = [], []
    for name in names:
        described = attn.Spec(**shape, kv=[attn.Dense()], see=see, name=name.strip('@"').replace(" ", "_"))
        if name.startswith("@"):  # a name that only a text can have
            described = described.mlir().replace(f"@{described.name}(", f"{name}(")
        kernel = attn.compile(described, device="host")
        tables = {each: table for each, table in given.items() if isinstance(table, numpy.ndarray)}
        gradients = kernel._backward((), tables)
        assert isinstance(gradients, attn.Kernel), gradients
        asked.append([asks.ordered for asks in kernel._gradient_kernels])
        leaves = [given[each].clone().requires_grad_() for each in ("q", "kv.k", "kv.v")]
        out = kernel.run(leaves[0], (leaves[1], leaves[2]), kernel.plan(given))
        found.append(torch.autograd.grad(out.float().square().sum(), leaves))
    assert asked[0] == asked[1]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_call_like_one_before_describes_nothing(monkeypatch):
    """Neither forward nor backward describes a repeated call anew; a changed call is described anew."""
    described, describe = [], torch_gradients.describe_call
    monkeypatch.setattr(
        torch_gradients, "describe_call", lambda *given: described.append(1) or describe(*given)
    )
    torch_gradients._known.clear()
    attention._launches.clear()
    q, k, v = (torch.randn(30, 2, 32, dtype=torch.float16, requires_grad=True) for _ in range(3))

    def run(starts=(0, 10, 30), **options):
        out = attn.attend(q, k, v, cu_seqlens=numpy.array(starts, numpy.int32), causal=True, **options)
        return torch.autograd.grad(out.float().sum(), (q, k, v))

    first = run()
    assert all(torch.equal(a, b) for a, b in zip(first, run(), strict=True)) and len(described) == 1
    for factor in (0.5, 0.25):
        wanted = run(score=lambda s, h, qi, ki, factor=factor: s * factor)
        found = run(scale=factor * 32**-0.5)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=2e-3, rtol=2e-2)
    assert len(described) == 5
    assert not torch.equal(run((0, 20, 30))[0], first[0]) and len(described) == 6
    table = numpy.array([0, 15, 30], numpy.int32)
    before = run(table)
    table[1] = 5  # a changed table is described anew
    assert not torch.equal(run(table)[0], before[0]) and len(described) == 8
