# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests of attn in engines run on the package in the build tree, or without one on its sources."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"
sys.path.insert(0, str(BUILT if (BUILT / "attn" / "libattn_compiler.so.0").exists() else ROOT / "python"))

sys.path.insert(0, str(ROOT / "examples/13_real_model"))


@pytest.fixture(scope="session")
def ask(tmp_path_factory):
    """Run cases in a process of their own; return the results by name."""
    from compared import run

    return lambda cases, **options: run(tmp_path_factory.mktemp("installed"), cases, **options)


@pytest.fixture(scope="session")
def smollm():
    import smollm2

    if why := smollm2.missing():
        pytest.skip(why)
    return str(smollm2.fetch())


@pytest.fixture(scope="session")
def prompts(smollm):
    """Eight prompts, each with an answer that is not nearly another; the first and the last begin alike."""
    import smollm2

    tokens, text = smollm2.tokenizer(), smollm2.prose("compound")[:330]
    found = [
        f"{text}\n\nIn short,",
        "A, B, C, D,",
        "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
        "The capital of France is",
        "def fibonacci(n):",
        "if __name__ ==",
        "We hold these truths to be self-evident",
        f"{text}\n\nFor example,",
    ]
    return [tokens(each)["input_ids"] for each in found]
