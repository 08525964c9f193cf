# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes files atomically."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write data to a path. A reader, also one after a kill, finds the whole old file or the whole new one. The new
    file is written beside it, under the same name every time, so that kills leave no litter. OSError."""
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
