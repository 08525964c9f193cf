# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowerings of steps read only their operation: each has a pass, a file and a short test of its own."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "lib/Conversion/AttnToTile/Steps"
TESTS = ROOT / "test/Conversion/AttnToTile/Steps"
LOWERINGS = sorted(FOLDER.glob("Lower*.cpp"))
LONGEST_TEST = 40
# Parts of the kernel around a step: its chain, its schedule, its plan, the loops around the step.
AROUND = re.compile(
    r"\b(Chain|chain|Schedule\w*|schedule|TaskView|TileCopies|FragmentExpansion|UpdateOp|RowsOp|TokensOp|StagedOp"
    r"|getParent\w*|scf::ForOp)\b"
)


def flag_of(path):
    return "attn-" + re.sub(r"(?<!^)(?=[A-Z])", "-", path.stem).lower()


def named(pattern, text):
    """Return the matches of a pattern in code, without comments and strings."""
    return sorted(set(pattern.findall(re.sub(r"//.*|\"[^\"]*\"", "", text))))


def names_around(text):
    return named(AROUND, text)


# Libraries that compose steps and stage their operands: they read operations and attributes, but not the
# function that the kernel came from, nor the instructions of its schedule.
COMPOSING = [ROOT / "lib/Conversion/AttnToTile" / room for room in ("Expand", "Stage")]
AMBIENT = re.compile(
    r"\b(?:Chain|chain|findChain\w*|ScheduleKind|setRows|Pieces|TaskView)\b|\bgetParentOfType<scf::ForOp>"
)


@pytest.mark.parametrize(
    "path", [path for room in COMPOSING for path in sorted(room.iterdir())], ids=lambda path: path.name
)
def test_composing_asks_operations(path):
    assert named(AMBIENT, path.read_text()) == []


def test_what_is_ambient_is_found():
    text = (
        "Chain chain = findChainInKernel(k); // setRows\nop->getParentOfType<scf::ForOp>(); ScheduleKind::Mma"
    )
    assert named(AMBIENT, text) == [
        "Chain",
        "ScheduleKind",
        "chain",
        "findChainInKernel",
        "getParentOfType<scf::ForOp>",
    ]


def test_there_are_lowerings():
    assert len(LOWERINGS) > 10
    passes = (ROOT / "include/attn/Conversion/Passes.td").read_text()
    assert set(re.findall(r'LowerStep<"([\w-]+)"', passes)) == {flag_of(path) for path in LOWERINGS}


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_step_knows_nothing_around_it(path):
    assert names_around(path.read_text()) == []


def test_names_around_are_found():
    text = "auto loop = op->getParentOfType<scf::ForOp>(); // chain\nif (schedule.getKind())"
    assert names_around(text) == ["getParentOfType", "scf::ForOp", "schedule"]


@pytest.mark.parametrize("path", LOWERINGS, ids=lambda path: path.stem)
def test_each_has_a_short_test_of_its_pass_alone(path):
    flag = flag_of(path)
    tests = sorted(TESTS.rglob(f"{flag.removeprefix('attn-')}.mlir"))
    assert tests, f"expected test/Conversion/AttnToTile/Steps/{flag.removeprefix('attn-')}.mlir"
    for test in tests + sorted(TESTS.rglob(f"{flag.removeprefix('attn-')}-*.mlir")):
        text = test.read_text()
        runs = re.findall(r"^// RUN: (.*)$", text, re.M)
        if flag not in runs[0]:
            continue  # The name of a longer step begins with this one.
        assert len(text.splitlines()) <= LONGEST_TEST, test
        for run in runs:
            assert re.findall(r"--(attn-[\w-]+|tile-[\w-]+)", run) == [flag], test


# Attributes on a function's arguments, which are text for files and Python.
OF_ARGUMENTS = {"attn.name", "attn.dims"}


def test_attributes_between_passes_are_typed():
    """Each attribute is declared in a dialect's TableGen, and read and written by its type (attn/Support/TypedAttr.h)."""
    names = [
        path
        for folder in ("lib", "include")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cpp", ".h")
    ]
    found = {}
    for path in names:
        for name in re.findall(r'"((?:attn|tile)\.[a-z0-9_]+)"', path.read_text()):
            if name not in OF_ARGUMENTS:
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not found
