# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python and the commands give the same results: the same bits, errors and counters."""

import attn
import numpy
import pytest
from attnlab import attn_run

from examples import EXAMPLES, SIZES, load, save

pytest.importorskip("attn._attn", reason="the extension is not built")

COUNTERS = ("bytes_read", "bytes_written", "bytes_partials", "sector_efficiency", "bank_conflicts", "flops")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, tmp_path):
    described = EXAMPLES[name]()
    tensors = attn.sample(described, seed=11, **SIZES[name])
    (tmp_path / "spec.mlir").write_text(described.mlir())
    save(tmp_path / "in.safetensors", tensors)
    status, command, error = attn_run(
        tmp_path / "spec.mlir",
        *("--device=host", "--check", "--inputs", tmp_path / "in.safetensors"),
        *("--outputs", tmp_path / "out.safetensors"),
    )
    assert status == 0, error

    checked = attn.check(described, tensors)
    assert checked.rel_err == pytest.approx(command["rel_err"], rel=1e-6)
    if described.return_lse:
        assert checked.max_err_lse == pytest.approx(command["max_err_lse"], rel=1e-6)
    assert checked.tolerance == command["rel_err_tolerance"]
    assert [checked.counters[name] for name in COUNTERS] == [command[name] for name in COUNTERS]
    assert checked.plan["tasks"] == command["tasks"] and checked.plan["kv_bytes"] == command["kv_bytes"]

    kernel = attn.compile(described, device="host")
    plan = kernel.plan(tensors)
    parts = ("k", "v", "k_pages", "v_pages", "k_meta", "v_meta")
    operands = [[f"{store.name}.{part}" for part in parts] for store in described.operands]
    out = kernel.run(
        tensors["q"],
        *(tuple(tensors[name] for name in names if name in tensors) for names in operands),
        plan,
        return_lse=described.return_lse,
        **{name: tensors[name] for name in ("sink_logits", "slopes") if name in tensors},
    )
    o, lse = out if described.return_lse else (out, None)
    wrote = load(tmp_path / "out.safetensors")
    assert (o.view(numpy.uint16) == wrote["o"].view(numpy.uint16)).all()
    if lse is not None:
        assert (lse.view(numpy.uint32) == wrote["lse"].view(numpy.uint32)).all()
