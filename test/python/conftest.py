"""The tests of the Python package. They run on the sources of this tree, or on an installed attn where
`ATTN_INSTALLED` is set."""

import os
import sys
from pathlib import Path

if not os.environ.get("ATTN_INSTALLED"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
