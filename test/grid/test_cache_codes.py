# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation on caches of codes, over formats, heads, dims, pages and dtypes: codes and metadata are those of the
reference to the bit, kernels are clean and within the budgets, and assemble without spills.

CI gives the combinations out in turn; --full takes four times as many.
"""

import itertools
import os

import pytest
from attnlab import TARGETS, CacheProblem, attn_run
from kernels import Background, assemble, assert_nothing_spilled

FULL = bool(os.environ.get("ATTN_FULL"))
DEVICE = os.environ.get("ATTN_DEVICE", "host")
STORES = ("paged<16>", "packed", "paged<1>", "paged<64>")
HEADS = (8, 1, 3, 2)
DTYPES = ("bf16", "f16")
DIMS = (128, 64, 256, 192, 96)


def codes(element, per):
    return f"!attn.quantized<{element}, per = {per}>"


def blocks(element):
    return codes(element, "32, scale = f8E8M0FNU")


def small_blocks():
    return codes("f4E2M1FN", "16, scale = f8E4M3FN")


def integers(bits, dim, divisor=1):
    return codes(f"i{bits}", dim // divisor)


def formats(dim):
    """Keys and values of one cache. Groups of 96 and 48 features are no power of two."""
    group = 128 if dim % 128 == 0 else dim
    yield integers(8, group), integers(4, group)
    yield integers(4, group), integers(2, group) if dim % 64 == 0 else integers(4, group)
    yield integers(8, 32 if dim % 32 == 0 else dim), ""
    yield "", integers(4, 16 if dim % 16 == 0 else dim)
    yield codes("f8E4M3FN", "token"), codes("f8E5M2", "head")
    yield codes("f8E4M3FN", "tensor"), integers(8, dim)
    yield codes("f8E5M2", "token"), codes("f8E4M3FN", "head")


def fewer(format, dim):
    """Return the format that slots can be requantized to. Rows of 2 bits are whole 16 bytes where dims are multiples of 64."""
    bits = {"": 8, "i8": 4, "i4": 2, "i2": 2}.get(format.removeprefix("!attn.quantized<").split(",")[0], 4)
    return integers(bits if dim % 64 == 0 else max(bits, 4), dim)


def points():
    turn = itertools.count()
    for op, dim in itertools.product(("append", "move", "gather", "requantize"), DIMS):
        for key, value in formats(dim):
            for _ in range(5 if FULL else 1):  # 4 stores, 4 numbers of heads and 2 types take turns
                i = next(turn)
                store, heads, dtype = STORES[i % 4], HEADS[i // 2 % 4], DTYPES[i % 2]
                into = ("", "")
                if op == "requantize":
                    into = fewer(key, dim), fewer(value, dim)
                yield CacheProblem(
                    op, heads, dim, dim, dtype, store, key, value, *into, status=op == "append" and i % 3 == 0
                )
    # Unified pages, which have one head.
    for op, dim in itertools.product(("append", "move", "gather", "requantize"), (128, 64, 96)):
        for key, value in itertools.islice(formats(dim), 0, None, 1 if FULL else 3):
            i = next(turn)
            into = (fewer(key, dim), fewer(value, dim)) if op == "requantize" else ("", "")
            store = f"unified<{(32, 1, 64)[i % 3]}>"
            yield CacheProblem(
                op, 1, dim, dim, DTYPES[i % 2], store, key, value, *into, status=op == "append" and i % 2 == 0
            )
    # Values narrower and wider than keys; several pieces, the last one in part; rows of 30 lanes' worth of numbers.
    yield CacheProblem("append", 8, 192, 128, "bf16", "paged<16>", integers(8, 64), integers(4, 128))
    yield CacheProblem("append", 3, 80, 64, "f16", "packed", integers(8, 80), integers(2, 64), status=True)
    yield CacheProblem("gather", 5, 80, 112, "f16", "paged<16>", integers(8, 80), integers(8, 112))
    yield CacheProblem("move", 40, 128, 128, "bf16", "paged<16>", integers(2, 16), integers(4, 16))
    yield CacheProblem(
        "append", 40, 128, 64, "bf16", "paged<32>", integers(2, 16), codes("f8E4M3FN", "token")
    )
    # Blocks of floats; requantizing gives values of fewer bits, or blocks.
    for op, dim in itertools.product(("append", "move", "gather", "requantize"), DIMS):
        i = next(turn)
        into = (blocks("f4E2M1FN"), integers(4, dim)) if op == "requantize" else ("", "")
        store, key, value = (*STORES, "unified<32>")[i % 5], blocks("f8E4M3FN"), blocks("f4E2M1FN")
        heads = 1 if store.startswith("unified") else HEADS[i // 2 % 4]
        yield CacheProblem(
            op, heads, dim, dim, DTYPES[i % 2], store, key, value, *into, status=op == "append" and i % 3 == 0
        )
    # Those of e4m3, whose tensor has a scale: from 16 bits, from another tensor's, and to other formats.
    for op, dim in itertools.product(("append", "move", "gather", "requantize"), DIMS):
        i = next(turn)
        into = (small_blocks(), integers(4, dim)) if op == "requantize" else ("", "")
        yield CacheProblem(
            op,
            HEADS[i // 2 % 4],
            dim,
            dim,
            DTYPES[i % 2],
            STORES[i % 4],
            small_blocks(),
            small_blocks(),
            *into,
        )


POINTS = list(points())


def label(point):
    short = lambda text: text[12:-1].replace(", per = ", "_") if text else point.dtype  # noqa: E731
    into = f"-{short(point.to_key)}-{short(point.to_value)}" if point.to_key else ""
    return (
        f"{point.op}-{point.heads}x{point.dim}_{point.value_dim}-{point.dtype}-{point.store}-{short(point.key)}-"
        f"{short(point.value)}{into}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache_codes")


@pytest.fixture(scope="module")
def runs(folder):
    def run(point):
        file = folder / f"{abs(hash(point))}.mlir"
        file.write_text(point.text())
        options = ["--dim=layers=3", "--dim=rows=77", "--seed=5", "--shuffle", "--blocks=3"]
        return attn_run(file, "--check", f"--device={DEVICE}", *options)

    with Background(run, POINTS) as background:
        yield background


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_point(runs, point):
    status, report, errors = runs[point]
    assert status == 0, errors
    assert report["passed"]
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)
        if point.heads * point.dim >= 512:  # of less the lists, which every layer reads, are a large part
            assert report["amplification"] <= 1.03


@pytest.fixture(scope="module")
def assembled(folder):
    with Background(lambda case: assemble(folder, case[0].text(), case[1])[1], list(kernels())) as background:
        yield background


def kernels():
    for index, point in enumerate(POINTS):
        yield point, TARGETS[index % len(TARGETS)]


@pytest.mark.parametrize("case", list(kernels()), ids=lambda case: f"{label(case[0])}-{case[1]}")
def test_ptxas(assembled, case):
    assert len(assembled[case]) == 1
    assert_nothing_spilled(assembled[case])
