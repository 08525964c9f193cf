# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Significance of a text: attn-run's check, its traffic, and the registers of its kernels by ptxas."""

import os
import subprocess

import attn
import pytest
from attnlab import attn_run, program, ptxas

CODES = {
    "bf16": {},
    "K8V4": {"key": "int8", "value": "int4"},
    "K4V2": {"key": "int4", "value": "int2"},
    "groups": {"key": "int4", "key_group": 32, "value": "int8"},
    "e4m3": {"key": "fp8_e4m3", "value": "fp8_e4m3"},
}
CAUSAL = attn.causal()
FULL = bool(os.environ.get("ATTN_FULL"))


def text(dim=128, formats=None, see=CAUSAL, softcap=None, **changes):
    return attn.Spec(
        **dict(q_heads=8, kv_heads=2, head_dim=dim, dtype="bfloat16", significance="max") | changes,
        kv=[attn.Paged(page_size=16, **(formats or {}))],
        see=see,
        score=(lambda s, h, qi, ki: attn.math.softcap(s, softcap)) if softcap else None,
    ).mlir()


# Bytes that each thread may spill (docs/rationale/significance.md): heads of 256 over quantized values that
# convert by arithmetic, two masks and a soft cap need more than 255 registers.
SPILLED = {("sm_80", "K8V4", 256): 8, ("sm_80", "groups", 256): 100}
KERNELS = [(target, name, dim) for target in ("sm_80", "sm_90a") for name in CODES for dim in (64, 128, 256)]


@pytest.mark.parametrize(
    "target,name,dim", KERNELS if FULL else [("sm_80", "bf16", 128), ("sm_90a", "K8V4", 128)]
)
def test_nothing_is_spilled(tmp_path, target, name, dim):
    file, ptx = tmp_path / "spills.mlir", tmp_path / "spills.ptx"
    see = attn.causal() & (attn.sink(4) | attn.recent(64))
    file.write_text(text(dim, CODES[name], see, 20.0 if FULL else None))
    command = [program("attn-opt"), str(file), f"--target={target}", "--emit=ptx", "-o", str(ptx)]
    subprocess.run(command, check=True, timeout=120)
    kernels = [each for each in ptxas(ptx, target) if "_rows128" not in each.kernel]
    assert sum("significance" in each.kernel or "weigh" in each.kernel for each in kernels) == 2
    bound = SPILLED.get((target, name, dim), 0)
    for kernel in kernels:  # kernels that decode, and those after them
        assert max(kernel.spill_stores, kernel.spill_loads, kernel.stack) <= bound, kernel


# Bytes for a token: scores of four heads, written and read, and one number that is written.
OWN_BYTES = 2 * 4 * 2 + 4


@pytest.mark.parametrize("name", ["bf16", "K8V4", "K4V2"])
def test_traffic_of_decode(tmp_path, name):
    """Traffic grows by scores, one number for each token, and LSEs and a task for each 1024 tokens; keys and values add
    none."""
    file, moved = tmp_path / "decode.mlir", {}
    for asked in (None, "max"):
        file.write_text(text(128, CODES[name], significance=asked, q_heads=4, kv_heads=1))
        status, report, err = attn_run(file, "--dim=batch=2", "--dim=kv_len=512", "--check")
        assert status == 0, err
        assert report["bank_conflicts"] <= 0.02
        moved[asked] = report["bytes_read"] + report["bytes_written"]
    extra = (moved["max"] - moved[None]) / (2 * 512)
    assert OWN_BYTES <= extra <= OWN_BYTES + 2


@pytest.mark.parametrize("rows", [1, 70])
def test_behind_the_tokens_of_a_list_nothing_is_expected(tmp_path, rows):
    file = tmp_path / "ragged.mlir"
    file.write_text(text(64, CODES["K8V4"], attn.causal() & (attn.sink(4) | attn.recent(300))))
    status, report, errors = attn_run(
        file, "--check", "--dim=batch=3", f"--dim=q_len={rows}", "--dim=kv_len=80..700"
    )
    assert status == 0, (errors, report)
