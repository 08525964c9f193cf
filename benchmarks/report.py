"""What the benchmarks share: the laboratory of the tests, and reports that say where and when."""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "support"))

from attnlab import BUILD, ROOT, TARGETS, Problem, attn_run, program, ptxas  # noqa: E402

__all__ = ["BUILD", "ROOT", "TARGETS", "Problem", "attn_run", "program", "ptxas", "write_report"]


def processor():
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def write_report(path, name, rows, device=None):
    """Writes the rows as JSON with date, commit and machine; does nothing without a path."""
    if path is None:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    report = {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "device": device or "host"},
        "rows": rows,
    }
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps(report, indent=2) + "\n")
    scratch.replace(path)
    print(f"numbers: {path}")
