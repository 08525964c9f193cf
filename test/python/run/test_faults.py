# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the host device that fault, or find no memory, and the errors in a Python process."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import attn
import pytest
from attnlab import ROOT
from shown import blocks

pytest.importorskip("attn._attn", reason="the extension is not built")

PREPARE = """
import faulthandler, json, os, resource, sys
import attn, numpy

spec = attn.Spec(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", kv=[attn.Packed()], see=attn.causal(), name="mine")
kernel = attn.compile(spec, device="host")
rows, tokens = 64, 512
q = numpy.ones((rows, 4, 64), numpy.float16)
k = numpy.ones((tokens, 2, 64), numpy.float16)
tables = {"q": q, "kv.k": k, "kv.v": k, "q_start": numpy.array([0, rows], numpy.int32)}
tables |= {"kv.start": numpy.array([0, tokens], numpy.int32), "kv.lengths": numpy.array([tokens], numpy.int32)}
plan = kernel.plan(tables)
o, lse = numpy.zeros_like(q), numpy.zeros((rows, 4), numpy.float32)
of = {"q": q, "kv.k": k, "kv.v": k, "o": o, "lse": lse}
nbytes = [of[name].nbytes for name in kernel.slots]
addresses = [of[name].ctypes.data for name in kernel.slots]
wrong = [16 if name == "kv.k" else address for name, address in zip(kernel.slots, addresses)]
"""


def run(code, **variables):
    environment = dict(os.environ, PYTHONPATH=str(Path(attn.__file__).parents[1])) | variables
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_kernel_that_faults_is_named_before_python_says_where_it_was():
    done = run(
        PREPARE
        + "faulthandler.enable()\nkernel.launch(addresses, nbytes, plan)\nkernel.launch(wrong, nbytes, plan)"
    )
    assert done.returncode == -signal.SIGSEGV
    named = re.match(
        r"(attn: SIGSEGV \(a wrong address\) at 0x[0-9a-f]+ while the host device ran kernel 'mine_rows\d+', "
        r"block \d+, thread \d+\n)+",  # one line for each thread that faults
        done.stderr,
    )
    assert named, done.stderr
    assert done.stderr[named.end() :].startswith("Fatal Python error: Segmentation fault")
    page = ROOT / "docs/getting-started.md"
    [told] = [text for _, text, _ in blocks(page) if text.startswith("attn: SIG")]
    ours = re.compile(r"0x[0-9a-f]+|'\w+'|\d+")
    assert ours.sub("N", told) == ours.sub("N", named[1])


def test_handlers_are_left_alone_if_so_asked():
    done = run(PREPARE + "kernel.launch(wrong, nbytes, plan)", ATTN_HOST_SIGNALS="0")
    assert done.returncode == -signal.SIGSEGV and done.stderr == ""


def test_runs_that_find_no_memory_are_errors():
    """Child processes have a limit of memory, since it cannot be raised again; each child gets more until the run
    succeeds."""
    code = (
        f"import json, os, resource, attn\nprepare = {PREPARE!r}\n"
        + """
found = []
for room in [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512]:
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        said = open(reading).read()
        found.append((said, os.waitpid(child, 0)[1]))
        continue
    exec(prepare)
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    said = "right"
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), -1))
    try:
        kernel.launch(addresses, nbytes, plan)
    except (attn.Error, MemoryError) as error:
        said = type(error).__name__ + ": " + str(error)
    os.write(writing, said.encode())
    os._exit(0)
print(json.dumps(found))
"""
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(status == 0 for _, status in found), found
    said = [words for words, _ in found]
    assert said[-1] == "right" and "out of memory" in said[0], said
    assert any("host: launching 'mine_rows" in words for words in said), said
