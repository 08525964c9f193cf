# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles in a child process, if ATTN_COMPILE_IN_CHILD=1 is in the environment.

LLVM ends its process when it gets no memory, as under a limit of the address space (`ulimit -v`). In a child this
becomes a CompileError here. It costs the start of a Python interpreter for each kernel.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

from .. import _attn
from ..errors import CompileError
from ..memory.devices import failed


def is_wanted() -> bool:
    return os.environ.get("ATTN_COMPILE_IN_CHILD", "0") not in ("", "0")


def compile_in_child(text: str, **options: object) -> SimpleNamespace:
    """Return the result of _attn.compile for the same arguments. Raises attn.Error, also if the child died."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps({"text": text, **options}).encode(),
        capture_output=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    head, _, artifact = done.stdout.partition(b"\n")
    if done.returncode != 0 or not head:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise CompileError(f"the compiler's process {_end(done.returncode)}{': ' + said[-1] if said else ''}")
    answer = json.loads(head)
    if "kind" in answer:
        raise failed(SimpleNamespace(**answer), CompileError)
    return SimpleNamespace(artifact=artifact, **answer)


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    memory = ", most likely for want of memory" if name in ("SIGABRT", "SIGSEGV", "SIGKILL") else ""
    return f"was ended by {name}{memory}"


def _main() -> None:
    try:
        made = _attn.compile(**json.load(sys.stdin))
    except _attn.Failure as failure:
        sys.stdout.write(json.dumps({"kind": failure.kind, "message": failure.message}) + "\n")
        return
    about = {"seconds": dict(made.seconds), "remarks": list(made.remarks), "ptxas": made.ptxas}
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n" + bytes(made.artifact))


if __name__ == "__main__":
    _main()
