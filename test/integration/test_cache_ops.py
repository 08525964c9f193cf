# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Append, move and gather with given tensors: NumPy agrees to the bit, and faults are refused by row."""

import numpy as np
import pytest
import tensorlab
from attnlab import CacheProblem, attn_run
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
