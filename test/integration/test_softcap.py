# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Soft caps: a tile with small arguments only uses tanh's short form, any other the long one, and both are
right."""

import os

import numpy as np
import pytest
from attnlab import Problem, attn_run
from safetensors.numpy import load_file, save_file

DEVICE = os.environ.get("ATTN_DEVICE", "host")
SHAPES = [("mma", 1), ("mma", 40), ("wgmma", 40)]
FORMULAS = {
    "c * tanh(s / c)": "%t = arith.mulf %y, %cap : f32",
    "tanh(s / c) * c": "%t = arith.mulf %cap, %y : f32",
    "-(c * tanh(s / c))": """%z = arith.mulf %y, %cap : f32
      %t = arith.negf %z : f32""",
    "c * tanh(s / c) * -1": """%z = arith.mulf %y, %cap : f32
      %minus = arith.constant -1.0 : f32
      %t = arith.mulf %z, %minus : f32""",
    "tanh(s / c)": "%t = arith.addf %y, %y : f32",
}


def write(folder, cap, formula="c * tanh(s / c)", dtype="f16", scale=0.125, **more):
    text = Problem(4, 2, 64, 64, dtype, "packed", "causal", softcap=True, **more).text()
    begin = text.index("%cap = arith.constant ")
    text = text.replace(text[begin : text.index("\n", begin)], f"%cap = arith.constant {cap!r} : f32")
    begin = text.index("%inverse = arith.constant ")
    text = text.replace(text[begin : text.index("\n", begin)], f"%inverse = arith.constant {1 / cap!r} : f32")
    begin = text.index("%z = arith.mulf")
    text = text.replace(text[begin : text.index("\n", begin)], FORMULAS[formula]).replace(
        "yield %z", "yield %t"
    )
    text = text.replace("see causal)", f"see causal) scale {scale!r}")
    file = folder / "problem.mlir"
    file.write_text(text)
    return file


def check(file, *options):
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", "--seed=3", *options)
    assert status == 0, errors
    return report


# Scores of generated tensors are about standard normal: 30 keeps every argument short, 0.3 none, and with 8
# some tiles have an argument past 1/2 and others have none.
@pytest.mark.parametrize("schedule,rows", SHAPES)
@pytest.mark.parametrize("cap", [30.0, 8.0, 2.0, 0.3])
def test_every_size_of_argument_is_right(tmp_path, schedule, rows, cap):
    file = write(tmp_path, cap)
    report = check(
        file, f"--schedule={schedule}", "--dim=batch=2", f"--dim=q_len={rows}", "--dim=kv_len=40..300"
    )
    assert report["rel_err"] < 5e-4  # an approximate tanh is past this: 2^-11 of the cap


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_follows_the_tangent_is_kept(tmp_path, formula):
    file = write(tmp_path, 2.0, formula)
    check(file, "--schedule=wgmma", "--dim=batch=2", "--dim=q_len=40", "--dim=kv_len=40..300")


def test_sinks_are_in_the_unit_of_capped_scores(tmp_path):
    file = write(tmp_path, 2.0, sinks=True)
    check(file, "--schedule=wgmma", "--dim=batch=2", "--dim=q_len=40", "--dim=kv_len=40..300")


@pytest.mark.parametrize("schedule,rows", SHAPES)
def test_one_large_score_sends_its_tile_the_long_way(tmp_path, schedule, rows):
    """A key with a component so large that its scores leave the short form's range by far, where a polynomial
    would be far off; its neighbours stay small."""
    file, inputs = write(tmp_path, 4.0), tmp_path / "in.safetensors"
    options = [f"--schedule={schedule}"]
    check(file, *options, "--dim=batch=1", f"--dim=q_len={rows}", "--dim=kv_len=200", "--save-inputs", inputs)
    tensors = load_file(inputs)
    tensors["kv.k"][150] *= np.float16(40)
    save_file(tensors, inputs)
    assert check(file, *options, "--inputs", inputs)["rel_err"] < 1e-3


@pytest.mark.parametrize("schedule,rows", SHAPES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("cap", [2.0, 50.0])
def test_a_row_that_sees_one_token_has_its_value(tmp_path, schedule, rows, dtype, cap):
    """The output equals the value to the bit: a rounded weight must be a power of two, whatever the score;
    and the LSE is the score."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from safetensors.torch import load_file

    file = write(tmp_path, cap, dtype=dtype, scale=1.0)
    file.write_text(file.read_text().replace("see causal)", "see window(1))"))
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    options = ["--dim=batch=2", f"--dim=q_len={rows}", "--dim=kv_len=100..300"]
    check(file, f"--schedule={schedule}", *options, "--save-inputs", inputs, "--outputs", outputs)
    given = load_file(inputs)
    sequence = torch.arange(2).repeat_interleave(rows)
    visible = given["kv.v"][given["kv.start"][sequence] + given["q_pos"]]
    assert torch.equal(load_file(outputs)["o"], visible.repeat_interleave(2, 1))


# bf16 keeps no maximum up to a cap of 55.
@pytest.mark.parametrize("schedule,rows", SHAPES)
@pytest.mark.parametrize("cap", [0.5, 30.0, 55.0, 56.0, 300.0])
def test_scores_at_the_cap_neither_overflow_nor_vanish(tmp_path, schedule, rows, cap):
    """Nearly all scores are the cap or minus the cap, and the first rows of the second sequence see few
    tokens, some only tokens of weight exp(-cap). Work is split, so that partials are of that size, too."""
    file = write(tmp_path, cap, dtype="bf16", scale=1e4)
    options = [f"--schedule={schedule}", "--blocks=7"]
    report = check(file, *options, "--dim=batch=2", f"--dim=q_len={rows}", f"--dim=kv_len={rows}..300")
    assert report["rel_err"] < 8e-3 and report["max_err_lse"] < 2e-3
