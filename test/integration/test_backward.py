# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients on the device, against those of the float64 reference: dq, and each region's dk and dv."""

import os
import subprocess

import pytest
from attnlab import Problem, attn_run, program, ptxas

DEVICE = os.environ.get("ATTN_DEVICE", "host")

POINTS = {
    "causal": (Problem(4, 2, 64, 64, "bf16", "packed", "causal"), 1),
    "full": (Problem(2, 2, 64, 64, "f16", "dense", "all"), 1),
    "window": (Problem(4, 1, 64, 64, "bf16", "dense", "window(40)"), 1),
    "streaming": (Problem(3, 1, 64, 64, "f16", "packed", "sink(20) | recent(50)"), 1),
    "sinks": (Problem(4, 2, 64, 64, "bf16", "packed", "causal", sinks=True), 1),
    "values-wider": (Problem(6, 2, 48, 80, "f16", "packed", "causal"), 1),
    "values-narrower": (Problem(4, 4, 128, 40, "bf16", "dense", "causal"), 1),
    "long-heads": (Problem(2, 1, 128, 128, "bf16", "packed", "causal"), 1),
}
DIMS = ["--dim=batch=3", "--dim=q_len=1..150", "--dim=kv_len=1..200"]


def backward(problem):
    """The problem's text, asking for its backward pass."""
    head, brace, body = problem.text().partition(" {\n  %o")
    assert brace
    return f"{head} attributes {{attn.backward}}{brace}{body}"


@pytest.mark.parametrize("name", POINTS)
def test_gradients_are_those_of_the_reference(tmp_path, name):
    problem, seed = POINTS[name]
    file = tmp_path / "backward.mlir"
    file.write_text(backward(problem))
    status, report, errors = attn_run(file, "--check", f"--device={DEVICE}", f"--seed={seed}", *DIMS)
    assert status == 0, (errors, report)


REGIONS = """
!q = tensor<?x4x64xbf16>
!lse = tensor<?x4xf32>
!context = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!response = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @shared(%q: !q {attn.name = "q"}, %context: !context {attn.name = "context", attn.dims = ["groups", "context_len"]},
                  %response: !response {attn.name = "response"}) -> (!q, !lse) attributes {attn.backward} {
  %o, %lse = attn.attend %q over (%context see all), (%response see window(70)) : !q, !context, !response -> !q, !lse
  return %o, %lse : !q, !lse
}
"""


def test_regions_that_rows_share(tmp_path):
    """Five responses of two prompts: the tokens of a prompt get what the rows of all its responses add."""
    file = tmp_path / "shared.mlir"
    file.write_text(REGIONS)
    dims = ["--dim=batch=5", "--dim=groups=2", "--dim=context_len=90", "--dim=q_len=1..60", "--dim=kv_len=60"]
    status, _, errors = attn_run(file, "--check", f"--device={DEVICE}", "--seed=2", *dims)
    assert status == 0, errors


def test_gradients_are_the_same_bits_in_every_run(tmp_path):
    file = tmp_path / "again.mlir"
    file.write_text(backward(POINTS["causal"][0]))
    status, _, errors = attn_run(file, f"--device={DEVICE}", "--repeat=5", "--shuffle", *DIMS)
    assert status == 0, errors


@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (192, 128)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_nothing_is_spilled(tmp_path, dims, target):
    file, ptx = tmp_path / "spills.mlir", tmp_path / "spills.ptx"
    file.write_text(backward(Problem(8, 2, *dims, "bf16", "packed", "sink(4) | window(64)")))
    command = [program("attn-opt"), str(file), f"--target={target}", "--emit=ptx", "-o", str(ptx)]
    subprocess.run(command, check=True, timeout=120)
    for kernel in ptxas(ptx, target):
        assert (kernel.spill_stores, kernel.spill_loads) == (0, 0), kernel


def test_dims_that_do_not_fit_are_refused(tmp_path):
    file = tmp_path / "large.mlir"
    file.write_text(backward(Problem(2, 1, 256, 256, "bf16", "packed", "causal")))
    status, _, errors = attn_run(file, "--device=host", "--dim=batch=1")
    assert status == 2
    assert "no schedule of a backward pass for dim 256 and value dim 256" in errors
