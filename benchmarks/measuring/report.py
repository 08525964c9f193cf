# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the benchmarks share: those of the tests, and reports with place and date."""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "test" / "support"))

from attnlab import (  # noqa: E402
    BUILD,
    ROOT,
    SOFTCAP,
    TARGETS,
    CacheProblem,
    Problem,
    attn_run,
    program,
    ptxas,
)

__all__ = [
    "BUILD",
    "ROOT",
    "SOFTCAP",
    "TARGETS",
    "CacheProblem",
    "Problem",
    "attn_run",
    "commit",
    "header",
    "program",
    "ptxas",
    "save",
    "write_report",
]


def processor():
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    """Return the commit of the checkout; ATTN_COMMIT sets it for a tree that was copied without its history."""
    if given := os.environ.get("ATTN_COMMIT"):
        return given
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def header(name, device=None):
    return {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "device": device or "host"},
    }


def save(path, report):
    """Write JSON; a reader of the file sees the old or the new one."""
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps(report, indent=2) + "\n")
    scratch.replace(path)


def write_report(path, name, rows):
    """Write the rows as JSON with date, commit and machine; does nothing without a path."""
    if path is None:
        return
    save(path, {**header(name), "rows": rows})
    print(f"numbers: {path}")


def import_attn():
    """Return the package of the build, as this Python imports it."""
    if str(BUILD / "python") not in sys.path:
        sys.path.insert(0, str(BUILD / "python"))
    import attn
    from attn import _attn  # noqa: F401  of the Python that it was built for

    return attn
