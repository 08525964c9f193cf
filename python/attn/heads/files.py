# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Puts the data where the path says: whoever reads, or comes after a kill, finds all of the old file or all of the
    new one. The new one is written beside it, under the same name every time, so that kills leave no litter."""
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
