# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of recorded steps on a CPU run on attn: a fallback to PyTorch is an error."""

import pytest


@pytest.fixture(autouse=True)
def nothing_falls_back(request):
    library = getattr(request.module, "transformers", None)
    if library is None or request.module.__name__.endswith("_gpu"):
        yield
        return
    import attn.transformers

    before = attn.transformers.set_fallback(False)
    yield
    attn.transformers.set_fallback(before)
