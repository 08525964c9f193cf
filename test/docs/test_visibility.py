# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/adding-a-visibility.md changes in the Python package."""

import os
import shutil
import subprocess
import sys

from apply_page import apply
from attnlab import BUILD, ROOT

PROGRAM = """
import attn, numpy
ahead = attn.lookahead(3)
print(ahead.mlir(), (ahead & attn.sink(2)).mlir(), attn.lookahead(0).is_empty())
print(*ahead.sees(5, numpy.arange(12)).astype(int), sep="")
spec = attn.Spec(q_heads=8, kv_heads=2, head_dim=64, dtype="bfloat16", kv=[attn.Paged(see=ahead)])
print("see lookahead(3)" in spec.mlir())
"""


def test_python(tmp_path):
    package = tmp_path / "python" / "attn"
    shutil.copytree(ROOT / "python" / "attn", package)
    for built in (BUILD / "python" / "attn").glob("*.so"):
        (package / built.name).symlink_to(built)
    changed = apply(ROOT / "docs/adding-a-visibility.md", ROOT, tmp_path, under="python/")
    assert "python/attn/describe/visibility.py" in changed
    environment = dict(os.environ, PYTHONPATH=str(tmp_path / "python"))
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n") == [
        "lookahead(3) lookahead(3) and sink(2) False",
        "111111111000",
        "True",
        "",
    ]
