# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Head dims that tensor cores do not multiply as they are: tiles hold zeros behind the features that exist, memory does
not. Over stores, heads, masks and both schedules, and through ptxas.

CI takes the dims of small and of vision models and a few odd ones, and gives the rest out in turn; --full takes every
multiple of 8.
"""

import itertools
import os

import pytest
from attnlab import Problem, assert_right, attn_run, check_two_sequences
from kernels import Background, assemble, assert_nothing_spilled
from points import APART, DUO

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
DIMS = (
    [(d, d) for d in range(8, 257, 8)]
    if FULL
    else [(d, d) for d in (8, 16, 24, 40, 72, 88, 104, 120, 200, 248)]
)
DIMS += [(72, 40), (24, 136), (192, 120), (8, 256), (256, 8)]
STORES = ("dense", "packed", "paged<1>", "paged<8>", "paged<16>", "paged<128>", "paged<16>, ragged")
HEADS = ((8, 2), (28, 4), (4, 4))
SEES = ("causal", "window(100)", DUO, APART)
FORMS = (("mma", 1), ("mma", 37), ("wgmma", 37))


def points():
    turn = itertools.count()
    for dims, (schedule, rows) in itertools.product(DIMS, FORMS):
        for _ in range(4 if FULL else 1):
            i = next(turn)
            # 7, 3 and 4 have no common divisor: all of them meet.
            problem = Problem(
                *HEADS[i % 3], *dims, ("f16", "bf16")[i // 2 % 2], STORES[i % 7], SEES[i % 4], i % 5 == 0
            )
            yield problem, schedule, rows


POINTS = list(points())


def label(point):
    p, schedule, rows = point
    see = {DUO: "duo", APART: "apart"}.get(p.see, p.see)
    return f"d{p.dim}_{p.value_dim}-{p.store}-h{p.q_heads}_{p.kv_heads}-{see}-{p.dtype}-{schedule}-r{rows}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dims")


@pytest.fixture(scope="module")
def runs(folder):
    def run(point):
        problem, schedule, rows = point
        file = folder / f"{abs(hash(point))}.mlir"
        return check_two_sequences(file, problem, rows, device=DEVICE, options=[f"--schedule={schedule}"])

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_dims(runs, point):
    problem = point[0]
    assert_right(runs[point], problem.dtype, max(1, 32 / problem.value_dim), device=DEVICE)


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
@pytest.mark.parametrize("dims", [(16, 16), (24, 24), (40, 40), (72, 72), (88, 88), (200, 200), (72, 40)])
@pytest.mark.parametrize("store", ["paged<16>", "dense"])
def test_no_byte_of_the_padding_is_moved(folder, dims, store):
    """The floor is that of the features that exist."""
    file = folder / "budget.mlir"
    file.write_text(Problem(8, 2, *dims, store=store).text())
    status, report, errors = attn_run(
        file, "--check", "--device=host", "--dim=batch=3", "--dim=kv_len=800..1500"
    )
    assert status == 0, errors
    assert 1 <= report["amplification"] <= 1.03
    assert report["bank_conflicts"] <= 0.02


@pytest.fixture(scope="module")
def assembled(folder):
    def resources(case):
        problem, target, schedule = case
        return assemble(folder, problem.text(), target, f"--schedule={schedule}")[1]

    with Background(resources, KERNELS) as background:
        yield background


KERNELS = sorted(
    {(problem, "sm_90a" if schedule == "wgmma" else "sm_80", schedule) for problem, schedule, _ in POINTS},
    key=repr,
)
KERNELS = KERNELS if FULL else KERNELS[::3]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: f"{label((case[0], case[2], 0))}-{case[1]}")
def test_ptxas(assembled, case):
    assert_nothing_spilled(assembled[case])
