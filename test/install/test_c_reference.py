# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference of the C API that ./dev docs writes: every function is there, once, and nothing of the preprocessor's."""

import re
import sys
from pathlib import Path

from attnlab import ROOT

sys.path.append(str(ROOT / "tools"))

import c_reference  # noqa: E402

SYMBOLS = Path(__file__).with_name("symbols.txt").read_text()


def test_the_reference_has_every_function_once():
    text = c_reference.reference()
    code = "".join(re.findall(r"^```c\n(.*?)^```$", text, flags=re.M | re.S))
    declared = re.findall(r"^[A-Za-z][^;(]*?\b(attn[A-Z]\w*)\(", code, flags=re.M)
    exported = set(re.findall(r" (attn[A-Z]\w*)@@", SYMBOLS))
    assert len(declared) == len(set(declared)) and set(declared) == exported
    assert "ATTN_C_EXPORT" not in text and "#if" not in text and "SPDX" not in text
    assert text.count("```") % 2 == 0 and "### Files of artifacts" in text
