# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules given by a user: missing fields are completed, and unusual kernels are right."""

import pytest
from attnlab import Problem, attn_run

TILES = "keys = 64, stages = 2, blocks = 1, query_in_registers = false"
DECODE = (
    "#tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 1, blocks = 3, split_keys = true, "
    "query_in_registers = false>"
)

GIVEN = {
    "as-completed": ("paged<16>", 128, TILES),
    "one-consumer": ("paged<16>", 64, TILES),
    "one-stage": ("paged<16>", 128, TILES.replace("stages = 2", "stages = 1")),
    "four-stages": ("paged<32>", 128, TILES.replace("stages = 2", "stages = 4")),
    "gathered": ("paged<16>", 128, f"{TILES}, key_copies = [gather], ping_pong = true"),
    "queries-gathered": ("paged<16>", 128, f"{TILES}, query_copy = gather"),
    "stored": ("paged<16>", 128, f"{TILES}, epilogue = store"),
    "one-slot": ("packed", 128, f"{TILES}, query_stages = 1"),
    "values-as-one-tile": ("paged<16>", 128, f"{TILES}, value_boxes = 0"),
    "three-without-ping-pong": ("paged<64>", 192, f"{TILES}, ping_pong = false"),
    "fewer-registers": ("paged<16>", 128, f"{TILES}, producer_registers = 32, consumer_registers = 216"),
}


def text_with(store, schedules):
    text = Problem(dim=64, value_dim=64, store=store).text()
    head, brace, body = text.partition(" {\n  %o")
    assert brace
    return f"{head} attributes {{tile.schedules = [{', '.join(schedules)}]}}{brace}{body}"


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("q_len", [1, 50])
def test_given_schedules_are_right(tmp_path, name, q_len):
    store, rows, fields = GIVEN[name]
    prefill = f"#tile.schedule<wgmma, rows = {rows}, warps = {rows // 16}, split_keys = false, {fields}>"
    file = tmp_path / "given.mlir"
    file.write_text(text_with(store, [DECODE, prefill]))
    options = ["--device=host", "--target=sm_90a", "--dim=batch=2", f"--dim=q_len={q_len}"]
    status, report, errors = attn_run(file, *options, "--dim=kv_len=40..300", "--check")
    assert status == 0, errors
    assert report["kernel"].endswith("rows16" if q_len == 1 else f"rows{rows}")


def test_impossible_schedules_are_refused(tmp_path):
    """Four consumers and a producer need more registers than setmaxnreg can give them."""
    prefill = f"#tile.schedule<wgmma, rows = 256, warps = 16, split_keys = false, {TILES}>"
    file = tmp_path / "given.mlir"
    file.write_text(text_with("paged<16>", [DECODE, prefill]))
    status, _, errors = attn_run(file, "--device=host", "--target=sm_90a", "--dim=batch=1")
    assert status == 2
    assert "gives 86016 registers to its roles, and a block begins with 61440" in errors
