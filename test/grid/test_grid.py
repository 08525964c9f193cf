# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every point of the grid on attn-run: right against float64, clean under the detectors, within the budgets.

CI runs a pairwise sample, --full many. Points run two at a time (attn-run itself uses all cores, but
compiling and checking do not), started when the first result is asked for.
"""

import os

import points
import pytest
from attnlab import LSE_TOLERANCE, TARGETS, TOLERANCE, Problem, attn_run
from kernels import Background, assemble, assert_nothing_spilled

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
POINTS = (
    points.sample(points.FULL_POINTS, points.FULL_FLOPS)
    if FULL
    else points.sample(points.CI_POINTS, points.CI_FLOPS)
)

# Hopper's schedule has a kernel of its own where a KV head's packed rows do not fit 16.
HOPPER_POINTS = [point for point in POINTS if point.rows * point.problem.group > 16]
if not FULL:
    HOPPER_POINTS = HOPPER_POINTS[:40]

# Budgets hold from 512 tokens on. One row per sequence, so a KV head's packed rows fit 16.
BUDGET_PROBLEMS = [
    Problem(q_heads=32, kv_heads=8, store=store, dtype=dtype)
    for store in ("paged<16>", "dense")
    for dtype in ("f16", "bf16")
] + [
    Problem(store="paged<1>"),
    Problem(store="paged<8>"),
    Problem(store="paged<64>"),
    Problem(store="packed"),
    Problem(28, 4),
    Problem(8, 8),
    Problem(8, 1),
    Problem(40, 8),
    Problem(dim=64, value_dim=64),
    Problem(dim=80, value_dim=80),
    Problem(dim=192, value_dim=128),
    Problem(8, 2, 256, 256),
    Problem(see="window(600)"),
    Problem(see="causal and (sink(64) | recent(256))"),
    Problem(see="causal heads {retrieval: see all, streaming: see sink(64) | recent(256)}"),
    Problem(
        8, 8, see="causal heads {retrieval: see all, streaming: see sink(64) | recent(256)}", store="dense"
    ),
    Problem(see="causal heads {retrieval: see all, streaming: see sink(64) | recent(256)} apart"),
    Problem(
        28,
        4,
        see="causal heads {retrieval: see all, streaming: see sink(64) | recent(256)} apart",
        store="packed",
    ),
    Problem(softcap=True),
    Problem(store="paged<16>, ragged"),
    Problem(store="paged<1>, ragged"),
    Problem(28, 4, store="dense, ragged"),
    Problem(store="packed, ragged"),
    Problem(
        see="causal heads {retrieval: see all, streaming: see sink(64) | recent(256)} apart",
        store="paged<16>, ragged",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("grid")


@pytest.fixture(scope="module")
def runs(folder):
    def run(case):
        point, schedule = case
        problem = folder / f"{point.name}.mlir"
        problem.write_text(point.problem.text())
        lengths = folder / f"{point.name}.csv"
        lengths.write_text("tokens\n" + "".join(f"{length}\n" for length in point.lengths()))
        return attn_run(
            problem,
            "--check",
            f"--device={DEVICE}",
            f"--schedule={schedule}",
            f"--strides={point.strides}",
            f"--dim=batch={point.batch}",
            f"--dim=q_len={point.rows}",
            f"--dim=kv_len=@{lengths}:tokens",
            "--seed=1",
        )

    cases = [(point, "mma") for point in POINTS] + [(point, "wgmma") for point in HOPPER_POINTS]
    with Background(run, cases) as background:
        yield background


def check(point, result):
    status, report, errors = result
    assert status == 0, errors
    assert report["rel_err"] <= TOLERANCE[point.dtype]
    assert report["max_err_lse"] <= LSE_TOLERANCE
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_point(runs, point):
    check(point, runs[point, "mma"])


@pytest.mark.parametrize("point", HOPPER_POINTS, ids=lambda point: point.name)
def test_hopper_point(runs, point):
    check(point, runs[point, "wgmma"])


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
@pytest.mark.parametrize(
    "problem", BUDGET_PROBLEMS, ids=lambda p: f"{p.store}-{p.q_heads}_{p.kv_heads}-d{p.dim}-{p.see}"
)
def test_budget(folder, problem):
    file = folder / "budget.mlir"
    file.write_text(problem.text())
    status, report, errors = attn_run(
        file, "--device=host", "--dim=batch=3", "--dim=kv_len=512..1500", "--check"
    )
    assert status == 0, errors
    assert report["amplification"] <= 1.03
    assert report["sector_efficiency"] >= 0.97
    assert report["bank_conflicts"] <= 0.02
    assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


def kernels_to_assemble():
    """Every distinct kernel of the grid; CI assembles each for one target in turn, --full for all."""
    problems = sorted({point.problem for point in POINTS}, key=repr)
    for index, problem in enumerate(problems):
        for target in TARGETS if FULL else (TARGETS[index % len(TARGETS)],):
            yield problem, target, "mma"
    for problem in sorted({point.problem for point in HOPPER_POINTS}, key=repr):
        yield problem, "sm_90a", "wgmma"


@pytest.fixture(scope="module")
def assembled(folder):
    def resources(case):
        problem, target, schedule = case
        return assemble(folder, problem.text(), target, f"--schedule={schedule}")[1]

    with Background(resources, list(kernels_to_assemble())) as background:
        yield background


@pytest.mark.parametrize("case", list(kernels_to_assemble()), ids=str)
def test_ptxas(assembled, case):
    assert_nothing_spilled(assembled[case])
