# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The faults of test/faults/faults.py can still be planted: the text that each changes stands in its file once."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("faults", ROOT / "test" / "faults" / "faults.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAULTS = load().FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_a_fault_changes_is_there(fault):
    assert (ROOT / fault.file).read_text().count(fault.right) == 1
    assert fault.wrong != fault.right
