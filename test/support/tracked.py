# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files of the repository, for tests that read all of a kind."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns):
    """List the files that git tracks or would track, by their paths in the repository; `patterns` are pathspecs."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]
