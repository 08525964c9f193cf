# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes that rewrite count it: TableGen declares their statistics, and their sources count them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = re.compile(r"^(def|class) (\w+)(.*?)(?=^(?:def|class|#endif)\b|\Z)", re.M | re.S)
STATISTIC = re.compile(r'Statistic<"(\w+)", "([\w-]+)", "([^"]*)">')
WITHOUT = {
    "CheckSignaturePass": "It changes nothing.",
    "MakeKernelsPass": "It makes a kernel of each schedule, which --attn-walk-plan counts.",
    "DifferentiatePass": "Its room, AttnToTile/Kernel, has no counters yet.",
    "StageOperandsPass": "Its room, AttnToTile/Stage, has no counters yet.",
    "ExpandOnlinePass": "The passes that lower its steps count them.",
    "WeighScoresPass": "It writes at most one kernel.",
    "SumPartsPass": "It writes at most one kernel.",
}


def passes(text):
    """Yield the name of each pass in a file, and its statistics or those of its class: variable, name and description
    of each."""
    texts = {name: body for _, name, body in RECORD.findall(text)}
    for kind, name, body in RECORD.findall(text):
        parent = re.search(r"(?:^|>) ?: (\w+)<", body)
        if kind == "def" and parent:
            yield name, STATISTIC.findall(body) or STATISTIC.findall(texts.get(parent[1], ""))


def complaints(name, statistics, source):
    """Yield the errors in the statistics of a pass that a source file implements."""
    if not statistics and name not in WITHOUT:
        yield f"{name} declares no statistic"
    if statistics and name in WITHOUT:
        yield f"{name} declares statistics, and is listed as one without"
    for variable, flag, description in statistics:
        if not re.search(rf"\+\+{variable}\b|\b{variable} \+=", source):
            yield f"{name} does not count {variable}"
        if variable.lower() != flag.replace("-", ""):
            yield f"{name} calls {variable} {flag}"
        if not re.fullmatch(r"[a-z].*[^.]", description):
            yield f"{name}: expected words without a capital and a period, got {description!r}"


def test_statistics_are_found():
    text = """class Lower<string flag> : Pass<flag, "ModuleOp"> {
  let statistics = [Statistic<"lowered", "lowered", "operations that were lowered">];
}
def APass : Lower<"a">;
def BPass : Pass<"b", "ModuleOp"> {
  let statistics = [
    Statistic<"x", "x", "xs">,
    Statistic<"inPlace", "in-place", "ys">
  ];
}
def CPass : Pass<"c", "ModuleOp"> {
  let summary = "nothing";
}
#endif
"""
    assert dict(passes(text)) == {
        "APass": [("lowered", "lowered", "operations that were lowered")],
        "BPass": [("x", "x", "xs"), ("inPlace", "in-place", "ys")],
        "CPass": [],
    }


@pytest.mark.parametrize(
    "statistics, source, complaint",
    [
        ([], "", "APass declares no statistic"),
        ([("moved", "moved", "dots that move")], "++removed;", "APass does not count moved"),
        ([("moved", "dots", "dots that move")], "++moved;", "APass calls moved dots"),
        ([("moved", "moved", "Mmas.")], "moved += 2;", "expected words without a capital and a period"),
    ],
)
def test_faults_are_found(statistics, source, complaint):
    (found,) = complaints("APass", statistics, source)
    assert complaint in found


def test_passes_count_what_they_rewrite():
    sources = {path: path.read_text() for path in (ROOT / "lib").rglob("*.cpp")}
    names, found = set(), []
    for path in sorted((ROOT / "include").rglob("Passes.td")):
        for name, statistics in passes(path.read_text()):
            (source,) = [
                text for text in sources.values() if f"#define GEN_PASS_DEF_{name.upper()}\n" in text
            ]
            names.add(name)
            found += complaints(name, statistics, source)
    assert len(names) > 40 and set(WITHOUT) <= names
    assert not found
