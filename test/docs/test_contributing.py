# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lit test of CONTRIBUTING.md passes, fails as the page says, and its commands name what there is."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from attnlab import BUILD, ROOT
from shown import blocks

PAGE = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture
def tree(tmp_path):
    """What lit reads of the repository."""
    (tmp_path / "test").mkdir()
    shutil.copy(ROOT / "test/lit.cfg.py", tmp_path / "test")
    (tmp_path / "build").symlink_to(BUILD)
    return tmp_path


def lit(tree, text):
    """What the page's command prints where the test has this text."""
    [command] = re.findall(r"^ *\.venv/bin/python (\S+/lit .*)$", PAGE, flags=re.M)
    *_, name = arguments = shlex.split(command)
    path = tree / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return subprocess.run([sys.executable, *arguments], cwd=tree, capture_output=True, text=True, timeout=120)


def written():
    [text] = re.findall(r"^```mlir\n(.*?)^```$", PAGE, flags=re.M | re.S)
    return text


def test_the_lit_test_passes(tree):
    done = lit(tree, written())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()[-2:]]
    said = re.findall(r"The last lines are `([^`]*)` and `([^`]*)`", PAGE)
    assert [tuple(lines)] == said


def test_the_lit_test_fails_as_the_page_says(tree):
    old, new = re.search(r"replace `([^`]*)` in the line `CHECK` by `([^`]*)`", PAGE).groups()
    text = written()
    assert text.count(old) == 1
    done = lit(tree, text.replace(old, new))
    assert done.returncode == 1 and "expected string not found" in done.stdout
    assert "possible intended match" in done.stdout


def test_commands_name_what_there_is():
    commands = [text for language, text, _ in blocks(ROOT / "CONTRIBUTING.md") if not language]
    words = {word for text in commands for word in text.split() if word.startswith(("test/", "build/", "./"))}
    assert words > {"./dev", "test/lint"}
    assert [word for word in words if not (ROOT / word).exists() and not (BUILD.parent / word).exists()] == []
