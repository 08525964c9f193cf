# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels in a process's memory: their number, choice and lifetime."""

import gc
import os
import subprocess
import sys
import weakref

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.run import kernels  # noqa: E402
from fresh_process import PYTHON, seen, spec  # noqa: E402


@pytest.fixture
def two(fresh, monkeypatch):
    """Allow at most two kernels in memory."""
    monkeypatch.setattr(kernels, "_most", 2)
    return lambda name: attn.compile(spec(name=name), device="host")


def test_memory_keeps_the_kernels_used_last(two):
    a, b = two("a"), two("b")
    assert two("a") is a
    c = two("c")  # replaces b
    assert kernels.kernels_in_memory() == 2 and two("a") is a and two("c") is c
    assert seen() == (3, 0, 0)
    assert two("b") is not b and seen() == (3, 1, 0)
    assert two("a") is not a, "which b took the place of"


def test_sizes_of_windows_are_one_kernel_in_memory(two):
    def windowed(size):
        return attn.compile(spec(see=attn.window(size)), device="host")

    first, other = windowed(3), two("other")
    for size in range(4, 4 + 2 * kernels._MOST_KEYS):
        assert windowed(size) is windowed(size) and windowed(size)._native is first._native
    assert kernels.kernels_in_memory() == 2 and len(kernels._kernels) <= kernels._MOST_KEYS + 2
    assert two("other") is other and seen() == (2, 0, 0)


def test_forgotten_kernels_live_while_they_are_used(two):
    batch = {
        "q": ("float16", (2, 4, 64)),
        "kv.k_pages": ("float16", (3, 16, 2, 64)),
        "kv.v_pages": ("float16", (3, 16, 2, 64)),
        "kv.block_table": numpy.array([[0], [1]], numpy.int32),
        "kv.lengths": numpy.array([5, 9], numpy.int32),
        "q_start": numpy.arange(3, dtype=numpy.int32),
    }
    plan = two("a").plan(batch)
    unused, used = weakref.ref(two("b")), weakref.ref(plan.kernel)
    two("c"), two("d")
    gc.collect()
    assert unused() is None and used() is plan.kernel and two("a") is not plan.kernel
    q, pages = numpy.ones((2, 4, 64), numpy.float16), numpy.ones((3, 16, 2, 64), numpy.float16)
    assert (plan.kernel.run(q, (pages, pages), plan) == 1).all()


def test_the_limit_of_kernels_in_memory(two):
    two("a"), two("b")
    kernels.limit_kernels(1)
    assert kernels.kernels_in_memory() == 1
    with pytest.raises(attn.SpecError, match="most: expected an integer from 1 to 2147483647, got 0"):
        attn.limit_kernels(0)
    code = "from attn.run import kernels; print(kernels._most)"

    def limit(value):
        environment = dict(os.environ, PYTHONPATH=str(PYTHON), ATTN_KERNELS=value)
        run = [sys.executable, "-c", code]
        return subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60)

    assert limit("").stdout == "256\n" and limit("17").stdout == "17\n"
    for wrong in ("0", "many", "-1"):
        assert (
            f"ATTN_KERNELS: expected the most kernels to keep in memory, at least 1, got {wrong!r}"
            in limit(wrong).stderr
        )
