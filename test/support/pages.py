# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that tests of pages share."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "13_real_model"))
import smollm2  # noqa: E402


def skip_without_packages(script):
    """Skip a page whose code imports PyTorch, Transformers or a downloaded model if they are missing."""
    for package in ("torch", "transformers"):
        imported = re.search(rf"^\s*(?:import|from)\b.*\b{package}\b", script, flags=re.M)
        if imported and not importlib.util.find_spec(package):
            pytest.skip(f"{package} is not installed")
    if re.search(r"^import smollm2$", script, flags=re.M) and (absent := smollm2.missing()):
        pytest.skip(absent)


def without_tests(text):
    """Return a page without the blocks that are test files, `test_name.py`: those run with the page's build
    (test/docs)."""
    return re.sub(r"^`test_\w+\.py`:\n```python\n.*?^```$", "", text, flags=re.M | re.S)


def same_pictures(page, folder):
    """Check that what a page's code has drawn into `folder` is what the page shows."""
    for name in re.findall(r"\]\(([\w-]+\.svg)\)", page.read_text()):
        if (folder / name).exists():
            assert (folder / name).read_text() == (page.parent / name).read_text(), name
