# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The house rules that a program can check."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
FULL = bool(os.environ.get("ATTN_FULL"))


def run(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_cpp_is_formatted():
    result = run(["clang-format-22", "--dry-run", "-Werror", *tracked("*.cpp", "*.cc", "*.h")])
    assert result.returncode == 0, f"run ./dev format\n{result.stderr[-4000:]}"


def test_python_is_clean():
    for action in (["check"], ["format", "--check"]):
        result = run([str(Path(sys.executable).parent / "ruff"), *action, "."])
        assert result.returncode == 0, f"run ./dev format\n{result.stdout[-4000:]}"


def test_shell_is_clean():
    result = run(["shellcheck", "dev", ".ci/run"])
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(not FULL, reason="clang-tidy takes minutes: it runs with --full")
def test_clang_tidy():
    rooms = ("runtime/src/", "lib/", "tools/")
    database = json.loads((BUILD / "compile_commands.json").read_text())
    names = sorted({os.path.relpath(entry["file"], ROOT) for entry in database})
    names = [name for name in names if name.startswith(rooms) and not name.endswith(".cxx")]
    assert names, "compile_commands.json names no source of the project"

    def tidy(name):
        result = run(["clang-tidy-22", "--quiet", "-p", str(BUILD), name])
        return "" if result.returncode == 0 else f"{name}:\n{result.stdout}{result.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(tidy, names) if text]
    assert not complaints, "\n".join(complaints)[-8000:]


def test_nothing_unfinished():
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    found = []
    for name in tracked("*.cpp", "*.h", "*.td", "*.py", "*.mlir", "*.md", "dev", "CMakeLists.txt"):
        for number, line in enumerate((ROOT / name).read_text(errors="replace").split("\n"), 1):
            if mark.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


MOST_LINES = 80  # The most lines of a function in the middle of the compiler.


def functions(text):
    """Yield the functions of formatted C++, at the top level or in a class: first line and number of lines."""
    start, indent = None, ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if start is not None and line == indent + "}":
            yield lines[start].strip(), number - start + 1
            start = None
        # A signature of several lines has its brace on the last, which is indented further.
        elif re.match(r"( {2})?[A-Za-z].*\(", line) and not line.endswith(";"):
            start, indent = number, re.match(r" *", line)[0]


def test_functions_are_short():
    names = tracked("lib/Conversion/**.cpp", "lib/Dialect/*/Transforms/*.cpp")
    assert len(names) > 40
    found = [(name, *each) for name in names for each in functions((ROOT / name).read_text())]
    assert len(found) > 300
    long = [f"{name}: {lines} lines of {title}" for name, title, lines in found if lines > MOST_LINES]
    assert not long, f"at most {MOST_LINES}: a pass that does more does it in steps\n" + "\n".join(long)


# The files that decide about the page size of a store.
PAGE_SIZE = {"runtime/include/attn_rt/tensor/Store.h", "runtime/src/tensor/Store.cpp"}
# The files that read and print it as text of types and manifests, or pass it from one description of a store
# to the next.
PAGE_SIZE_PASSES = {
    "lib/Conversion/TileToMachine/CopyPatterns.cpp",
    "lib/Dialect/Attn/IR/AttnTypes.cpp",
    "lib/Dialect/Attn/IR/Stores.cpp",
    "lib/Dialect/Tile/IR/TileGlobalOps.cpp",
    "lib/Dialect/Tile/IR/TileSharedOps.cpp",
    "lib/Target/Manifest.cpp",
    "lib/Tools/run/inputs/Problem.cpp",
    "runtime/src/artifact/CheckManifest.cpp",
    "runtime/src/artifact/Manifest.cpp",
    "runtime/src/artifact/ReadManifest.cpp",
    "runtime/src/artifact/WriteManifest.cpp",
}
# In these files a `page` is one of a pool's pages, unless an argument or a store has it.
POOLS = (
    "lib/Conversion/AttnToTile/Plan/",
    "runtime/src/cache/",
    "runtime/src/capi/",
    "runtime/src/plan/DevicePlan.cpp",
    "python/src/",
)


def reads_page_size(name, text):
    """Return the lines of a C++ file that read how many tokens a store's pages hold."""
    owner = r"\b(argument\w*|store\w*|kv)" if name.startswith(POOLS) else r"\)?"
    reader = re.compile(rf"getPage\(|{owner}(\.|->)page\b(?!\()")
    lines = enumerate(text.split("\n"), 1)
    return [f"{name}:{n}: {line.strip()}" for n, line in lines if reader.search(re.sub("//.*", "", line))]


def test_page_size_is_asked_of_the_store():
    names = tracked("lib/*.cpp", "lib/*.h", "runtime/*.cpp", "runtime/*.h", "runtime/*.cc", "python/src/*")
    found = {name: reads_page_size(name, (ROOT / name).read_text()) for name in names}
    assert {name for name in PAGE_SIZE_PASSES if not found[name]} == set(), "no longer there: take them off"
    lines = [line for name in found if name not in PAGE_SIZE | PAGE_SIZE_PASSES for line in found[name]]
    assert not lines, "a Store knows what follows from its page size: ask it\n" + "\n".join(lines)


def test_readers_of_the_page_size_are_found():
    assert reads_page_size("runtime/src/plan/New.cpp", "x = argument.page / 2;\ny = m.argumentOf(o).page;")[
        1:
    ]
    assert reads_page_size("lib/Conversion/New.cpp", "if (type.getPage() > lines)")
    assert reads_page_size("runtime/src/cache/New.cpp", "at = place.page;\nif (store->page == 1)")[
        0
    ].endswith("2: if (store->page == 1)")
    assert not reads_page_size("runtime/src/plan/New.cpp", "n = operand.page(options); // argument.page")
