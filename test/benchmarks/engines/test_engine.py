# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench engine` as far as no GPU is needed: the recorded steps, and two of them on the host device."""

import json
import subprocess
import sys

import numpy
import pytest
from attnlab import ROOT

pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "benchmarks"))

import engine  # noqa: E402


def test_recorded_steps_are_those_of_an_engine():
    trace = engine.Trace(engine.TRACE)
    assert len(trace.steps) == 1000 and trace.vllm == "0.32.0"
    assert max(step.rows.sum() for step in trace.steps) == 512 == max(engine.SIZES)
    shared = 0
    for step in trace.steps:
        assert (step.rows >= 1).all() and (step.lengths >= step.rows).all()
        assert (step.rows[: step.decoding] == 1).all() and (step.rows[step.decoding :] > 1).all()
        pages = [row[: -(-n // trace.page)] for row, n in zip(step.table, step.lengths, strict=True)]
        assert all(each.min() >= 1 and each.max() < trace.pages for each in pages)
        last = [each[-1] for each in pages]  # Only one sequence writes to a page.
        assert len(set(last)) == len(last)
        shared += len(set(each[0] for each in pages)) < len(pages)
    assert shared > 500  # steps in which requests share a prefix
    assert any((step.rows > 1).any() and step.decoding for step in trace.steps)


def test_steps_are_compared_without_a_gpu(tmp_path):
    file = tmp_path / "found.json"
    command = [sys.executable, ROOT / "benchmarks/engine.py", "--steps", "2", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert row["same_bits"] == row["steps"] == 2 and 0 < row["largest"] < 2e-3 and row["mean"] < 1e-4
    assert "nothing is timed" in done.stdout


def test_a_block_table_is_of_the_step():
    """Comparison must see a table of another step."""
    trace = engine.Trace(engine.TRACE)
    sides = engine.Sides(trace, (4, 2), 32, "cpu")
    first, later = sorted(trace.steps, key=lambda step: step.lengths.sum())[:2]
    (right,) = engine.compare(sides, [first])
    wrong = engine.Step(first.rows, first.lengths, numpy.roll(first.table, 1, axis=1))
    tables = sides.tables
    sides.tables = lambda step: tables(wrong)
    (found,) = engine.compare(sides, [first])
    assert right["largest"] < 2e-3 < 0.05 < found["largest"] and later is not None


def test_sums_are_of_decoding_and_of_prompts():
    def step(decoding, ours, theirs):
        ms = {"device": ours, "flashinfer": theirs}
        return dict(sequences=2, decoding=decoding, ms=ms, plan_us=dict(ms), planning_ms=0.5)

    every, alone, prompts = engine.summaries([step(2, 1.0, 2.0), step(2, 2.0, 2.0), step(1, 3.0, 4.0)])
    assert [each["of"] for each in (every, alone, prompts)] == ["all", "decoding", "prompts"]
    assert [each["steps"] for each in (every, alone, prompts)] == [3, 2, 1]
    assert [each["of_flashinfer"]["device"] for each in (every, alone, prompts)] == [0.75, 0.75, 0.75]
    assert every["plan_us"]["device"] == 2.0 and prompts["planning_ms"] == 0.5
    assert [each["of"] for each in engine.summaries([step(2, 1.0, 2.0)])] == ["all", "decoding"]
    assert engine.line(alone).startswith("decoding, 2 steps: device 3.000 ms")
