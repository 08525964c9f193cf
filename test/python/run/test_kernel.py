# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels and plans: right results on tensors of any library, their contents, threads and memory."""

import threading
import tracemalloc
from xml.etree import ElementTree

import attn
import numpy
import oracle
import pictures
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.compiler import requests  # noqa: E402
from attn.run import kernels  # noqa: E402
from kernel_problem import DIM, KV_HEADS, LENGTHS, PAGES, Q_HEADS, Problem, spec  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


@pytest.fixture
def problem():
    return Problem()


# --- Results -------------------------------------------------------------------------------------------------


def test_numpy(kernel, problem):
    plan = kernel.plan(problem.batch)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
    o, lse = kernel.run(problem.q, (problem.k, problem.v), plan=plan, return_lse=True)
    assert o.dtype == numpy.float16 and lse.dtype == numpy.float32
    problem.check(o, lse)
    out, lse = numpy.empty_like(o), numpy.empty_like(lse)
    assert kernel.run(problem.q, (problem.k, problem.v), plan, out=out, lse=lse) is out
    problem.check(out, lse)


def test_torch(kernel, problem):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    q, k, v = (torch.from_numpy(x) for x in (problem.q, problem.k, problem.v))
    plan = kernel.plan({"q": q, "kv.k_pages": k, "kv.v_pages": v, "kv.block_table": torch.from_numpy(problem.table),
                        "kv.lengths": torch.tensor(LENGTHS)})  # fmt: skip
    o, lse = kernel.run(q, (k, v), plan, return_lse=True)
    assert o.dtype == torch.float16 and o.device == q.device and lse.dtype == torch.float32
    problem.check(o, lse)
    out = torch.empty_like(q)
    assert kernel.run(q, (k, v), plan, out=out) is out
    problem.check(out)


def test_bfloat16_of_torch_and_by_its_bits(problem):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kernel = attn.compile(spec(dtype="bfloat16"), device="host")
    q, k, v = (torch.from_numpy(x).to(torch.bfloat16) for x in (problem.q, problem.k, problem.v))
    described = problem.batch | {"q": q, "kv.k_pages": k, "kv.v_pages": v}
    plan = kernel.plan(described)
    o = kernel.run(q, (k, v), plan)
    problem.q, problem.k, problem.v = (x.to(torch.float32).numpy() for x in (q, k, v))
    assert oracle.error(o.to(torch.float32).numpy(), problem.expected()[0]) < 8e-3
    bits = [x.view(torch.uint16).numpy() for x in (q, k, v)]
    plan = kernel.plan(described | dict(zip(("q", "kv.k_pages", "kv.v_pages"), bits, strict=True)))
    of_bits = kernel.run(bits[0], tuple(bits[1:]), plan)
    assert of_bits.dtype == numpy.uint16
    assert numpy.array_equal(of_bits, o.view(torch.uint16).numpy())


class Foreign:
    """A tensor of some other library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(kernel, problem):
    q, k, v = (Foreign(x) for x in (problem.q, problem.k, problem.v))
    plan = kernel.plan(problem.batch)
    out = numpy.empty_like(problem.q)
    kernel.run(q, (k, v), plan, out=out)
    problem.check(out)


def test_described_by_dtype_and_shape(kernel, problem):
    shape = (PAGES, 16, KV_HEADS, DIM)
    described = {
        "q": ("float16", problem.q.shape),
        "kv.k_pages": ("f16", shape),
        "kv.v_pages": (numpy.float16, shape),
    }
    plan = kernel.plan(problem.batch | described)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_prefill_over_packed_tokens():
    kernel = attn.compile(spec(kv=[attn.Packed()], return_lse=False), device="host")
    rng = numpy.random.default_rng(3)
    starts = [0, 20, 50]
    q = rng.standard_normal((50, Q_HEADS, DIM)).astype(numpy.float16)
    k, v = (rng.standard_normal((50, KV_HEADS, DIM)).astype(numpy.float16) for _ in range(2))
    plan = kernel.plan({"q": q, "q_start": starts, "kv.k": k, "kv.v": v, "kv.start": starts})
    o = kernel.run(q, (k, v), plan)
    for row in range(50):
        first = 0 if row < 20 else 20
        expected, _ = oracle.attend(q[row], k[first : row + 1], v[first : row + 1])
        assert oracle.error(o[row], expected) < 2e-3
    with pytest.raises(attn.TensorError, match="lse: this description returns none"):
        kernel.run(q, (k, v), plan, return_lse=True)


def packed_problem(rng, names, starts=(0, 20, 50)):
    """Return two causal sequences with one operand for each name."""
    q = rng.standard_normal((50, Q_HEADS, DIM)).astype(numpy.float16)
    pairs = [[rng.standard_normal((50, KV_HEADS, DIM)).astype(numpy.float16) for _ in "kv"] for _ in names]
    batch = {"q": q, "q_start": list(starts)}
    for name, (k, v) in zip(names, pairs, strict=True):
        batch |= {f"{name}.k": k, f"{name}.v": v, f"{name}.start": list(starts), f"{name}.pos0": [0, 0]}
    return q, pairs, batch


def causal_rows(q, k, v):
    for row in range(50):
        first = 0 if row < 20 else 20
        yield oracle.attend(q[row], k[first : row + 1], v[first : row + 1])[0]


@pytest.mark.parametrize("unseen", ["a", "z"])
@pytest.mark.parametrize("see", [attn.window(0), attn.sink(0), attn.causal() & attn.sink(0)])
def test_an_operand_that_no_row_sees(unseen, see):
    """An operand that no row sees is planned, checked and passed like any other, and does not change the result."""
    stores = [attn.Packed(name="kv", see=attn.causal()), attn.Packed(name=unseen, see=see)]
    stores.sort(key=lambda store: store.name)
    kernel = attn.compile(spec(kv=stores, see=None), device="host")
    names = [store.name for store in stores]
    q, pairs, batch = packed_problem(numpy.random.default_rng(4), names)
    before = [[tensor.copy() for tensor in pair] for pair in pairs]
    out = numpy.full_like(q, numpy.nan)
    assert kernel.run(q, *pairs, kernel.plan(batch), out=out) is out
    expected = numpy.array(list(causal_rows(q, *pairs[names.index("kv")])))
    assert oracle.error(out, expected) < 2e-3
    for pair, was in zip(pairs, before, strict=True):
        assert all(numpy.array_equal(tensor, old) for tensor, old in zip(pair, was, strict=True))
    plan = kernel.plan(batch)
    wrong = [
        pair if name == "kv" else [x.astype(numpy.float32) for x in pair]
        for name, pair in zip(names, pairs, strict=True)
    ]
    with pytest.raises(attn.TensorError, match=rf"{unseen}.k: expected float16 \[50, 2, 64\], got float32"):
        kernel.run(q, *wrong, plan)
    assert attn.check(spec(kv=stores, see=None), batch=2, kv_len=[30, 7]).right


def test_classes_that_see_alike():
    """With classes that see alike, the class of each head is required and does not matter."""
    alike = spec(kv=[attn.Packed(name="kv")], heads=attn.heads(a=attn.all_tokens(), b=attn.causal()))
    assert attn.check(alike, batch=2, kv_len=[30, 7]).right
    kernel = attn.compile(alike, device="host")
    q, pairs, batch = packed_problem(numpy.random.default_rng(5), ["kv"])
    plan = kernel.plan(batch | {"classes": [1, 0]})
    out = kernel.run(q, *pairs, plan, classes=(0, 0))
    assert oracle.error(out, numpy.array(list(causal_rows(q, *pairs[0])))) < 2e-3
    with pytest.raises(attn.TensorError, match=r"classes: expected 2, one per KV head, got \[3\]"):
        kernel.run(q, *pairs, plan, classes=(0, 0, 1))
    with pytest.raises(attn.PlanError, match=r"'classes': expected shape \[2\], got \[3\]"):
        kernel.plan(batch | {"classes": [1, 0, 0]})


def test_a_tensor_that_came_to_be_unread():
    """A tensor that the score function does not use after compilation is accepted all the same."""
    unread = spec(
        kv=[attn.Packed(name="kv")],
        score=lambda s, h, qi, ki, bias: attn.math.where((h - h) == 0, s, bias[h]),
        tensors={"bias": (Q_HEADS,)},
    )
    assert attn.check(unread, batch=2, kv_len=[30, 7]).right
    kernel = attn.compile(unread, device="host")
    q, pairs, batch = packed_problem(numpy.random.default_rng(6), ["kv"])
    bias = numpy.zeros(Q_HEADS, numpy.float32)
    out = kernel.run(q, *pairs, kernel.plan(batch | {"bias": bias}), bias=bias)
    assert oracle.error(out, numpy.array(list(causal_rows(q, *pairs[0])))) < 2e-3


def empty_batch(q):
    shape = (PAGES, 16, KV_HEADS, DIM)
    tables = {"kv.lengths": numpy.zeros(0, int), "kv.block_table": numpy.zeros((0, 1), int), "q_start": [0]}
    return {"q": q, "kv.k_pages": ("f16", shape), "kv.v_pages": ("f16", shape)} | tables


def test_a_batch_without_rows(kernel, problem):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for q in (problem.q[:0], torch.from_numpy(problem.q[:0])):
        plan = kernel.plan(empty_batch(q))
        o, lse = kernel.run(q, (problem.k, problem.v), plan, return_lse=True)
        assert tuple(o.shape) == (0, Q_HEADS, DIM) and tuple(lse.shape) == (0, Q_HEADS)
        plan.update(problem.batch)
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_further_tensors_by_name():
    kernel = attn.compile(
        spec(sink_logits=True, score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi), tensors={"slopes": (Q_HEADS,)}),
        device="host",
    )  # fmt: skip
    problem = Problem()
    names = [name for name in kernel.slots if name not in ("q", "o", "lse") and not name.startswith("kv.")]
    assert len(names) == 2 and "slopes" in names
    sinks = next(name for name in names if name != "slopes")
    extra = {"slopes": numpy.zeros(Q_HEADS, numpy.float32), sinks: numpy.full(Q_HEADS, -1e30, numpy.float32)}
    plan = kernel.plan(problem.batch | extra)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan, **extra))
    biased = kernel.run(
        problem.q, (problem.k, problem.v), plan, **(extra | {"slopes": numpy.ones(Q_HEADS, numpy.float32)})
    )
    assert oracle.error(biased, problem.expected()[0]) > 0.1
    with pytest.raises(attn.TensorError, match="slopes: the description takes this tensor"):
        kernel.run(problem.q, (problem.k, problem.v), plan, **{sinks: extra[sinks]})
    with pytest.raises(attn.TensorError, match=r"slopes: expected float32 \[4\]"):
        kernel.run(
            problem.q, (problem.k, problem.v), plan, **(extra | {"slopes": numpy.zeros(3, numpy.float32)})
        )
    with pytest.raises(attn.TensorError, match="nearest legal: 'slopes'"):
        kernel.run(problem.q, (problem.k, problem.v), plan, slope=extra["slopes"], **extra)


def test_steps_update_one_plan(kernel, problem):
    plan = kernel.plan(problem.batch)
    kernel.run(problem.q, (problem.k, problem.v), plan)
    for _ in range(4):
        problem.lengths = [length + 1 if length % 16 else length for length in problem.lengths]
        plan.update(problem.batch)
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
    assert plan.stats["extended"] > 0


def test_strategies_and_blocks_agree(kernel, problem):
    for options in (
        dict(strategy="by-query"),
        dict(blocks=3),
        dict(blocks=1, strategy="by-node"),
    ):
        plan = kernel.plan(problem.batch, **options)
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
        if "blocks" in options:
            assert plan.stats["blocks"] == options["blocks"]


def test_plans_take_the_place_of_others(kernel):
    """A plan in the memory of a deleted plan gives the bits of a plan in memory of its own."""
    rng = numpy.random.default_rng(3)
    held, ways = [], (dict(), dict(strategy="by-query"), dict(blocks=3), dict(strategy="by-node"))
    for step in range(40):
        problem = Problem(step)
        problem.lengths = [int(rng.integers(1, most + 1)) for most in LENGTHS]
        options = ways[step % 3 and rng.integers(len(ways))]
        again = kernel.run(problem.q, (problem.k, problem.v), kernel.plan(problem.batch, **options))
        problem.check(again)
        held.append(
            kernel.plan(problem.batch, **options)
            if step % 2
            else kernel.plan(problem.batch, limits={"rows": 3}, **options)
        )
        assert numpy.array_equal(kernel.run(problem.q, (problem.k, problem.v), held[-1]), again)


def test_a_plan_in_the_place_of_another_is_a_new_one(kernel, problem):
    """A plan in the memory of another plan does not extend that plan, whose cuts may be elsewhere."""
    problem.lengths = [4, 36, 61]
    kernel.plan(problem.batch)
    problem.lengths = [5, 37, 62]
    assert kernel.plan(problem.batch).stats["extended"] == 0


def test_recorded_launches_keep_to_their_limits(kernel, problem):
    plan = kernel.plan(problem.batch, limits={"tokens_per_row": 64})
    plan.fix()
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
    twice = Problem(rows=6)
    larger = twice.batch | {"kv.lengths": LENGTHS * 2, "kv.block_table": numpy.concatenate([twice.table] * 2)}
    with pytest.raises(attn.PlanError):
        plan.update(larger)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
    plan.update(problem.batch)
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_a_refused_update_changes_nothing(kernel, problem):
    def seen(plan):
        out, lse = kernel.run(problem.q, (problem.k, problem.v), plan, return_lse=True)
        return plan.rows, plan.stats, plan.explain(), plan.svg(), out.tobytes(), lse.tobytes()

    def refused(change):
        return problem.batch | change

    six = Problem(rows=6)
    wide = numpy.zeros((3, 9), numpy.int32)
    for fixed in (False, True):
        plan = kernel.plan(problem.batch, limits={"instances": 4, "rows": 4, "groups": 4, "pages": 5})
        if fixed:
            plan.fix()
        before = seen(plan)
        batches = [
            refused({"kv.lengths": [5, 37, 65]}),  # longer than the pages
            refused({"kv.block_table": numpy.full_like(problem.table, 12)}),
            refused({"q_start": [0, 2, 1, 3]}),
        ]
        if fixed:  # the capacity holds for some tables only, so that a partial update would show
            batches += [
                six.batch
                | {"kv.lengths": LENGTHS * 2, "kv.block_table": numpy.concatenate([problem.table] * 2)},
                refused({"kv.block_table": wide, "kv.lengths": [1, 2, 144]}),
                refused({"q": numpy.concatenate([problem.q] * 2), "q_start": [0, 2, 4, 6]}),
            ]
        for batch in batches:
            with pytest.raises(attn.Error):
                plan.update(batch)
            assert seen(plan) == before
        problem.lengths = [6, 38, 64]  # the next update finds all tables as before
        plan.update(problem.batch)
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
        problem.lengths = LENGTHS


# A step that keeps the tasks writes to the plan itself, and is undone where the capacity of a table is too
# small.
def test_a_refused_extension_changes_nothing(kernel):
    problem = Problem()
    problem.lengths = [5, 20, 30]
    narrow = problem.batch | {"kv.block_table": problem.table[:, :2].copy()}
    plan = kernel.plan(narrow)
    plan.fix()
    out = kernel.run(problem.q, (problem.k, problem.v), plan)
    before = plan.stats, plan.explain(), plan.svg()
    problem.lengths = [6, 21, 31]
    with pytest.raises(attn.PlanError, match="room for 2 pages"):
        plan.update(problem.batch)  # four columns
    assert (plan.stats, plan.explain(), plan.svg()) == before
    assert (kernel.run(problem.q, (problem.k, problem.v), plan) == out).all()
    plan.update(problem.batch | {"kv.block_table": problem.table[:, :2].copy()})
    problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


# --- Contents ------------------------------------------------------------------------------------------------


def test_levels_are_printed(kernel):
    for level, word in (
        ("problem", "attn.attend"),
        ("tile", "tile."),
        ("ptx", ".visible .entry"),
        ("manifest", '"kernels"'),
    ):
        assert word in kernel.emit(level)
    with pytest.raises(attn.CompileError, match="level: expected .*nearest legal: 'ptx'"):
        kernel.emit("ptxx")


def test_reports_say_what_a_gpu_needs_and_how_long_it_takes(kernel, problem):
    report = kernel.report()
    assert [f.role for f in report.functions][-1] == "merge" and report.measured_seconds is None
    assert all(f.threads % 32 == 0 for f in report.functions)
    if requests.build_info()["ptxas"]:
        assert all(f.registers and f.spill_bytes == 0 and f.stack_bytes == 0 for f in report.functions)
    plan = kernel.plan(problem.batch)
    report = kernel.report(problem.q, (problem.k, problem.v), plan)
    assert report.predicted_seconds > 0 and report.measured_seconds > 0
    assert "registers" in str(report) and "measured on host" in str(report)


def test_plans_explain_themselves(kernel, problem, tmp_path):
    plan = kernel.plan(problem.batch)
    assert "tasks" in plan.explain()
    path = plan.draw(tmp_path / "plan.svg")
    assert (
        path.read_text().lstrip().startswith("<svg") and path.read_text() == plan.svg() == plan._repr_svg_()
    )
    # Colours by name, numbers on the axes, and a legend.
    root = ElementTree.fromstring(plan.svg())
    pictures.check(plan.svg())
    upper, lower = ([t.text for t in g.findall("{*}text")] for g in root.findall("{*}g"))
    assert {"query rows", "position", "0", "1", "2", "3"} <= set(upper)
    assert {"block", "cost of what a block does, in tiles of 64 keys", "0"} <= set(lower)
    legend = [t.text for t in root.findall("{*}text")]
    assert {"kv", "a task starts"} <= set(legend)
    stats = plan.stats
    assert stats["kv_bytes"] > 0 and stats["balance"] >= 1 and plan.rows == 3
    assert "3 rows" in repr(plan) and "decode for sm_90a" in repr(kernel)
    with pytest.raises(
        attn.PlanError, match="path: expected a name that ends with .svg.*nearest legal: 'plan.svg'"
    ):
        plan.draw("plan.png")


# --- Threads, memory, time -----------------------------------------------------------------------------------


def test_threads_run_concurrently(kernel):
    """Threads run on separate plans, and all on one plan."""
    problems = [Problem(seed) for seed in range(4)]
    shared = kernel.plan(problems[0].batch)
    errors = []

    def work(problem):
        try:
            for _ in range(10):
                plan = kernel.plan(problem.batch)
                problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))
                problems[0].check(kernel.run(problems[0].q, (problems[0].k, problems[0].v), shared))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(problem,)) for problem in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_plans_outlive_what_they_were_made_from(problem):
    kernel = attn.compile(spec(name="short_lived"), device="host")
    plan = kernel.plan(problem.batch)
    kernels.clear_kernels()
    del kernel
    problem.check(plan.kernel.run(problem.q, (problem.k, problem.v), plan))


def test_runs_keep_no_memory(kernel, problem, monkeypatch):
    plan = kernel.plan(problem.batch)
    out = numpy.empty_like(problem.q)
    kernel.run(problem.q, (problem.k, problem.v), plan, out=out)
    monkeypatch.setattr("attn.run.plan.empty", None)  # it would make tensors

    def run():
        kernel.run(problem.q, (problem.k, problem.v), plan, out=out)

    for _ in range(3):
        run()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(2000):
        run()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(
        entry.size_diff
        for entry in after.compare_to(before, "filename")
        if "/attn/" in entry.traceback[0].filename
    )
    assert grown < 30_000, f"{grown} bytes in 2000 runs"
