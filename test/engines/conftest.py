# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests of attn in engines run on the package in the build tree, or without one on its sources."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"
sys.path.insert(0, str(BUILT if (BUILT / "attn" / "libattn_compiler.so.0").exists() else ROOT / "python"))
