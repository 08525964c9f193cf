# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that a process compiles and has compiled, for tests of the sources of kernels (with the fixture `fresh`)."""

from pathlib import Path

import attn
from attn.compiler import artifacts
from attn.run import kernels

PYTHON = Path(attn.__file__).parents[1]


def spec(name="decode", **changes):
    given = dict(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Paged()], see=attn.causal())
    return attn.Spec(name=name, **(given | changes))


def forget():
    kernels.clear_kernels()


def seen():
    return artifacts.counts.compiled, artifacts.counts.from_disk, artifacts.counts.from_bundle
