# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with one operation too few or too many must be detected: by a detector, by the float64 reference,
by a crash or by a hang. A survivor must be known to be right (survivors.py). In a backward pass, kernels also
read a bound, a position, an LSE or a delta that is one too large, or use the next head of a group.

CI takes a sample, --full every mutant.
"""

import collections
import json
import os
import re
import subprocess

import pytest
from attnlab import BUILD, Problem
from cases import BY_QUERY, CASES, Case
from survivors import SURVIVORS

FULL = bool(os.environ.get("ATTN_FULL"))
DETECTORS = ("race", "uninitialized", "out of bounds", "misaligned", "synchronization", "deadlock")


@pytest.fixture(scope="module")
def tally():
    """Collect, per case, the number of mutants by outcome."""
    return {}


def written(run, folder):
    """Return a run whose lists of lengths are columns of files, as attn-run takes them."""

    def column(match):
        file = folder / f"{match[1].replace(',', '_')}.csv"
        file.write_text("tokens\n" + match[1].replace(",", "\n") + "\n")
        return f"=@{file}:tokens"

    return re.sub(r"=\[([\d,]+)\]", column, run)


def run_mutants(case, folder, every, *options):
    problem, tree = folder / "problem.mlir", folder / "tree.json"
    problem.write_text(case.text())
    tree.write_text(case.tree_json())
    command = [BUILD / "test-tools" / "attn-mutants", problem, f"--schedule={case.schedule}"]
    command += [f"--every={every}", *options]
    command += [written(run.replace("TREE", str(tree)), folder) for run in case.runs]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def name_of(mutant):
    return f"{mutant['kernel']}: {mutant['mutation']} {mutant['op']} #{mutant['ordinal']}: {mutant['text']}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mutants_are_found(case, tmp_path, tally):
    mutants = run_mutants(case, tmp_path, 1 if FULL else case.every * (2 if case.backward else 1))
    assert len(mutants) > 10
    refused = [mutant["detail"] for mutant in mutants if mutant["outcome"] == "refused"]
    assert not refused
    known, unknown = collections.Counter(), []
    for mutant in mutants:
        if mutant["outcome"] != "survived":
            continue
        reasons = [survivor for survivor in SURVIVORS if survivor.is_this(case, mutant)]
        known.update(reasons)
        if not reasons:
            unknown.append(name_of(mutant))
    ends = collections.Counter(
        "detector" if mutant["outcome"] in DETECTORS else mutant["outcome"] for mutant in mutants
    )
    tally[case.name] = (ends, known)
    assert ends["detector"] > len(mutants) / (
        4 if case.backward else 2
    )  # a shifted number is wrong, and clean
    assert not unknown


def test_launches_in_a_row_wait(tmp_path):
    """With significance, three launches overlap: if one of the last two does not wait, a detector sees it.
    Blocks without scores touch nothing that other blocks write, and wait for the launches that wait for this
    one."""
    problem = Problem(4, 1, 64, 64, store="paged<16>", see="all", significance="max")
    runs = ("batch=2 q_len=1 kv_len=1300..2100 blocks=8", "batch=3 q_len=1 kv_len=9 blocks=1")
    mutants = run_mutants(Case("weighed", problem, "mma", runs), tmp_path, 1)
    waits = [each for each in mutants if each["op"] == "nvvm.griddepcontrol" and "wait" in each["text"]]
    assert [(each["kernel"], each["outcome"]) for each in waits] == [
        ("attention_merge", "race"),
        ("attention_weigh", "race"),
        ("attention_weigh", "survived"),
    ]


@pytest.mark.parametrize("name", ["bf16", "codes"])
def test_warps_meet_before_the_next_segment_is_copied(tmp_path, name):
    """A task's next segment begins in the first stage, which lanes may still be reading if the previous
    segment had an odd number of tiles. Shuffles in between order no memory: a detector sees a warp without
    the sync."""
    codes = {"key": "!attn.quantized<i8, per = 64>", "value": "!attn.quantized<i4, per = 64>"}
    problem = Problem(4, 1, 64, 64, store="paged<16>", see="all", **(codes if name == "codes" else {}))
    tree = ((-1, 104, 0), (0, 60, 0), (1, 70, 1), (-1, 50, 0), (3, 90, 1))
    token_bytes = 64 + 32 + 2 * 4 if name == "codes" else 0
    case = Case(name, problem, "mma", (BY_QUERY,), tree, token_bytes=token_bytes)
    mutants = run_mutants(case, tmp_path, 1, "--op=nvvm.bar.warp.sync")
    assert {each["mutation"] for each in mutants} == {"drop"}
    assert len(mutants) > 1
    assert {each["outcome"] for each in mutants} == {"race"}


def test_summary(tally, capsys):
    """Print the numbers; with --full, check that no reason is given for a mutant that does not survive."""
    with capsys.disabled():
        print()
        for name, (ends, _) in tally.items():
            print(
                f"    {name}: {sum(ends.values())} mutants, {ends['detector']} found by detectors, "
                f"{ends['wrong result']} by their results, {ends['crash']} by crashing, {ends['hang']} by hanging; "
                f"{ends['survived']} survive"
            )
    if FULL and len(tally) == len(CASES):
        known = sum((counts for _, counts in tally.values()), collections.Counter())
        assert [survivor for survivor in SURVIVORS if not known[survivor]] == []
