"""Pages of every size at every head dim, with tables and pools that end where the last sequence does: a kernel that
looks one tile or one page too far leaves an allocation, and the host device says so.

CI takes the pages that hold a whole tile of keys at some dim, --full all of them.
"""

import os

import pytest
from attnlab import LSE_TOLERANCE, TOLERANCE, Problem, attn_run
from test_grid import Background

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
PAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256) if FULL else (32, 64, 128, 256)
DIMS = ((64, 64), (128, 128), (160, 160), (192, 128), (256, 256))
DIMS += ((80, 80), (96, 96), (192, 192)) if FULL else ()
# Rows of a prompt, and of decoding.
FORMS = (("wgmma", 37), ("mma", 37), ("mma", 1)) if FULL else (("wgmma", 37), ("mma", 1))
STORES = [f"paged<{page}>" for page in PAGES] + ["paged<128>, ragged", "dense", "packed"]
POINTS = [(store, dims, *form) for store in STORES for dims in DIMS for form in FORMS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def run(point):
        store, dims, schedule, rows = point
        problem = folder / f"{abs(hash(point))}.mlir"
        problem.write_text(Problem(8, 2, *dims, "f16", store).text())
        # The longest comes last, where its table and its pages are the end of theirs.
        lengths = problem.with_suffix(".csv")
        lists = 2 if "ragged" in store else 1
        lengths.write_text("tokens\n" + "333\n" * lists + "512\n" * lists)
        return attn_run(
            problem,
            "--check",
            f"--device={DEVICE}",
            f"--schedule={schedule}",
            "--dim=batch=2",
            f"--dim=q_len={rows}",
            f"--dim=kv_len=@{lengths}:tokens",
            "--seed=1",
        )

    background = Background(run, POINTS)
    yield background
    background.close()


@pytest.mark.parametrize("point", POINTS, ids=lambda p: "{}-d{}_{}-{}-r{}".format(p[0], *p[1], *p[2:]))
def test_pages(runs, point):
    status, report, errors = runs[point]
    assert status == 0, errors
    assert report["rel_err"] <= TOLERANCE["f16"]
    assert report["max_err_lse"] <= LSE_TOLERANCE
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)
