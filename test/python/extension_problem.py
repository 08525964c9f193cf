# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small decode for tests of the extension: its texts, tensors and results; and child processes that may crash."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
from attn import _attn

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
FAKE = BUILD / "test" / "runtime" / "fake" / "libfakecuda.so"

DECODE = """
!query = tensor<?x4x64xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                  %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!query, tensor<?x?xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal & window(64)) scale 0.125
      : !query, !cache -> !query, tensor<?x?xf32>
  return %o, %lse : !query, tensor<?x?xf32>
}
"""
APPEND = (ROOT / "examples" / "07_cache" / "append.mlir").read_text()
MOVE = (ROOT / "examples" / "07_cache" / "move.mlir").read_text()


def sections(file):
    """Return the sections of an artifact file by kind (docs/embedding.md): manifest, PTX, cubins, host code."""
    kinds, found = ("manifest", "note", "ptx", "cubins", "host"), {"cubins": []}
    count = int.from_bytes(file[12:16], "little")
    at = 32 + 32 * count
    for i in range(count):
        row = file[32 + 32 * i :]
        kind, size = kinds[int.from_bytes(row[4:8], "little")], int.from_bytes(row[8:16], "little")
        content = file[at : at + size]
        if kind == "cubins":
            found[kind].append(content)
        else:
            found[kind] = content
        at += size
    return found


def bfloat16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Problem:
    """A batch of three sequences over scattered pages, and memory for its results."""

    def __init__(self, seed=0, pages=24):
        rng = np.random.default_rng(seed)
        self.q = bfloat16(rng.standard_normal((3, 4, 64)))
        self.k = bfloat16(rng.standard_normal((pages, 16, 2, 64)))
        self.v = bfloat16(rng.standard_normal((pages, 16, 2, 64)))
        self.table = rng.permutation(pages)[:18].reshape(3, 6).astype(np.int32)
        self.lengths = np.array([90, 33, 1], np.int32)
        self.o = np.zeros_like(self.q)
        self.lse = np.zeros((3, 4), np.float32)

    def tensors(self, contents=False):
        def data(array):
            return ("bf16", array.shape, array if contents else None)

        return {
            "q": data(self.q),
            "kv.k_pages": data(self.k),
            "kv.v_pages": data(self.v),
            "kv.block_table": self.table,
            "kv.lengths": self.lengths,
        }

    def arrays(self):
        return [self.q, self.k, self.v, self.o, self.lse]

    def addresses(self):
        return [array.ctypes.data for array in self.arrays()]

    def sizes(self):
        return [array.nbytes for array in self.arrays()]

    def check(self):
        results = _attn.reference(DECODE, self.tensors(contents=True))
        o, lse = (np.frombuffer(results[name][2]).reshape(results[name][1]) for name in ("o", "lse"))
        error = np.linalg.norm(widen(self.o) - o, axis=-1) / np.linalg.norm(o, axis=-1)
        assert error.max() <= 8e-3
        assert np.abs(self.lse - lse).max() <= 2e-3


def in_process(code, **environment):
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, (
        f"exit status {result.returncode}\n{result.stdout}\n{result.stderr[-4000:]}"
    )
    return result.stdout
