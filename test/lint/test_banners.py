# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every source file names its licence; the first line of every C++, C and TableGen file says what it is."""

import re
from pathlib import Path

import pytest
from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]
LICENCE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
BANNER = re.compile(r"(?://|/\*)===- (\S+) - \S.*=== ?\*?(?:/|$)|/\*===- (\S+) - \S.*===\*$")
WITH_BANNER = ("*.cpp", "*.cc", "*.h", "*.td", "*.def", "*.c")
OTHERS = ("*.py", "*.pyi", "*.cmake", "CMakeLists.txt", "*/CMakeLists.txt", "dev", ".ci/run")


def sources(*patterns):
    return [name for name in tracked(*patterns) if (ROOT / name).read_text().strip()]


def has_licence(text):
    return any(LICENCE in line for line in text.split("\n")[:3])


def has_banner(name, text):
    found = BANNER.match(text.split("\n", 1)[0])
    return found is not None and (found[1] or found[2]) == Path(name).name


def test_every_file_says_its_licence():
    names = sources(*WITH_BANNER, *OTHERS)
    assert len(names) > 600
    without = [name for name in names if not has_licence((ROOT / name).read_text())]
    assert not without, "\n".join(without)


def test_every_file_says_what_it_is():
    names = sources(*WITH_BANNER)
    assert len(names) > 400
    without = [name for name in names if not has_banner(name, (ROOT / name).read_text())]
    assert not without, "\n".join(without)


@pytest.mark.parametrize(
    "line,right",
    [
        ("//===- New.h - What is new -------------------------------------*- C++ -*-===//", True),
        ("//===- New.h - What is new ------------------------------------------------===//", True),
        ("/*===- New.h - What is new ------------------------------------*- C -*-===*", True),
        ("/*===- New.h - What is new ------------------------------------*- C -*-===*/", True),
        ("//===- Old.h - What is new ------------------------------------------------===//", False),
        ("//===- New.h ------------------------------------------------------------===//", False),
        ("// What is new", False),
        ('#include "New.h"', False),
    ],
)
def test_banners_are_told_from_comments(line, right):
    assert has_banner("lib/New.h", line + "\n\n") == right
    assert not has_licence(line + "\n\n\n// " + LICENCE)
    assert has_licence(line + "\n// " + LICENCE)
