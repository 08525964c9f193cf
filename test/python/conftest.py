# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests of the Python package. They run on the package in the build tree (without one, on its sources), or on an
installed attn where `ATTN_INSTALLED` is set: the runner does so with a wheel, in an environment without PyTorch."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"

if not os.environ.get("ATTN_INSTALLED"):
    package = str(BUILT if (BUILT / "attn" / "libattn_compiler.so.0").exists() else ROOT / "python")
    sys.path.insert(0, package)
    # For the processes that tests start.
    os.environ["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Start with no compiled kernels and an empty cache on disk."""
    from attn.compiler import artifacts
    from attn.run import kernels

    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(artifacts, "_bundled", {})
    monkeypatch.setattr(artifacts, "counts", artifacts.Counts())
    artifacts.disk_cache.cache_clear()
    yield tmp_path
    artifacts.disk_cache.cache_clear()
