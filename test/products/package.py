# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the package of the build tree on the path, for tests and for cases that are run alone."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"

for place in (
    str(BUILT if (BUILT / "attn" / "libattn_compiler.so.0").exists() else ROOT / "python"),
    str(Path(__file__).parent),
):
    if place not in sys.path:
        sys.path.insert(0, place)
