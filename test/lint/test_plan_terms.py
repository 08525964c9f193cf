# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The planners' formulas are written once: the host's planner and the device's planner use each, and a test compares
both results."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "runtime/include/attn_rt"
HEADERS = [INCLUDE / "plan/PlanTerms.h", INCLUDE / "batch/TokenRanges.h"]
TEST = ROOT / "test/unit/Conversion/PlanTermsTest.cpp"
# The host computes the launch parameters of the kernel that makes plans.
LIMITS = ROOT / "runtime/src/plan/DevicePlan.cpp"
HOST = [
    *(
        path
        for folder in ("plan", "batch")
        for path in (ROOT / "runtime/src" / folder).glob("*")
        if path != LIMITS
    ),
    INCLUDE / "batch/Batch.h",
]
DEVICE = [LIMITS, *(ROOT / "lib/Conversion/AttnToTile/Plan").glob("Plan*")]
FORMULA = re.compile(r"^(?:template <[^{\n]*> *)?(?:auto|N|RangeOf<N>|PositionBounds<N>)\s+(\w+)\(", re.M)
EMITTED = re.compile(r"\b(?:DivUIOp|DivSIOp|RemUIOp|RemSIOp|AddIOp|SubIOp|MulIOp|MinSIOp|MaxSIOp)\b")


def code(path):
    return re.sub(r"//.*", "", path.read_text())


def formulas():
    """Return the names of all formulas, except those that numbers have, too."""
    return sorted({name for path in HEADERS for name in FORMULA.findall(code(path))} - {"select"})


def uses(name, paths):
    return sum(len(re.findall(rf"\b{name}(?:<\w+>)?\(", code(path))) for path in paths)


def definitions(name):
    return sum(FORMULA.findall(code(path)).count(name) for path in HEADERS)


def test_formulas_are_found():
    assert {"costOfTask", "tileOfCut", "tokensOfTiles", "fullOf", "tokensOf", "tilesBound"} <= set(formulas())


@pytest.mark.parametrize("name", formulas())
def test_a_formula_has_both_planners(name):
    if uses(name, HEADERS) > definitions(name):
        return  # Another formula uses it.
    assert uses(name, HOST) > 0, "no planner on the host computes it"
    assert uses(name, DEVICE) > 0, "no planner on the device computes it"
    assert f"rt::{name}" in TEST.read_text(), "nothing compares what both compute"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "lib/Conversion/AttnToTile/Plan").glob("Plan*")), ids=lambda path: path.name
)
def test_the_device_computes_of_numbers(path):
    """The device computes with operators, as formulas do: only ValueNumber.h knows the operations that they emit."""
    assert EMITTED.findall(code(path)) == []
