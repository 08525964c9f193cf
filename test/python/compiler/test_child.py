# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilation in a child process: its artifact is the same, and its death is an error."""

import sys

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.compiler import artifacts, requests  # noqa: E402
from fresh_process import spec  # noqa: E402


def test_a_child_makes_the_same(fresh, monkeypatch):
    request = requests.request_for(spec(), target="sm_90a", form="host")
    _, here = artifacts.artifact(request)
    artifacts.disk_cache().clear()
    monkeypatch.setenv("ATTN_COMPILE_IN_CHILD", "1")
    _, there = artifacts.artifact(request)
    assert there.payload == here.payload and there.about["remarks"] == here.about["remarks"]
    with pytest.raises(attn.CompileError, match=r"spec:\d+:\d+: error"):
        attn.compile(spec().mlir().replace("attn.attend", "attn.attened"), device="host")


@pytest.mark.parametrize(
    "act,message",
    [
        ("kill -ABRT $$", "the compiler's process was ended by SIGABRT, most likely for want of memory"),
        ("echo first >&2; echo last >&2; exit 3", "the compiler's process ended with status 3: last"),
        ("exit 0", "the compiler's process ended with status 0"),
    ],
)
def test_a_child_that_dies_is_an_error(fresh, monkeypatch, act, message):
    (fresh / "python").write_text(f"#!/bin/sh\n{act}\n")
    (fresh / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fresh / "python"))
    monkeypatch.setenv("ATTN_COMPILE_IN_CHILD", "1")
    with pytest.raises(attn.CompileError, match=f"^{message}$"):
        attn.compile(spec(), device="host")
