# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score regions as text: conversions of floats to integers are equal on every device and in the reference."""

import os

from attnlab import attn_run

DEVICE = os.environ.get("ATTN_DEVICE", "host")

# Half of the scores are far past 2^31, and some are NaN (infinity minus infinity).
TEXT = """
!query = tensor<?x4x64xf16>
!cache = !attn.kv<packed, heads = 4, dim = 64, key = f16, value = f16>
func.func @f(%q: !query {attn.name = "q", attn.dims = ["rows"]},
             %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query {
  %huge = arith.constant 1.0e30 : f32
  %eight = arith.constant 8.0 : f32
  %c28 = arith.constant 28 : i32
  %c3 = arith.constant 3 : i32
  %zero = arith.constant 0 : i32
  %o = attn.attend %q over (%kv see causal) score {
    ^bb0(%s: f32, %h: i32, %qp: i32, %kp: i32):
      %large = arith.mulf %s, %huge : f32
      %square = arith.mulf %large, %large : f32
      %nan = arith.subf %square, %square : f32
      %third = arith.remsi %kp, %c3 : i32
      %is = arith.cmpi eq, %third, %zero : i32
      %x = arith.select %is, %nan, %large : f32
      %i = arith.fptosi %x : f32 to i32
      %top = arith.shrsi %i, %c28 : i32
      %f = arith.sitofp %top : i32 to f32
      %y = arith.divf %f, %eight : f32
      attn.yield %y : f32
  } : !query, !cache -> !query
  return %o : !query
}
"""


def test_conversions_to_integers_saturate_and_make_zero_of_nan(tmp_path):
    file = tmp_path / "problem.mlir"
    file.write_text(TEXT)
    status, report, errors = attn_run(
        file, "--check", f"--device={DEVICE}", "--dim=batch=2", "--dim=q_len=5", "--dim=kv_len=40..90"
    )
    assert status == 0, errors
    assert report["rel_err"] < 1e-3
