# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lit tests of docs/writing-a-lit-test.md pass, fail as the page says, and the commands of CONTRIBUTING.md name what
there is."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from attnlab import BUILD, ROOT, program
from shown import blocks

LIT_PAGE = (ROOT / "docs/writing-a-lit-test.md").read_text()
FILES = dict(re.findall(r"^`(test/\S+\.mlir)`:\n```mlir\n(.*?)^```$", LIT_PAGE, flags=re.M | re.S))
WINDOW, HEADS = "test/Dialect/Attn/my-window.mlir", "test/Dialect/Attn/my-heads-errors.mlir"


@pytest.fixture
def tree(tmp_path):
    """A folder with the files that lit reads of the repository."""
    (tmp_path / "test").mkdir()
    shutil.copy(ROOT / "test/lit.cfg.py", tmp_path / "test")
    (tmp_path / "build").symlink_to(BUILD)
    return tmp_path


def lit(tree, name, text):
    """Run the page's command on a test with this name and text."""
    commands = re.findall(r"^\.venv/bin/python (\S+/lit .*)$", LIT_PAGE, flags=re.M)
    [arguments] = [shlex.split(command) for command in commands if command.endswith(" " + name)]
    path = tree / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return subprocess.run([sys.executable, *arguments], cwd=tree, capture_output=True, text=True, timeout=120)


def test_the_page_has_two_tests():
    assert list(FILES) == [WINDOW, HEADS]


@pytest.mark.parametrize("name", FILES)
def test_the_lit_tests_pass(tree, name):
    done = lit(tree, name, FILES[name])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()[-2:]]
    said = re.findall(r"The last lines are `([^`]*)` and `([^`]*)`", LIT_PAGE)
    assert [tuple(lines)] == said


def test_the_pass_prints_what_the_page_shows(tmp_path):
    (tmp_path / "a.mlir").write_text(FILES[WINDOW])
    command = [program("attn-opt"), "a.mlir", "--attn-normalize"]
    printed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    [shown] = re.findall(r"^```mlir\n(%output = .*?) \.\.\.\n```$", LIT_PAGE, flags=re.M)
    assert shown in printed


def test_the_lit_test_fails_as_the_page_says(tree):
    old, new = re.search(r"Replace `([^`]*)` in the line `CHECK` by `([^`]*)`", LIT_PAGE).groups()
    text = FILES[WINDOW]
    assert text.count(old) == 1
    done = lit(tree, WINDOW, text.replace(old, new))
    assert done.returncode == 1 and "expected string not found" in done.stdout
    assert "possible intended match here" in done.stdout


def test_a_wrong_error_fails(tree):
    text = FILES[HEADS]
    done = lit(tree, HEADS, text.replace("nearest legal: 3 or 6", "nearest legal: 2"))
    assert done.returncode == 1, done.stdout


def test_commands_name_what_there_is():
    commands = [text for language, text, _ in blocks(ROOT / "CONTRIBUTING.md") if not language]
    words = {word for text in commands for word in text.split() if word.startswith(("test/", "build/", "./"))}
    assert words > {"./dev", "test/lint"}
    assert [word for word in words if not (ROOT / word).exists() and not (BUILD.parent / word).exists()] == []
