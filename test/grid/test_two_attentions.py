# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts with two attentions, of which one is over the first region of the other: checked by attn-run, both outputs, under all
detectors; and what ptxas makes of them."""

import subprocess

import pytest
from attnlab import attn_run, program, ptxas

TEXT = """!query = tensor<?x8x{dim}x{dtype}>
!kv = !attn.kv<{store}, heads = 2, dim = {dim}, key = {dtype}, value = {dtype}>
!lse = tensor<?x8xf32>
func.func @both(%q: !query {{attn.name = "q", attn.dims = ["rows"]}},
                %near: !kv {{attn.name = "near", attn.dims = ["batch", "near_len"]}},
                %rest: !kv {{attn.name = "rest", attn.dims = ["batch", "rest_len"]}}) -> (!query, !lse, !query, !lse) {{
  %n, %m = attn.attend %q over (%near see causal * (sink(9) | recent(200))) : !query, !kv -> !query, !lse
  %o, %l = attn.attend %q over (%near see causal * (sink(9) | recent(200))), (%rest see causal)
      : !query, !kv, !kv -> !query, !lse
  return %o, %l, %n, %m : !query, !lse, !query, !lse
}}
"""


def text(tmp_path, **parts):
    file = tmp_path / "both.mlir"
    file.write_text(TEXT.format(**{"dim": 64, "dtype": "bf16", "store": "dense"} | parts))
    return file


@pytest.mark.parametrize("schedule", ("mma", "wgmma"))
@pytest.mark.parametrize(
    "parts", ({}, {"store": "packed", "dtype": "f16"}, {"store": "paged<16>", "dim": 128}), ids=str
)
def test_both_outputs_are_right(tmp_path, parts, schedule):
    dims = ["--dim=batch=2", "--dim=q_len=70", "--dim=near_len=150..260", "--dim=rest_len=130"]
    status, report, errors = attn_run(
        text(tmp_path, **parts), "--device=host", f"--schedule={schedule}", "--check", *dims
    )
    assert status == 0, errors
    assert report["passed"] and report["schedule"] == schedule and report["bytes_partials"] == 0
    assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "dim,target",
    [*((dim, "sm_80") for dim in (64, 96, 128, 192)), *((dim, "sm_90a") for dim in (64, 128, 256))],
)
def test_nothing_is_spilled(tmp_path, dim, target):
    ptx = tmp_path / "both.ptx"
    command = [program("attn-opt"), str(text(tmp_path, dim=dim)), f"--target={target}", "--emit=ptx"]
    subprocess.run([*command, "-o", str(ptx)], check=True, timeout=120)
    for kernel in ptxas(ptx, target):
        assert (kernel.spill_stores, kernel.spill_loads) == (0, 0), kernel
