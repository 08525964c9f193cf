# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation on a cache, over heads, dims, pages and dtypes: bit for bit, clean, and within the budgets.

CI takes every head count with every dim and gives pages and dtypes out in turn; --full takes all of them.
"""

import itertools
import os

import pytest
from attnlab import TARGETS, CacheProblem, attn_run
from kernels import Background, assemble, assert_nothing_spilled

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
OPS = ("append", "move", "gather")
HEADS = (1, 2, 8)
DIMS = (64, 80, 96, 128, 256)
STORES = ("paged<1>", "paged<16>", "paged<64>", "packed")
DTYPES = ("f16", "bf16")


def points():
    shapes = list(itertools.product(OPS, HEADS, DIMS))
    for index, (op, heads, dim) in enumerate(shapes):
        # 45 shapes, 4 stores, 2 dtypes: strides without a common divisor let every pair meet.
        picked = [(STORES[index % 4], DTYPES[index // 4 % 2])]
        for store, dtype in itertools.product(STORES, DTYPES) if FULL else picked:
            yield CacheProblem(op, heads, dim, dim, dtype, store)
    # Values narrower and wider than keys, and rows that take several pieces, the last one in part.
    yield CacheProblem("append", 8, 192, 128)
    yield CacheProblem("move", 1, 32, 256, "f16", "packed")
    yield CacheProblem("gather", 7, 48, 112)
    yield CacheProblem("move", 40, 80, 80)
    # Heads that are no whole sectors, and rows of them that are and are not.
    yield CacheProblem("append", 2, 8, 8)
    yield CacheProblem("append", 3, 72, 40, "f16", "packed")
    yield CacheProblem("move", 1, 72, 104, "f16")
    yield CacheProblem("gather", 8, 40, 200)


POINTS = list(points())


def label(point):
    return f"{point.op}-{point.heads}x{point.dim}_{point.value_dim}-{point.dtype}-{point.store}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def runs(folder):
    def run(point):
        file = folder / f"{abs(hash(point))}.mlir"
        file.write_text(point.text())
        # 137 rows: the last eight are not whole. Three blocks walk them in several rounds.
        options = ["--dim=layers=3", "--dim=rows=137", "--seed=5", "--shuffle", "--blocks=3"]
        if point.heads == 8:
            options.pop()
        return attn_run(file, "--check", f"--device={DEVICE}", *options)

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_point(runs, point):
    status, report, errors = runs[point]
    assert status == 0, errors
    assert report["passed"]
    assert report["rel_err"] == 0
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)
        assert report["amplification"] <= 1.03
        if point.heads * point.dim % 16 == 0 and point.heads * point.value_dim % 16 == 0:
            assert report["sector_efficiency"] >= 0.97


@pytest.fixture(scope="module")
def assembled(folder):
    with Background(lambda case: assemble(folder, case[0].text(), case[1])[1], list(kernels())) as background:
        yield background


def kernels():
    """A kernel depends on the store by a name only, and on the dtype not at all."""
    for index, point in enumerate(sorted({(p.op, p.heads, p.dim, p.value_dim) for p in POINTS})):
        for target in TARGETS if FULL else (TARGETS[index % len(TARGETS)],):
            yield CacheProblem(*point), target


@pytest.mark.parametrize("case", list(kernels()), ids=lambda case: f"{label(case[0])}-{case[1]}")
def test_ptxas(assembled, case):
    assert len(assembled[case]) == 1
    assert_nothing_spilled(assembled[case])
