# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refusals of kernels and plans, before anything is launched."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.run.plan import Plan  # noqa: E402
from kernel_problem import DIM, Q_HEADS, Problem, spec  # noqa: E402
from numpy.lib.stride_tricks import as_strided  # noqa: E402
from output_problem import assert_right, described  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


@pytest.fixture
def problem():
    return Problem()


def bad_runs(problem):
    q, k, v = problem.q, problem.k, problem.v
    big = numpy.zeros((6, Q_HEADS, DIM), numpy.float16)
    frozen, both = numpy.empty_like(q), numpy.empty_like(q)
    frozen.flags.writeable = False
    return {
        "q of another dtype": ((q.astype(numpy.float32), (k, v)), {}, r"q: expected float16 \[3, 4, 64\], got float32"),
        "q of other rows": ((q[:2], (k, v)), {}, r"q: expected float16 \[3, 4, 64\], got float16 \[2, 4, 64\]"),
        "q of other heads": ((q[:, :2], (k, v)), {}, "q: expected float16"),
        "q that overlaps": ((as_strided(big, q.shape, (256, 128, 2)), (k, v)), {}, r"q: expected elements that do not overlap, got strides \[256, 128, 2\] in bytes for float16 \[3, 4, 64\]; nearest legal: at least 512 bytes along rows"),
        "q off its 16 bytes": ((as_strided(big, q.shape, (520, 128, 2)), (k, v)), {}, r"q: entries along rows are 260 elements apart; expected a multiple of 8 \(16 bytes\): q.contiguous\(\)"),
        "lse with gaps": ((q, (k, v)), dict(lse=numpy.empty((6, 4), numpy.float32)[::2]), r"lse: expected a contiguous tensor, got strides \[8, 1\]"),
        "pages between tokens": ((q, (as_strided(k, k.shape, (4112, 256, 128, 2)), v)), {}, "kv.k_pages: expected pages a whole number of tokens apart, .* nearest legal: 4096 bytes along pages"),
        "pages of v elsewhere": ((q, (k, numpy.zeros((24, *v.shape[1:]), v.dtype)[::2])), {}, "kv.v_pages: expected pages 16 tokens apart, as of the keys"),
        "q transposed": ((q.transpose(0, 2, 1), (k, v)), {}, "q: expected"),
        "q flat": ((q.reshape(3, -1), (k, v)), {}, "q: expected"),
        "q of nothing": ((None, (k, v)), {}, "q: expected a tensor"),
        "q a list": ((q.tolist(), (k, v)), {}, "q: expected a tensor"),
        "q empty": ((q[:0], (k, v)), {}, "q: expected"),
        "k of other pages": ((q, (k[:5], v)), {}, r"kv.k_pages: expected float16 \[12, 16, 2, 64\], got float16 \[5"),
        "v of another dim": ((q, (k, v[..., :32])), {}, "kv.v_pages: expected float16"),
        "v reversed": ((q, (k, v[::-1])), {}, "kv.v_pages: runs backwards along pages"),
        "one tensor for two": ((q, k), {}, r"kv: expected \(keys, values\)"),
        "three for two": ((q, (k, v, v)), {}, r"kv: expected \(keys, values\)"),
        "no operand": ((q,), {}, r"operands: expected \(keys, values\) for each of kv"),
        "two operands": ((q, (k, v), (k, v)), {}, "operands: expected"),
        "out of another dtype": ((q, (k, v)), dict(out=numpy.empty((3, 4, 64), numpy.float32)), "out: expected float16"),
        "out too small": ((q, (k, v)), dict(out=q[:1].copy()), "out: expected"),
        "out read only": ((q, (k, v)), dict(out=frozen), "out: expected memory that may be written"),
        "out on q": ((q, (k, v)), dict(out=q), "out: overlaps 'q'"),
        "out on k": ((q, (k, v)), dict(out=k.reshape(-1)[: q.size].reshape(q.shape)), "out: overlaps 'kv.k_pages'"),
        "out on the end of v": ((q, (k, v)), dict(out=v.reshape(-1)[-q.size :].reshape(q.shape)), "out: overlaps 'kv.v_pages'"),
        "lse on k": ((q, (k, v)), dict(lse=k.view(numpy.float32).reshape(-1)[-12:].reshape(3, 4)), "'lse': overlaps 'kv.k_pages'"),
        "lse on out": ((q, (k, v)), dict(out=both, lse=both.view(numpy.float32).reshape(-1)[-12:].reshape(3, 4)), "out: overlaps 'lse'"),
        "lse of another dtype": ((q, (k, v)), dict(lse=numpy.empty((3, 4), numpy.float16)), "lse: expected float32"),
        "unknown": ((q, (k, v)), dict(sinks=q), "sinks"),
        "classes": ((q, (k, v)), dict(classes=[0, 1]), "classes: the heads of this description have no classes"),
        "rows": ((q, (k, v)), dict(rows="mine"), "rows: expected 'user' or 'batch'"),
    }  # fmt: skip


@pytest.mark.parametrize("case", bad_runs(Problem()))
def test_bad_runs(kernel, problem, case):
    arguments, named, message = bad_runs(problem)[case]
    plan = kernel.plan(problem.batch)
    good = kernel.run(problem.q, (problem.k, problem.v), plan)
    with pytest.raises(attn.TensorError, match=message):
        kernel.run(*arguments, plan, **named)
    assert numpy.array_equal(kernel.run(problem.q, (problem.k, problem.v), plan), good), "still good"


def test_a_plan_of_ragged_heads_is_of_one_layer():
    """A plan of heads with separate lengths depends on the class of each head; for a store of one class only the order
    of its heads counts."""
    heads = attn.heads(all=attn.all_tokens(), near=attn.recent(8))
    of_all = spec(kv=[attn.Paged(ragged=True)], heads=heads)
    kernel = attn.compile(of_all, device="host")
    tensors = attn.sample(of_all, batch=2, kv_len=(10, 90))
    pages = tensors["kv.k_pages"], tensors["kv.v_pages"]
    plan = kernel.plan(tensors)
    run = kernel.run(tensors["q"], pages, plan, classes=tensors["classes"])
    assert numpy.array_equal(kernel.run(tensors["q"], pages, plan), run)
    with pytest.raises(
        attn.TensorError, match="classes: expected those of the plan.*Make a plan for each layer"
    ):
        kernel.run(tensors["q"], pages, plan, classes=tensors["classes"][::-1])


def test_tensors_without_memory_are_refused(kernel, problem):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch._subclasses.fake_tensor import FakeTensorMode

    plan = kernel.plan(problem.batch)
    with FakeTensorMode():
        fake = torch.empty(3, Q_HEADS, DIM, dtype=torch.float16)
    for odd in (
        torch.empty(3, Q_HEADS, DIM, dtype=torch.float16, device="meta"),
        fake,
        torch.zeros(3, 4, 64).to_sparse(),
    ):
        with pytest.raises(attn.TensorError, match="q: "):
            kernel.run(odd, (problem.k, problem.v), plan)


@pytest.mark.parametrize("odd", [None, 0, "plan", object(), {}, Plan])
def test_what_is_no_plan(kernel, problem, odd):
    with pytest.raises(attn.PlanError, match="plan: expected an attn.Plan"):
        kernel.run(problem.q, (problem.k, problem.v), odd)


def test_plans_of_other_kernels(kernel, problem):
    other = attn.compile(spec(name="other"), device="host")
    with pytest.raises(attn.PlanError, match="plan: made by <attn.Kernel other"):
        kernel.run(problem.q, (problem.k, problem.v), other.plan(problem.batch))
    with pytest.raises(attn.PlanError, match="plan: made by"):
        kernel.launch([0] * 5, [0] * 5, other.plan(problem.batch))


def bad_batches(problem):
    return {
        "a page that is not there": ({"kv.block_table": problem.table + 100}, "kv.block_table"),
        "a negative length": ({"kv.lengths": [-1, 2, 3]}, "kv.lengths"),
        "a length beyond its pages": ({"kv.lengths": [5, 37, 65]}, "kv"),
        "too few lengths": ({"kv.lengths": [5]}, "kv"),
        "lengths of floats": ({"kv.lengths": [5.0, 37.0, 64.0]}, "kv.lengths: expected integers"),
        "lengths too large": ({"kv.lengths": [2**40, 1, 1]}, "kv.lengths: expected integers of 32 bits, got 1099511627776"),
        "huge lengths": ({"kv.lengths": [10**30, 1, 1]}, "kv.lengths: expected integers"),
        "ragged lengths": ({"kv.lengths": [[1], [2, 3]]}, "kv.lengths: expected integers"),
        "lengths of words": ({"kv.lengths": ["a", "b", "c"]}, "kv.lengths: expected integers"),
        "no lengths": ({"kv.lengths": None}, "kv.lengths"),
        "q of another shape": ({"q": ("float16", (3, 4))}, "q"),
        "q of another dtype": ({"q": ("int8", (3, 4, 64))}, "q"),
        "q of no dtype": ({"q": ("nonsense", (3, 4, 64))}, r"q: expected a tensor, or \(dtype, shape\)"),
        "q of nothing": ({"q": None}, r"q: expected a tensor, or \(dtype, shape\)"),
        "a negative shape": ({"q": ("float16", (-3, 4, 64))}, "q"),
        "an enormous shape": ({"q": ("float16", (2**62, 4, 64))}, "q"),
        "an unknown name": ({"kv.length": [1]}, "batch: expected .*nearest legal: 'kv.lengths'"),
    }  # fmt: skip


@pytest.mark.parametrize("case", bad_batches(Problem()))
def test_bad_batches(kernel, problem, case):
    changes, message = bad_batches(problem)[case]
    with pytest.raises(attn.PlanError, match=message):
        kernel.plan(problem.batch | changes)


@pytest.mark.parametrize("batch", [None, 3, [], "batch", {}])
def test_what_is_no_batch(kernel, batch):
    with pytest.raises(attn.PlanError):
        kernel.plan(batch)


@pytest.mark.parametrize(
    "options",
    [
        dict(strategy="best"),
        dict(strategy=None),
        dict(blocks=-1),
        dict(blocks=2**40),
        dict(blocks="two"),
        dict(limits={"rows": -1}),
        dict(limits={"nonsense": 1}),
        dict(limits=3),
    ],
)
def test_bad_options(kernel, problem, options):
    with pytest.raises(attn.PlanError):
        kernel.plan(problem.batch, **options)


# --- Gates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,message",
    [
        ({"gate": "sigmoid"}, r"gate: expected 'elementwise', a number for each feature, 'headwise'"),
        ({"gate": "headwide"}, "nearest legal: 'headwise'"),
        ({"gate": True}, "gate: expected 'elementwise'"),
        ({"gate": "headwise", "significance": "max"}, "gate: expected None beside significance"),
        (
            {"gate": "headwise", "score": lambda s, h, qi, ki, gate: s + gate[h], "tensors": {"gate": (6,)}},
            "tensors: expected another name than 'gate'",
        ),
        ({"gate": "headwise", "kv": [attn.Packed(name="gate")]}, "kv: expected another name than 'gate'"),
    ],
)
def test_descriptions_of_gates_are_refused(given, message):
    with pytest.raises(attn.SpecError, match=message):
        described(**given)


def test_a_table_may_be_called_gate_where_there_is_none():
    spec = described(score=lambda s, h, qi, ki, gate: s + gate[h], tensors={"gate": (6,)})
    assert_right(attn.check(spec, q_len=3, kv_len=20))


def test_runs_of_gates_are_refused():
    spec = described(gate="elementwise", dtype="float16", kv=[attn.Packed()])
    kernel = attn.compile(spec, device="host")
    tensors = attn.sample(spec, batch=1, q_len=4, kv_len=20)
    plan, keys = kernel.plan(tensors), (tensors["kv.k"], tensors["kv.v"])
    assert kernel.plan({n: t for n, t in tensors.items() if n != "gate"}) is not None
    with pytest.raises(attn.TensorError, match="gate: the description takes this tensor; give it as gate="):
        kernel.run(tensors["q"], keys, plan)
    for gate, message in (
        (tensors["gate"][:3], r"gate: expected float16 \[4, 6, 64\]"),
        (tensors["gate"].astype(numpy.float32), "gate: expected float16"),
        (numpy.zeros((4, 6), numpy.float16), r"gate: expected float16 \[4, 6, 64\]"),
    ):
        with pytest.raises(attn.TensorError, match=message):
            kernel.run(tensors["q"], keys, plan, gate=gate)
    with pytest.raises(attn.TensorError, match="overlaps 'gate'"):
        kernel.run(tensors["q"], keys, plan, gate=tensors["gate"], out=tensors["gate"])
    with pytest.raises(attn.PlanError, match="gate"):
        kernel.plan(tensors | {"gate": tensors["gate"][:, :3]})


def test_gradients_of_a_gated_description_are_refused():
    torch = pytest.importorskip("torch")
    spec = described(gate="headwise", kv=[attn.Packed()])
    kernel = attn.compile(spec, device="host")
    q = torch.randn(4, 6, 64, dtype=torch.bfloat16, requires_grad=True)
    k, v = torch.randn(2, 20, 2, 64, dtype=torch.bfloat16)
    plan = kernel.plan(
        {"q": q, "kv.k": k, "kv.v": v, "kv.lengths": [20], "kv.start": [0, 20], "q_start": [0, 4]}
    )
    with pytest.raises(attn.TensorError, match="gate: a description with a gate has no gradients"):
        kernel.run(q, (k, v), plan, gate=torch.zeros(4, 6, dtype=torch.bfloat16))


@pytest.mark.parametrize("grad", [False, True])
def test_calls_with_gates_are_refused(grad):
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.float16)
    q.requires_grad_(grad)
    for gate, message in (
        (
            torch.zeros(2, 9, 4, 32, dtype=torch.float16),
            r"gate: expected \[2, 9, 4, 64\], the shape of the output, or \[2, 9, 4\]",
        ),
        (torch.zeros(2, 9, 4), "gate: expected the dtype of q"),
    ):
        with pytest.raises(attn.TensorError, match=message):
            attn.attend(q, k, v, gate=gate)
    gate = torch.zeros(2, 9, 4, dtype=torch.float16)
    with pytest.raises(attn.TensorError, match="gate: expected None beside significance"):
        attn.attend(q, k, v, gate=gate, significance="max")
    if grad:
        with pytest.raises(attn.TensorError, match="out: expected None"):
            attn.attend(q, k, v, gate=gate, out=torch.empty_like(k))
    with pytest.raises(attn.TensorError, match="out: overlaps gate"):
        wide = torch.zeros(2, 9, 4, 64, dtype=torch.float16)
        attn.attend(q.detach(), k, v, gate=wide, out=wide)
