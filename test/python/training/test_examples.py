# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of examples/10_training run and print the output in the lesson."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

LESSON = Path(__file__).resolve().parents[3] / "examples" / "10_training"
PROGRAMS = sorted(
    path.name for path in LESSON.glob("*.py") if path.name != "tiny.py"
)  # all programs import them
MOST_LINES = 30  # of code


def shown():
    """Return the output that the lesson shows for each program."""
    pattern = r"^```\npython examples/10_training/(\w+\.py)\n```\n+```text\n(.*?)^```"
    return dict(re.findall(pattern, (LESSON / "tutorial.md").read_text(), flags=re.M | re.S))


def test_every_program_is_shown():
    assert sorted(shown()) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short(name):
    tree = ast.parse((LESSON / name).read_text())
    tree.body = tree.body[1:]  # without the docstring
    lines = {
        line
        for statement in ast.walk(tree)
        if isinstance(statement, ast.stmt) and not isinstance(statement, ast.Import | ast.ImportFrom)
        for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    text = (LESSON / name).read_text().splitlines()
    assert sum(bool(text[line - 1].strip()) for line in lines) <= MOST_LINES


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    """TRL prints a line for each step before the output in the lesson."""
    if "trl" in name:
        pytest.importorskip("trl", reason="TRL is not installed")
    result = subprocess.run(
        [sys.executable, str(LESSON / name)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        env=dict(os.environ, HF_HUB_OFFLINE="1"),
    )
    assert result.returncode == 0, result.stderr
    found = result.stdout.splitlines(keepends=True)[-1:] if "trl" in name else [result.stdout]
    assert found == [shown()[name]]
