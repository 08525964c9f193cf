# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that the device makes: of tables in its memory, several at once, and what is refused."""

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from kernel_problem import LENGTHS, Problem, spec  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(device_plan=True), device="host")


@pytest.fixture
def problem():
    return Problem()


def tables(problem):
    lengths = numpy.array(problem.lengths, numpy.int32)
    return {
        "kv.lengths": lengths,
        "kv.block_table": problem.table.copy(),
        "q_start": numpy.arange(4, dtype=numpy.int32),
    }


@pytest.mark.parametrize("fixed_split", [0, 64])
def test_steps_of_any_length(kernel, problem, fixed_split):
    planner = kernel.device_planner(problem.batch, fixed_split=fixed_split)
    for lengths in (LENGTHS, [1, 20, 64], [5, 16, 33]):
        problem.lengths = lengths
        plan = planner.plan(tables(problem))
        assert plan.fault == ""
        out, lse = kernel.run(problem.q, (problem.k, problem.v), plan, return_lse=True)
        problem.check(out, lse)
        if fixed_split:
            host = kernel.run(problem.q, (problem.k, problem.v), kernel.plan(problem.batch, fixed_split=64))
            assert numpy.array_equal(out, host)


def test_plans_in_tensors_are_alive_at_once(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    memory = [numpy.zeros(planner.nbytes // 4, numpy.int32) for _ in range(2)]
    steps = []
    for lengths, out in zip(([5, 37, 64], [3, 30, 50]), memory, strict=True):
        problem.lengths = lengths
        steps.append((lengths, planner.plan(tables(problem), out=out)))
    for lengths, plan in [*steps, steps[0]]:
        problem.lengths = lengths
        problem.check(kernel.run(problem.q, (problem.k, problem.v), plan))


def test_a_sequence_without_rows(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    out = numpy.full_like(problem.q, 7)
    given = tables(problem) | {"q_start": numpy.array([0, 1, 1, 2], numpy.int32)}
    kernel.run(problem.q, (problem.k, problem.v), planner.plan(given), out=out)
    assert (out[2] == 7).all() and not (out[:2] == 7).any()


def test_what_is_wrong_leaves_results_alone(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    out = numpy.full_like(problem.q, 7)
    plan = planner.plan(tables(problem) | {"kv.lengths": numpy.array([5, -1, 64], numpy.int32)})
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
        planner.plan(tables(problem), out=numpy.zeros(4, numpy.int32))
    with pytest.raises(attn.PlanError, match="attn.device_plan"):
        attn.compile(spec(), device="host").device_planner(problem.batch)
    shared = problem.batch | {
        "kv.block_table": problem.table[:1],
        "kv.lengths": [5],
        "kv.rows": [[0, 3]],
        "q_start": [0, 1, 2, 3],
        "q_pos": [4, 4, 4],
    }
    with pytest.raises(attn.PlanError, match="is planned on the host"):
        kernel.device_planner(shared)


def test_pages_outside_the_pool_are_found_where_asked_for(kernel, problem):
    planner = kernel.device_planner(problem.batch)
    assert planner.plan(tables(problem), check_pages=True).fault == ""
    for page, nearest in ((12, 11), (-1, 0)):
        wrong = tables(problem)
        wrong["kv.block_table"][1, 2] = page
        match = rf"kv.block_table\[1, 2\]: expected a page of the pool, 0 to 11, got {page}; nearest legal: {nearest}"
        with pytest.raises(attn.PlanError, match=match):
            planner.plan(wrong, check_pages=True)
        wrong["kv.lengths"][1] = 32  # which does not reach it
        planner.plan(wrong, check_pages=True)


# --- Significance: of steps of decoding ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def weighing():
    return attn.compile(spec(device_plan=True, significance="max"), device="host")


@pytest.mark.parametrize("fixed_split", [0, 64])
def test_significance_of_steps(weighing, problem, fixed_split):
    planner = weighing.device_planner(problem.batch, fixed_split=fixed_split)
    for lengths in (LENGTHS, [1, 20, 64], [5, 0, 33]):
        problem.lengths = lengths
        plan = planner.plan(tables(problem))
        assert plan.fault == ""
        out, worth = weighing.run(problem.q, (problem.k, problem.v), plan)
        host = weighing.run(problem.q, (problem.k, problem.v), weighing.plan(problem.batch))
        if fixed_split == 0:
            assert numpy.allclose(out, host[0], atol=1e-3)
        assert numpy.allclose(worth, host[1], atol=1e-3)
        for of_sequence, length in zip(worth.reshape(3, 2, -1), lengths, strict=True):
            assert not of_sequence[:, length:].any() and (of_sequence[:, :length] > 0).all()


def test_significance_of_a_sequence_without_a_row(weighing, problem):
    planner = weighing.device_planner(problem.batch)
    given = tables(problem) | {"q_start": numpy.array([0, 1, 1, 2], numpy.int32)}
    _, worth = weighing.run(problem.q, (problem.k, problem.v), planner.plan(given))
    assert worth[0].any() and not worth[1].any() and worth[2].any()


def test_what_is_wrong_leaves_significance_alone(weighing, problem):
    planner = weighing.device_planner(problem.batch)
    out, worth = numpy.full_like(problem.q, 7), numpy.full((3, 2, 4, 16), 7, numpy.float32)
    for given, fault in (
        ({"q_start": numpy.array([0, 2, 2, 3], numpy.int32)}, "sequence 0: more than one row"),
        ({"kv.lengths": numpy.array([5, 65, 3], numpy.int32)}, "sequence 1: a length is negative"),
    ):
        plan = planner.plan(tables(problem) | given)
        weighing.run(problem.q, (problem.k, problem.v), plan, out=out, significance=worth)
        assert plan.fault.startswith(fault) and (out == 7).all() and (worth == 7).all()


def test_significance_is_of_steps_alone(weighing, problem):
    prompts = problem.batch | {"q": numpy.concatenate([problem.q] * 2), "q_start": [0, 2, 4, 6]}
    with pytest.raises(attn.PlanError, match="expected a step of decoding, whose sequences have a row"):
        weighing.device_planner(prompts)
