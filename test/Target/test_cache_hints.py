# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies with L2 policies, as ptxas encodes them. Some lose their policy (see
lib/Target/LowerCacheHints.cpp), and a GPU stops there; the host device executes PTX's meaning and does not
notice."""

import subprocess

import pytest
from attnlab import program, ptxas
from measuring.report import Problem

PTXAS = "release 13.0"  # where the trap was found, and the release in requirements-ptxas.txt
CODES = {
    "bf16": {},
    "K8V4": {"key": "!attn.quantized<i8, per = 128>", "value": "!attn.quantized<i4, per = 128>"},
    "K4V2": {"key": "!attn.quantized<i4, per = 128>", "value": "!attn.quantized<i2, per = 64>"},
}

# A lane's number plus a uniform one, in a loop: the form of addresses in a ring.
TRAP = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry trap(.param .u64 from, .param .u32 count) {
  .reg .b64 %rd<4>;
  .reg .b32 %r<8>;
  .reg .pred %p<2>;
  .shared .align 16 .b8 ring[16384];
  ld.param.u64 %rd1, [from];
  ld.param.u32 %r1, [count];
  createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;
  mov.u32 %r2, %tid.x;
  shl.b32 %r2, %r2, 4;
  mov.u32 %r3, ring;
  add.u32 %r2, %r3, %r2;
  mov.u32 %r4, 0;
LOOP:
  and.b32 %r5, %r4, 3;
  shl.b32 %r5, %r5, 12;
  shfl.sync.idx.b32 %r5, %r5, 0, 31, -1;
  add.u32 %r6, %r2, %r5;
  cp.async.cg.shared.global.L2::cache_hint [%r6], [%rd1], 16, %r1, %rd2;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, %r1;
  @%p1 bra LOOP;
  cp.async.wait_all;
  ret;
}
"""


def test_the_trap_is_seen(tmp_path):
    version = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    if PTXAS not in version:
        pytest.skip(f"this ptxas is not of {PTXAS}, and may have no trap")
    file = tmp_path / "trap.ptx"
    file.write_text(TRAP)
    with pytest.raises(RuntimeError, match=r"\d copies have lost their policies"):
        ptxas(file, "sm_90a")


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("group", [1, 4, 7])
@pytest.mark.parametrize("store", ["paged<16>", "dense"])
def test_copies_keep_their_policies(tmp_path, codes, group, store):
    text = Problem(2 * group, 2, store=store, significance="max", **CODES[codes]).text()
    command = [program("attn-opt"), "-", "--emit=ptx", "--target=sm_90a", "-o", "-"]
    ptx = subprocess.run(command, capture_output=True, text=True, input=text, check=True).stdout
    assert "cp.async.cg.shared.global.L2::cache_hint" in ptx
    file = tmp_path / "step.ptx"
    file.write_text(ptx)
    assert all(kernel.spill_stores == 0 for kernel in ptxas(file, "sm_90a"))
