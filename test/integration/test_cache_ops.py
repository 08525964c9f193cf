# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Append, move and gather with given tensors: NumPy agrees to the bit, and faults are refused by row."""

import itertools
import os

import numpy as np
import pytest
import tensorlab
from attnlab import CacheProblem, attn_run, prepared_text
from tensorlab import DEVICE

SIZES = ["--dim=layers=2", "--dim=rows=50", "--dim=pages=30"]


def generate(folder, problem, *options):
    file = folder / "problem.mlir"
    file.write_text(problem.text())
    return file, tensorlab.generate(file, folder, *options)


def run(folder, file, tensors, *options):
    status, results, report, errors = tensorlab.launch(file, folder, tensors, *options)
    return status, report, errors, results


def bits(tensor):
    return tensor.view(np.uint16)


def slots_of(tensors, part):
    """Return [layers, slots, heads, dim]."""
    pool = tensors[f"kv.{part}_pages"]
    return bits(pool).reshape(pool.shape[0], -1, *pool.shape[3:])


@pytest.mark.parametrize("heads,dim,page", [(2, 64, 16), (1, 80, 1), (8, 96, 4)])
def test_append(tmp_path, heads, dim, page):
    problem = CacheProblem("append", heads, dim, dim, "f16", f"paged<{page}>")
    file, tensors = generate(tmp_path, problem, *SIZES[:2])
    slots = tensors["slots"]
    assert len(np.unique(slots[slots >= 0])) == (slots >= 0).sum() < 50
    status, _, errors, got = run(tmp_path, file, tensors)
    assert status == 0, errors
    for part in "kv":
        expected = slots_of(tensors, part).copy()
        expected[:, slots[slots >= 0]] = bits(tensors[part])[:, slots >= 0]
        assert np.array_equal(slots_of(got, part), expected)
        assert not np.array_equal(slots_of(tensors, part), expected)


def test_move(tmp_path):
    file, tensors = generate(tmp_path, CacheProblem("move", 2, 64, 32, "f16"), *SIZES)
    there = tensors["from"] >= 0
    status, _, errors, got = run(tmp_path, file, tensors, "--repeat=2")
    assert status == 0, errors
    for part in "kv":
        expected = slots_of(tensors, part).copy()
        expected[:, tensors["to"][there]] = expected[:, tensors["from"][there]]
        assert np.array_equal(slots_of(got, part), expected)


def test_gather_and_append_are_inverse(tmp_path):
    """Rows that are gathered and appended again at the same slots leave the cache unchanged; a slot may be
    read twice."""
    file, tensors = generate(tmp_path, CacheProblem("gather", 2, 64, 64, "f16"), *SIZES)
    tensors["slots"] = np.random.default_rng(1).permutation(30 * 16).astype(np.int32)
    status, _, errors, rows = run(tmp_path, file, tensors)
    assert status == 0, errors
    for part in "kv":
        assert np.array_equal(bits(rows[part]), slots_of(tensors, part)[:, tensors["slots"]])
    file.write_text(CacheProblem("append", 2, 64, 64, "f16").text())
    empty = {name: np.zeros_like(tensors[name]) for name in ("kv.k_pages", "kv.v_pages")}
    status, _, errors, back = run(tmp_path, file, {**empty, **rows, "slots": tensors["slots"]})
    assert status == 0, errors
    for part in "kv":
        assert np.array_equal(slots_of(back, part), slots_of(tensors, part))
    file.write_text(CacheProblem("gather", 2, 64, 64, "f16").text())
    tensors["slots"] = np.array([3, 3, -1, 3], dtype=np.int32)
    status, _, errors, rows = run(tmp_path, file, tensors)
    assert status == 0, errors
    assert np.array_equal(bits(rows["k"])[:, 1], slots_of(tensors, "k")[:, 3])


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9])
def test_few_rows(tmp_path, rows):
    for op in ("append", "move", "gather"):
        file = tmp_path / f"{op}.mlir"
        file.write_text(CacheProblem(op).text())
        status, report, errors = attn_run(
            file, f"--device={DEVICE}", "--check", f"--dim=rows={rows}", "--dim=layers=1"
        )
        assert status == 0, errors
        assert report["passed"]


def one(slots, row, value):
    changed = slots.copy()
    changed[row] = value
    return changed


def refused(tmp_path, op, change, *words):
    file, tensors = generate(tmp_path, CacheProblem(op, 2, 64, 64, "f16"), *SIZES)
    status, report, errors, _ = run(tmp_path, file, change(tensors))
    assert (status, report) == (2, None)
    for word in words:
        assert word in errors, errors


def test_refused(tmp_path):
    refused(
        tmp_path,
        "append",
        lambda t: {**t, "slots": one(t["slots"], 5, 480)},
        "append: row 5 writes slot 480, but the cache has 480 slots, counted from 0",
    )
    refused(
        tmp_path,
        "append",
        lambda t: {**t, "slots": one(one(t["slots"], 5, 479), 17, 479)},
        "append: rows 5 and 17 both write slot 479",
    )
    refused(
        tmp_path,
        "gather",
        lambda t: {**t, "slots": one(t["slots"], 0, 2**31 - 1)},
        "gather: row 0 reads slot 2147483647, but the cache has 480 slots",
    )
    refused(
        tmp_path,
        "move",
        lambda t: {**t, "from": one(t["from"], 3, 7), "to": one(t["to"], 3, -1)},
        "move: row 3 is to go from slot 7 to slot -1: expected both to be negative, or neither",
    )
    refused(
        tmp_path,
        "move",
        lambda t: {
            **t,
            "from": np.array([1, 2, 3], dtype=np.int32),
            "to": np.array([9, 8, 2], dtype=np.int32),
        },
        "move: row 1 reads slot 2, which row 2 writes",
    )


def test_shapes_refused(tmp_path):
    refused(
        tmp_path,
        "append",
        lambda t: {**t, "v": t["v"][:, :49]},
        "tensor 'v': expected shape [2, 50, 2, 64], got [2, 49, 2, 64]",
    )
    refused(
        tmp_path,
        "append",
        lambda t: {**t, "k": t["k"][:1]},
        "tensor 'k': expected shape [2, 50, 2, 64], got [1, 50, 2, 64]",
    )
    refused(
        tmp_path,
        "append",
        lambda t: {**t, "slots": t["slots"].astype(np.int64)},
        "tensor 'slots': expected i32, got i64",
    )
    refused(
        tmp_path,
        "move",
        lambda t: {name: t[name] for name in t if name != "to"},
        "tensor 'to' is missing",
    )
    refused(
        tmp_path,
        "gather",
        lambda t: {**t, "k": t["kv.k_pages"]},
        "tensor 'k' belongs to no argument; expected: kv.k_pages, kv.v_pages, slots",
    )
    refused(
        tmp_path,
        "gather",
        lambda t: {**t, "kv.v_pages": t["kv.v_pages"][:, :29]},
        "tensor 'kv.v_pages': expected shape [2, 30, 16, 2, 64], got [2, 29, 16, 2, 64]",
    )


def test_dims_refused(tmp_path):
    file = tmp_path / "move.mlir"
    file.write_text(CacheProblem("move").text())
    for option, words in [
        ("--dim=pages=5", "--dim pages expects at least 8 for 64 rows, got 5"),
        ("--dim=kv_len=5", "--dim kv_len: this function has no such dimension; it has: layers, rows, pages"),
        ("--dim=rows=1..5", "one size of the whole problem"),
    ]:
        status, _, errors = attn_run(file, "--device=host", option)
        assert status == 2
        assert words in errors, errors


@pytest.mark.parametrize("option", ["--svg=plan.svg", "--strategy=by-query", "--fixed-split=256", "--replay"])
def test_options_of_attentions_are_refused(tmp_path, option):
    file = tmp_path / "move.mlir"
    file.write_text(CacheProblem("move").text())
    status, _, errors = attn_run(file, "--device=host", "--dim=rows=4", option)
    assert status == 2
    assert f"{option.partition('=')[0]} is about attentions" in errors, errors


# --- Rows that are normalized and rotated: every bit is the reference's under all detectors ---------------------


def codes(element, per, scale=""):
    return f"!attn.quantized<{element}, per = {per}{scale}>"


MX4, NV4 = codes("f4E2M1FN", 32, ", scale = f8E8M0FNU"), codes("f4E2M1FN", 16, ", scale = f8E4M3FN")


def run_prepared(folder, problem, *options):
    file = folder / "prepare.mlir"
    file.write_text(problem)
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", *options)
    assert status == 0, errors
    return report


STRIDED = dict(q_heads=0, weight="", angles=0)  # Neither a norm nor a rotation.
PREPARED_FORMATS = [
    {},
    dict(key=codes("i8", 64), value=codes("i4", 32), status=True),
    dict(key=codes("i2", 16), value=codes("f8E5M2", "token")),
    dict(key=codes("f8E4M3FN", "token"), value=codes("f8E4M3FN", "head")),
    dict(key=codes("f8E4M3FN", "tensor"), value=MX4),
    dict(key=NV4, value=codes("i4", 64), status=True),
]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("formats", PREPARED_FORMATS)
def test_prepared_formats(tmp_path, formats, dtype):
    sizes, options = dict(dtype=dtype, heads=3, **formats), ("--dim=rows=19", "--shuffle")
    for changes in (dict(q_heads=3), STRIDED):
        report = run_prepared(tmp_path, prepared_text(**sizes, **changes), *options)
        assert report["races"] == report["uninitialized"] == report["out_of_bounds"] == 0


PREPARED_SHAPES = [
    dict(dim=128, angles=64, heads=8, q_heads=32, store="paged<32>"),
    dict(dim=128, angles=32, interleaved=True, table="f16", weight="f16"),
    dict(dim=80, value_dim=64, angles=16, heads=5, q_heads=5, store="packed"),
    dict(dim=80, angles=10, heads=1, q_heads=7, table="f16", store="paged<1>"),
    dict(dim=96, angles=18, interleaved=True, heads=3, q_heads=9, key=codes("i8", 16)),
    dict(dim=256, angles=32, heads=1, q_heads=20, key=codes("i4", 128), store="paged<64>"),
    dict(dim=24, angles=0, heads=11, q_heads=0),
    dict(dim=192, value_dim=128, angles=64, weight="", heads=2, q_heads=2),
    dict(dim=64, angles=3, weight="", heads=2, q_heads=0),
    dict(dim=128, angles=32, first=64, heads=2, q_heads=6),
    dict(
        dim=192,
        value_dim=128,
        angles=32,
        first=128,
        interleaved=True,
        heads=3,
        q_heads=3,
        key=codes("i8", 64),
    ),
    dict(dim=96, angles=10, first=72, heads=2, q_heads=2),
    dict(dim=96, angles=9, first=8, interleaved=True, heads=1, q_heads=2),
    dict(dim=512, angles=256, heads=2, q_heads=4, dtype="bf16"),
    dict(dim=512, angles=32, interleaved=True, heads=2, q_heads=4),
    dict(dim=320, value_dim=384, angles=100, first=24, heads=1, q_heads=2),
    dict(dim=576, value_dim=256, angles=36, first=200, interleaved=True, heads=1, q_heads=0),
    dict(dim=288, value_dim=512, angles=0, heads=1, q_heads=1),
    STRIDED | dict(dim=80, value_dim=64, heads=5, store="packed"),
    STRIDED | dict(dim=128, heads=8, dtype="bf16", store="paged<1>"),
    STRIDED | dict(dim=24, heads=11),
    STRIDED | dict(dim=512, heads=2),
]
LATENT = dict(latent=True, dtype="bf16", heads=1, dim=576, value_dim=512, angles=32, first=512, q_heads=0)
LATENT_SHAPES = [
    dict(interleaved=True, q_heads=16, store="paged<64>", weight="bf16"),
    dict(q_heads=5, store="packed", table="bf16"),
    dict(dim=48, value_dim=32, angles=8, first=32, q_heads=3),
    dict(dim=288, value_dim=256, angles=16, first=256, interleaved=True, q_heads=9),
    dict(dim=192, value_dim=128, angles=64, first=0, dtype="f16"),
    dict(dim=320, value_dim=256, angles=20, first=264),
    dict(weight="", q_heads=1),
    dict(angles=0, first=0),
    dict(weight="", angles=0, first=0),
]


@pytest.mark.parametrize("shape", PREPARED_SHAPES)
def test_prepared_shapes(tmp_path, shape):
    run_prepared(tmp_path, prepared_text(**shape), "--dim=rows=11", "--dim=layers=2")


@pytest.mark.parametrize("shape", LATENT_SHAPES)
def test_prepared_latents(tmp_path, shape):
    run_prepared(tmp_path, prepared_text(**LATENT | shape), "--dim=rows=11", "--dim=layers=2", "--shuffle")


@pytest.mark.skipif(DEVICE != "host", reason="counters are the host device's")
@pytest.mark.parametrize(
    "formats,most,most_in_f32",
    [({}, 1.15, 1.25), (PREPARED_FORMATS[3] | dict(value=codes("f8E4M3FN", "tensor")), 1.16, 1.30)],
)
def test_prepared_rows_are_read_and_written_once(tmp_path, formats, most, most_in_f32):
    """Rows and pages move once, in whole sectors. Tables and weights count for each piece of four loads, or of two that are
    quantized; on a GPU all but the first read of a row find them in the L1 cache."""
    small = prepared_text(
        heads=8, q_heads=32, dim=128, angles=64, dtype="bf16", table="bf16", weight="bf16", **formats
    )
    report = run_prepared(tmp_path, small, "--dim=rows=64", "--dim=layers=2")
    assert report["amplification"] <= most and report["sector_efficiency"] >= 0.97
    large = prepared_text(heads=8, q_heads=32, dim=128, angles=64, dtype="bf16", **formats)
    report = run_prepared(tmp_path, large, "--dim=rows=64", "--dim=layers=2")
    assert report["amplification"] <= most_in_f32 and report["sector_efficiency"] >= 0.8


def test_few_prepared_rows_and_tensors_refused(tmp_path):
    for rows in (0, 1):
        run_prepared(tmp_path, prepared_text(), f"--dim=rows={rows}", "--dim=layers=1")
    file = tmp_path / "prepare.mlir"
    tensors = tensorlab.generate(file, tmp_path, "--dim=rows=4")
    for name, change, message in (
        (
            "positions",
            lambda x: x + 4096,
            "tensor 'positions': expected 0 to 4095, the last row of 'cos' and 'sin', got",
        ),
        ("sin", lambda x: x[:7], "tensor 'sin': expected shape [4096, 16], got [7, 16]"),
        ("k_norm", lambda x: x[:1], "tensor 'k_norm': expected shape [2, 64], got [1, 64]"),
    ):
        status, _, _, errors = tensorlab.launch(file, tmp_path, tensors | {name: change(tensors[name])})
        assert status == 2 and message in errors, errors


def has_whole_rows(format, dim):
    """Whether rows of the format are whole groups and whole pieces of 16 bytes."""
    unit = 64 if "64" in format or "i2" in format else 32 if "i4" in format or "f4" in format else 16
    return dim % unit == 0


@pytest.mark.skipif(not os.environ.get("ATTN_FULL"), reason="./dev test --full runs the grid")
@pytest.mark.parametrize(
    "heads,dim,angles,interleaved",
    itertools.product((1, 3, 8), (64, 80, 128, 256), (4, 10, 32), (False, True)),
)
def test_prepared_grid(tmp_path, heads, dim, angles, interleaved):
    for dtype, formats in itertools.product(("f16", "bf16"), PREPARED_FORMATS):
        if all(has_whole_rows(str(format), dim) for format in formats.values()):
            problem = prepared_text(
                heads=heads,
                q_heads=3 * heads,
                dim=dim,
                angles=angles,
                interleaved=interleaved,
                dtype=dtype,
                **formats,
            )
            run_prepared(tmp_path, problem, "--dim=rows=13", "--shuffle")
