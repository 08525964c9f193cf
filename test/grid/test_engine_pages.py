# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages as engines have them, whose tokens are no power of two: 48 and 80, 528, 784 and 1056 of hybrid models, 2048, and a few
that no tile divides. Lengths end around the borders of pages and of tiles, so a tile of keys crosses pages, and tables
and pools end where the last sequence does. Decode, prompts on mma and on wgmma, windows, sinks, head classes, ragged and
unified pages, formats of all kinds, the significance of tokens, and operations on caches.

CI takes each page and each feature once, --full most of their products.
"""

import itertools
import os

import pytest
from attnlab import CacheProblem, Problem, assert_right, attn_run, check_two_sequences
from kernels import Background
from points import APART, DUO

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
PAGES = (48, 80, 528, 784, 1056, 2048) + ((3, 6, 208, 2032) if FULL else ())
SEES = ("causal", "window(100)", "causal and (sink(4) | recent(64))", DUO, APART)
I8, I4, I2 = (f"!attn.quantized<i{bits}, per = {group}>" for bits, group in ((8, 64), (4, 32), (2, 32)))
E4M3 = "!attn.quantized<f8E4M3FN, per = token>"
MXFP8 = "!attn.quantized<f8E4M3FN, per = 32, scale = f8E8M0FNU>"
NVFP4 = "!attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>"
FORMATS = (("", ""), (I8, I4), (E4M3, E4M3), (MXFP8, MXFP8), (NVFP4, NVFP4), (I4, I2))
# Rows of a step, and the schedule: decode, two rows of a draft, a prompt or a chunk of one.
FORMS = ((1, "mma"), (2, "mma"), (37, "mma"), (70, "wgmma"))


def lengths_at(page, tile=160):
    """Two lengths that end around borders: of a page, and of a tile behind a page."""
    return (page - 1, max(page + 1, (page // tile + 1) * tile + 1))


def problems():
    turn = itertools.count()
    for page in PAGES:
        for form in FORMS if FULL else FORMS[::3]:
            for _ in range(6 if FULL else 1):
                i = next(turn)
                problem = Problem(
                    8, 2, 128, 128, ("f16", "bf16")[i % 2], f"paged<{page}>", SEES[i % 5], sinks=i % 3 == 0
                )
                yield problem, *form
        # Formats decode on mma; ragged pages take any.
        for form in FORMS[:3] if FULL else FORMS[:1]:
            for _ in range(len(FORMATS) if FULL else 1):
                i = next(turn)
                key, value = FORMATS[i % 6]
                store = f"{('paged', 'unified')[i % 2]}<{page}>"
                yield Problem(8, 2, 64, 64, "f16", store, SEES[i % 5], key=key, value=value), *form
    # Rows of heads that have lists of their own, a cache beside a draft of single tokens, and the weights of tokens.
    yield Problem(8, 2, 64, 64, "bf16", "paged<784>, ragged", "all"), 37, "wgmma"
    yield Problem(4, 4, 80, 80, "f16", "paged<528>", draft_store="paged<1>"), 1, "mma"
    yield Problem(8, 2, 64, 64, "bf16", "paged<48>", draft_store="paged<784>"), 70, "wgmma"
    yield Problem(8, 2, 64, 64, "f16", "paged<80>", significance="sum"), 37, "mma"
    yield Problem(8, 2, 64, 64, "f16", "unified<48>", "all", key=I8, value=I4, significance="max"), 1, "mma"
    yield Problem(8, 2, 256, 256, "bf16", "paged<784>"), 70, "wgmma"


POINTS = list(problems())


def label(point):
    p, rows, schedule = point
    see = {DUO: "duo", APART: "apart"}.get(p.see, p.see)
    formats = "_".join(each.partition("<")[2][:8] for each in (p.key, p.value) if each)
    return f"{p.store}-{p.draft_store}-d{p.dim}-{see}-{p.dtype}-{formats}-{p.significance}-{schedule}{rows}"


def cache_problems():
    for i, page in enumerate(PAGES):
        for op in ("append", "move", "gather"):
            for key, value in FORMATS if FULL else (FORMATS[0], FORMATS[1 + i % 5]):
                yield CacheProblem(op, 2, 64, 64, "bf16", f"paged<{page}>", key, value)
                if key:
                    yield CacheProblem(op, 1, 64, 64, "bf16", f"unified<{page}>", key, value)
        low = "!attn.quantized<i4, per = 64>"
        yield CacheProblem("requantize", 2, 64, 64, "f16", f"paged<{page}>", I8, I8, to_key=low, to_value=low)


CACHE_POINTS = list(cache_problems())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine_pages")

    def run(point):
        problem, rows, schedule = point
        page = int(problem.store.partition("<")[2].partition(">")[0])
        options = [
            f"--schedule={schedule}",
            *(("--dim=drafts=2", "--dim=draft_len=41") if problem.draft_store else ()),
        ]
        file = folder / f"{abs(hash(point))}.mlir"
        return check_two_sequences(file, problem, rows, lengths_at(page), device=DEVICE, options=options)

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_attention(runs, point):
    assert_right(runs[point], point[0].dtype, max(1, 32 / point[0].value_dim), device=DEVICE)


@pytest.fixture(scope="module")
def cache_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine_caches")

    def run(point):
        file = folder / f"{abs(hash(point))}.mlir"
        file.write_text(point.text())
        sizes = ["--dim=layers=2", "--dim=rows=137", "--seed=5", "--shuffle", "--blocks=3"]
        return attn_run(file, "--check", f"--device={DEVICE}", *sizes)

    with Background(run, CACHE_POINTS) as background:
        yield background


@pytest.mark.parametrize(
    "point", CACHE_POINTS, ids=lambda p: f"{p.op}-{p.store}-{p.key[16:24]}-{p.value[16:24]}"
)
def test_cache(cache_runs, point):
    status, report, errors = cache_runs[point]
    assert status == 0, errors
    assert report["passed"] and report["rel_err"] == 0
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)
