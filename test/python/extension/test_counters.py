# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension and the command line run the same examples: the same bits, and the same counters of the host device."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from attnlab import attn_run

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
COUNTED = (
    "races",
    "uninitialized",
    "out_of_bounds",
    "bytes_read",
    "bytes_written",
    "bytes_partials",
    "sector_efficiency",
    "bank_conflicts",
    "flops",
)


def read_safetensors(path):
    """Return {name: (dtype, shape, bytes)}; NumPy has no bfloat16."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        tensors[name] = (entry["dtype"].lower(), tuple(entry["shape"]), content[begin:end])
    return tensors


def aligned(content):
    """Return the content in an array at a multiple of 256 bytes, as a device allocates: sector boundaries are counted."""
    room = np.empty(len(content) + 256, np.uint8)
    begin = -room.ctypes.data % 256
    array = room[begin : begin + len(content)]
    array[:] = np.frombuffer(content, np.uint8)
    return array


@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("01_paged_decode/decode", ["--dim=batch=4", "--dim=kv_len=100..900"]),
        ("02_prefill/prefill", ["--dim=batch=2", "--dim=q_len=70", "--dim=kv_len=90"]),
        ("03_softcap/softcap", ["--dim=batch=2", "--dim=kv_len=300"]),
        ("04_composition/composition", ["--dim=batch=3", "--dim=kv_len=200..700"]),
        ("05_shared_prefix/shared_prefix", []),
        ("06_head_classes/head_classes", ["--dim=batch=2", "--dim=kv_len=800"]),
        ("06_head_classes/class_stores", ["--dim=batch=2", "--dim=kv_len=800"]),
    ],
)
def test_bits_and_counters_are_those_of_attn_run(example, options, tmp_path):
    source = (EXAMPLES / f"{example}.mlir").resolve()
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    status, expected, error = attn_run(
        source, "--device=host", "--seed=11", f"--save-inputs={inputs}", f"--outputs={outputs}", *options
    )
    assert status == 0, error
    tensors = read_safetensors(inputs)
    device = _attn.Device.host(checked=True, seed=11)
    kernel = _attn.Kernel(_attn.compile(source.read_text(), checked=True).artifact, device)
    batch = kernel.batch(tensors)
    plan = kernel.plan(batch)
    results = read_safetensors(outputs)
    arrays = []
    for slot in kernel.slots:
        _, _, content = results.get(slot) or tensors.get(slot) or ("", (), b"")
        arrays.append(aligned(content))
    written = {slot: array for slot, array in zip(kernel.slots, arrays, strict=True) if slot in results}
    for array in written.values():
        array[:] = 0xFF
    addresses = [array.ctypes.data if array.size else 0 for array in arrays]
    plan.run(addresses, [array.nbytes for array in arrays])
    for slot, array in written.items():
        assert array.tobytes() == results[slot][2], slot
    report = device.report()
    assert {name: report[name] for name in COUNTED} == {name: expected[name] for name in COUNTED}
    floor = batch.floor
    assert (
        sum(floor[f"{part}_bytes"] for part in ("query", "kv", "table", "result")) == expected["bytes_floor"]
    )
    assert floor["flops_useful"] == expected["flops_useful"]
