# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of every size at every head dim, with tables and pools that end where the last sequence does: a kernel that
looks one tile or one page too far leaves an allocation, and the host device says so.

CI takes the pages that hold a whole tile of keys at some dim, --full all of them.
"""

import os

import pytest
from attnlab import Problem, assert_right, check_two_sequences
from kernels import Background

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
        file = folder / f"{abs(hash(point))}.mlir"
        problem = Problem(8, 2, *dims, "f16", store)
        return check_two_sequences(
            file, problem, rows, (333, 512), device=DEVICE, options=[f"--schedule={schedule}"]
        )

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=lambda p: "{}-d{}_{}-{}-r{}".format(p[0], *p[1], *p[2:]))
def test_pages(runs, point):
    assert_right(runs[point], "f16", device=DEVICE)
