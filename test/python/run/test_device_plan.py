# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that the device makes: from tables in its memory, several at once, and refusals."""

import re

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from kernel_problem import LENGTHS, Problem, spec  # noqa: E402


@pytest.fixture(scope="module")
def row_kernel():
    return attn.compile(spec(device_plan=True, numerics="row"), device="host")


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(device_plan=True), device="host")


@pytest.fixture
def problem():
    return Problem()


@pytest.mark.parametrize("numerics", [None, "row"])
def test_steps_of_any_length(kernel, row_kernel, problem, numerics):
    kernel = row_kernel if numerics else kernel
    planner = kernel.device_planner(problem.batch)
    for lengths in (LENGTHS, [1, 20, 64], [5, 16, 33]):
        problem.lengths = lengths
        plan = planner.plan(problem.tables)
        assert plan.fault == ""
        out, lse = kernel.run(problem.q, (problem.k, problem.v), plan, return_lse=True)
        problem.check(out, lse)
        if numerics:
            host = kernel.run(problem.q, (problem.k, problem.v), kernel.plan(problem.batch))
            assert numpy.array_equal(out, host)


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("output_scales", ["tensor", "head"])
def test_a_plan_and_tables_that_nobody_keeps(output_scales, return_lse):
    scales = {"output": "fp8_e4m3", "output_scales": "head"} if output_scales == "head" else {}
    kernel = attn.compile(spec(device_plan=True, **scales), device="host")
    problem = Problem()
    planner, kv = kernel.device_planner(problem.batch), (problem.k, problem.v)
    kept = planner.plan(problem.tables)
    wanted = kernel.run(problem.q, kv, kept, return_lse=return_lse)
    found = kernel.run(problem.q, kv, planner.plan(problem.tables), return_lse=return_lse)
    several = isinstance(found, tuple)
    for each, other in zip(found if several else [found], wanted if several else [wanted], strict=True):
        assert numpy.array_equal(each, other)


def test_plans_in_tensors_are_alive_at_once(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    memory = [numpy.zeros(planner.nbytes // 4, numpy.int32) for _ in range(2)]
    steps = []
    for lengths, out in zip(([5, 37, 64], [3, 30, 50]), memory, strict=True):
        problem.lengths = lengths
        steps.append((lengths, planner.plan(problem.tables, out=out)))
    for lengths, plan in [*steps, steps[0]]:
        problem.lengths = lengths
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_a_plan_is_made_again_of_the_same_tensors(kernel, problem):
    planner, given = kernel.device_planner(problem.batch), problem.tables
    plan = planner.plan(given)
    for lengths in ([1, 20, 64], [5, 16, 33]):
        problem.lengths = lengths
        given["kv.lengths"][:] = lengths
        plan.remake()
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_a_sequence_without_rows(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    out = numpy.full_like(problem.q, 7)
    given = problem.tables | {"q_start": numpy.array([0, 1, 1, 2], numpy.int32)}
    kernel.run(problem.q, (problem.k, problem.v), planner.plan(given), out=out)
    assert (out[2] == 7).all() and not (out[:2] == 7).any()


def test_what_is_wrong_leaves_results_alone(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    out = numpy.full_like(problem.q, 7)
    plan = planner.plan(problem.tables | {"kv.lengths": numpy.array([5, -1, 64], numpy.int32)})
    kernel.run(problem.q, (problem.k, problem.v), plan, out=out)
    assert plan.fault.startswith("sequence 1: a length is negative") and (out == 7).all()


def test_refusals(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    with pytest.raises(
        attn.TensorError, match="expected one of q_start, kv.lengths, kv.pos0, kv.block_table"
    ):
        planner.plan({"lengths": numpy.zeros(3, numpy.int32)})
    with pytest.raises(attn.TensorError, match=r"kv.lengths: expected int32 \[3\]"):
        planner.plan({"kv.lengths": numpy.zeros(4, numpy.int32)})
    with pytest.raises(attn.TensorError, match="plan: expected int32"):
        planner.plan(problem.tables, out=numpy.zeros(4, numpy.int32))
    with pytest.raises(attn.PlanError, match=re.escape("Spec(device_plan=True)")):
        attn.compile(spec(), device="host").device_planner(problem.batch)
    shared = problem.batch | {
        "kv.block_table": problem.table[:1],
        "kv.lengths": [5],
        "kv.rows": [[0, 3]],
        "q_start": [0, 1, 2, 3],
        "q_pos": [4, 4, 4],
    }
    with pytest.raises(attn.PlanError, match="are planned on the host"):
        kernel.device_planner(shared)


# A page one past the pool, one far past it, and the -1 of a freed page: the host would refuse each.
@pytest.mark.parametrize("page", [12, 100_000, -1, -(2**31), 2**31 - 1])
def test_a_page_outside_the_pool_leaves_results_alone(kernel, problem, page):
    planner = kernel.device_planner(problem.batch)
    wrong = problem.tables
    wrong["kv.block_table"][1, 2] = wrong["kv.block_table"][2, 0] = page
    out = numpy.full_like(problem.q, 7)
    plan = planner.plan(wrong)
    kernel.run(problem.q, (problem.k, problem.v), plan, out=out)
    message = f"sequence 1: kv.block_table[1, 2]: expected a page of the pool, 0 to 11, got {page}"
    assert plan.fault == message and (out == 7).all()
    with pytest.raises(attn.PlanError, match=re.escape(message)):
        planner.plan(wrong, check=True)
    wrong["kv.block_table"][2, 0] = problem.table[2, 0]
    wrong["kv.lengths"][1] = 32  # the list ends before the wrong page
    problem.lengths = wrong["kv.lengths"].tolist()
    problem.check(kernel.run(problem.q, (problem.k, problem.v), planner.plan(wrong, check=True)))
    wrong["kv.lengths"][1] = 33
    assert planner.plan(wrong).fault == message


def test_pages_that_no_row_reads_may_be_anything(problem):
    windowed = attn.compile(spec(device_plan=True, see=attn.causal() & attn.recent(20)), device="host")
    planner = windowed.device_planner(problem.batch)
    given = problem.tables
    problem.lengths, given["kv.lengths"] = [64, 64, 5], numpy.array([64, 64, 5], numpy.int32)
    right = windowed.run(problem.q, (problem.k, problem.v), planner.plan(given, check=True))
    given["kv.block_table"][:2, :2] = -1  # tokens 0 to 31, in front of the window
    given["kv.block_table"][2, 1:] = -1  # after the last token
    assert (windowed.run(problem.q, (problem.k, problem.v), planner.plan(given, check=True)) == right).all()
    given["kv.block_table"][1, 2] = -1  # tokens 32 to 47, of which the row sees 44 to 47
    assert "kv.block_table[1, 2]" in planner.plan(given).fault
    given["q_start"] = numpy.array([0, 1, 1, 2], numpy.int32)  # the sequence has no row
    assert planner.plan(given).fault == ""


# --- Heads with lengths and pages of their own ---------------------------------------------------------------


RAGGED = [
    attn.Paged(ragged=True, page_size=48),
    attn.Paged(ragged=True, key="int8", value="int4"),
    attn.Unified(page_size=7, key="int8", value="int4"),
    attn.Unified(page_size=1),
    attn.Packed(ragged=True),
]


def ragged_problem(store, seed=0, q_len=1, **changes):
    """Return samples of a description, and the operand's tensors in the order of a run."""
    found = spec(kv=[store], device_plan=True, q_heads=6, kv_heads=3, **changes)
    tensors = attn.sample(found, seed=seed, batch=4, q_len=q_len, kv_len=(max(q_len, 5), 130))
    parts = ("k", "v", "k_pages", "v_pages", "k_meta", "v_meta")
    operand = tuple(tensors[f"kv.{part}"] for part in parts if f"kv.{part}" in tensors)
    return found, tensors, operand


@pytest.mark.parametrize("numerics", [None, "row"])
@pytest.mark.parametrize("store", RAGGED, ids=lambda store: f"{store.kind}-{store.key}")
@pytest.mark.parametrize("q_len", [1, 20])
def test_heads_with_lengths_of_their_own(store, q_len, numerics):
    found, tensors, operand = ragged_problem(store, q_len=q_len, numerics=numerics)
    kernel = attn.compile(found, device="host")
    planner = kernel.device_planner(tensors)
    rng = numpy.random.default_rng(1)
    for _ in range(3):
        lengths = tensors["kv.lengths"]
        shorter = numpy.minimum(lengths, rng.integers(q_len, 130, lengths.shape)).astype(numpy.int32)
        host = dict(tensors) | {"kv.lengths": shorter}
        host.pop("q_pos", None)
        given = {name: host[name] for name in planner.tables if name in host}
        made = planner.plan(given, check=True)
        out, lse = kernel.run(tensors["q"], operand, made, return_lse=True)
        plan = kernel.plan(host)
        wanted, wanted_lse = kernel.run(tensors["q"], operand, plan, return_lse=True)
        if numerics:
            assert numpy.array_equal(out, wanted) and numpy.array_equal(lse, wanted_lse)
        assert numpy.allclose(out.astype(float), wanted.astype(float), atol=2e-2)
        assert numpy.allclose(lse, wanted_lse, atol=2e-2)


@pytest.mark.parametrize("store", RAGGED[:4], ids=lambda store: f"{store.kind}-{store.key}")
def test_a_page_of_a_head_outside_the_pool(store):
    found, tensors, operand = ragged_problem(store)
    kernel = attn.compile(found, device="host")
    planner = kernel.device_planner(tensors)
    pages = len(operand[0])
    given = {name: tensors[name].copy() for name in planner.tables if name in tensors}
    page = 1 if store.page_size == 1 else store.page_size
    column = (given["kv.lengths"][2, 1] - 1) // page
    given["kv.block_table"][2, 1, column] = pages
    given["kv.block_table"][3, 0, 0] = -1
    out = numpy.full_like(tensors["q"], 7)
    plan = planner.plan(given)
    kernel.run(tensors["q"], operand, plan, out=out)
    where = f"sequence 2: kv.block_table[2, 1, {column}]: expected a page of the pool, 0 to {pages - 1}, got {pages}"
    assert plan.fault == where and (out == 7).all()
    with pytest.raises(attn.PlanError, match=re.escape(where)):
        planner.plan(given, check=True)


# --- Significance in steps of decoding -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def weighing():
    return attn.compile(spec(device_plan=True, significance="max"), device="host")


def test_significance_of_steps(weighing, problem):
    planner = weighing.device_planner(problem.batch)
    for lengths in (LENGTHS, [1, 20, 64], [5, 0, 33]):
        problem.lengths = lengths
        plan = planner.plan(problem.tables)
        assert plan.fault == ""
        out, worth = weighing.run(problem.q, (problem.k, problem.v), plan)
        host = weighing.run(problem.q, (problem.k, problem.v), weighing.plan(problem.batch))
        assert numpy.allclose(out, host[0], atol=1e-3)
        assert numpy.allclose(worth, host[1], atol=1e-3)
        for of_sequence, length in zip(worth.reshape(3, 2, -1), lengths, strict=True):
            assert not of_sequence[:, length:].any() and (of_sequence[:, :length] > 0).all()


def test_significance_of_a_sequence_without_a_row(weighing, problem):
    planner = weighing.device_planner(problem.batch)
    given = problem.tables | {"q_start": numpy.array([0, 1, 1, 2], numpy.int32)}
    _, worth = weighing.run(problem.q, (problem.k, problem.v), planner.plan(given))
    assert worth[0].any() and not worth[1].any() and worth[2].any()


def test_what_is_wrong_leaves_significance_alone(weighing, problem):
    planner = weighing.device_planner(problem.batch)
    out, worth = numpy.full_like(problem.q, 7), numpy.full((3, 2, 4, 16), 7, numpy.float32)
    for given, fault in (
        ({"q_start": numpy.array([0, 2, 2, 3], numpy.int32)}, "sequence 0: more than one row"),
        ({"kv.lengths": numpy.array([5, 65, 3], numpy.int32)}, "sequence 1: a length is negative"),
    ):
        plan = planner.plan(problem.tables | given)
        weighing.run(problem.q, (problem.k, problem.v), plan, out=out, significance=worth)
        assert plan.fault.startswith(fault) and (out == 7).all() and (worth == 7).all()


def test_significance_is_of_steps_alone(weighing, problem):
    prompts = problem.batch | {"q": numpy.concatenate([problem.q] * 2), "q_start": [0, 2, 4, 6]}
    with pytest.raises(attn.PlanError, match="expected a step of decoding, whose sequences have a row"):
        weighing.device_planner(prompts)


def test_recorded_steps_fill_a_gpu_and_not_the_host(kernel, problem):
    """The host device runs all blocks of a launch, with work or without, and a GPU has to get as many as fill it."""
    blocks_on = attn.run.device_plan.blocks_on
    assert blocks_on("cuda:0") == blocks_on("cuda:1") == 0 < blocks_on("host") == blocks_on("cpu")
    few = kernel.plan(problem.batch, strategy="by-query", blocks=blocks_on("host"))
    assert (
        few.stats["blocks"]
        == blocks_on("host")
        < kernel.plan(problem.batch, strategy="by-query").stats["blocks"]
    )
