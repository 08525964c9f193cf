# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every kernel of an attention goes through LLVM and ptxas on its own, in parallel with the others."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

_attn = pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from extension_problem import DECODE, sections  # noqa: E402

KERNELS = ["decode_rows16", "decode_rows192", "decode_merge"]
PTXAS = shutil.which("ptxas")

# A stand-in that writes the kernel's name into the output, unless the shell words in `act` prevent it. $1 is
# the kernel.
STAND_IN = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in *.ptx) source=$1 ;; -o) shift; output=$1 ;; esac
  shift
done
set -- $(sed -n 's/^[.]visible [.]entry \\([a-z0-9_]*\\)($/\\1/p' "$source")
{act}
printf %s "$*" > "$output"
"""


def compile_in_process(tmp_path, act, forms=("ptx", "cubin"), before="", **variables):
    """Compile with a ptxas that runs the shell words in `act`, after the Python code `before`. Return the artifact's
    sections and the output of ptxas, or the error's kind and message."""
    script = tmp_path / "ptxas"
    script.write_text(STAND_IN.replace("{act}", act))
    script.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = f"""
        import json, signal, sys
        from attn import _attn
        {before}
        try:
            made = _attn.compile({DECODE!r}, target="sm_90a", forms={list(forms)!r})
            print(json.dumps([{{"file": bytes(made.artifact).hex()}}, made.ptxas]))
        except _attn.Failure as failure:
            print(json.dumps([str(a) for a in failure.args]))
    """
    environment = {**os.environ, "ATTN_PTXAS": str(script), "TMPDIR": str(scratch), "MARKS": str(tmp_path)}
    environment |= variables
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, said = json.loads(done.stdout)
    return (sections(bytes.fromhex(first["file"])) if isinstance(first, dict) else first, said), scratch


def test_each_kernel_is_a_cubin_of_its_own(tmp_path):
    (artifact, log), scratch = compile_in_process(tmp_path, 'echo "said of $*"')
    assert [kernel["name"] for kernel in json.loads(artifact["manifest"])["kernels"]] == KERNELS
    assert [cubin.decode() for cubin in artifact["cubins"]] == KERNELS
    ptx = artifact["ptx"].decode()
    assert log.splitlines() == [f"said of {name}" for name in KERNELS]
    assert re.findall(r"[.]visible [.]entry (\w+)", ptx) == KERNELS
    assert ptx.count(".version") == 1 and ptx.count("attn_shared[]") == 1
    assert not list(scratch.iterdir())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core kernels wait for each other")
def test_the_longest_kernel_is_assembled_beside_the_others(tmp_path):
    wait = """
touch $MARKS/$1.began
other=decode_rows192; [ $1 = $other ] && other=decode_rows16
for i in $(seq 300); do [ -e $MARKS/$other.began ] && break; sleep 0.1; done
[ -e $MARKS/$other.began ] || { echo "$1 waited for $other"; exit 1; }"""
    for turn in range(4):  # another kernel leaves LLVM first in each turn
        (folder := tmp_path / str(turn)).mkdir()
        made, _ = compile_in_process(folder, wait)
        assert isinstance(made[0], dict), made


def test_one_refusal_is_an_error_that_can_be_repeated(tmp_path):
    refuse = '[ $1 = decode_rows16 ] && { echo "ptxas fatal: no such luck"; exit 255; }'
    (kind, message), scratch = compile_in_process(tmp_path, refuse)
    assert kind == "device" and message.startswith("ptxas failed: ptxas fatal: no such luck\n")
    (kept,) = scratch.iterdir()  # the refused kernel's text, and nothing else
    assert f"-arch=sm_90a {kept} -o /dev/null" in message and message.count("to repeat") == 1
    assert ".entry decode_rows16(" in kept.read_text() and "rows192" not in kept.read_text()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_ptxas_that_hangs_is_killed_with_what_it_started(tmp_path):
    hang = 'echo "began $1"; sleep 1000 & echo $! > $MARKS/$1.child; wait'
    begin = time.monotonic()
    (kind, message), scratch = compile_in_process(tmp_path, hang, ATTN_PTXAS_SECONDS="1.5")
    assert time.monotonic() - begin < 100
    assert kind == "device"
    said = "ptxas had not ended after 1.5 s and was killed (ATTN_PTXAS_SECONDS sets the limit, 0 none)\nbegan decode_"
    assert message.startswith(said)
    kept = list(scratch.iterdir())
    assert kept and all(f"-arch=sm_90a {source} -o /dev/null" in message for source in kept)
    assert len(kept) < len(KERNELS), "what hung once is not waited for again on the same thread"
    children = [int(path.read_text()) for path in tmp_path.glob("*.child")]
    assert len(children) == len(kept) and not any(map(lives, children))


def test_a_slow_ptxas_is_waited_for(tmp_path):
    made, _ = compile_in_process(tmp_path, "sleep 1", ATTN_PTXAS_SECONDS="0")
    assert isinstance(made[0], dict), made


@pytest.mark.parametrize(
    "act,before,seconds,said",
    [
        ("kill -SEGV $$", "", "", "ptxas failed: signal 11 ended it\n"),
        (
            "true",
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
            "",
            "ended: No child processes (does this process ignore SIGCHLD, or wait for children that are not its own?)",
        ),
        ("true", "", "soon", "ATTN_PTXAS_SECONDS: expected seconds, or 0 for no limit, got 'soon'"),
        ("true", "", "-1", "ATTN_PTXAS_SECONDS: expected seconds, or 0 for no limit, got '-1'"),
    ],
)
def test_other_ends_of_ptxas_are_named(tmp_path, act, before, seconds, said):
    (kind, message), _ = compile_in_process(tmp_path, act, before=before, ATTN_PTXAS_SECONDS=seconds)
    assert kind == "device" and said in message


def test_a_ptxas_that_cannot_be_run_is_named(tmp_path):
    (kind, message), _ = compile_in_process(tmp_path, "true", ATTN_PTXAS=str(tmp_path))
    assert kind == "device" and f"ptxas failed: cannot run {tmp_path}: Permission denied" in message


@pytest.mark.skipif(not PTXAS, reason="there is no ptxas")
def test_the_joined_text_is_legal(tmp_path):
    text, cubin = tmp_path / "all.ptx", tmp_path / "all.cubin"
    text.write_bytes(bytes(_attn.emit(DECODE, "ptx")))
    done = subprocess.run([PTXAS, "-v", "-arch=sm_90a", text, "-o", cubin], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"entry function '(\w+)'", done.stderr)) == sorted(KERNELS)
