# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference that ./dev docs writes: every public name has its documentation."""

import importlib.util
import re
import sys
from pathlib import Path

import attn

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import api_reference  # noqa: E402


def test_everything_public_is_documented():
    assert not api_reference.undocumented()


def test_the_reference_has_every_public_name():
    text = api_reference.reference()
    titles = re.findall(r"^### (?:class )?`(\w+)`$", text, flags=re.M)
    assert set(attn.__all__) <= set(titles)
    assert ("apply_head_gates" in titles) == (importlib.util.find_spec("transformers") is not None)
    assert text.count("```") % 2 == 0
