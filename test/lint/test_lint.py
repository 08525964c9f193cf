"""The house rules that a program can check."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ATTN_BUILD", ROOT / "build"))
FULL = bool(os.environ.get("ATTN_FULL"))


def files(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]


def run(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_cpp_is_formatted():
    result = run(["clang-format-22", "--dry-run", "-Werror", *files("*.cpp", "*.cc", "*.h")])
    assert result.returncode == 0, f"run ./dev format\n{result.stderr[-4000:]}"


def test_python_is_clean():
    for action in (["check"], ["format", "--check"]):
        result = run([str(Path(sys.executable).parent / "ruff"), *action, "."])
        assert result.returncode == 0, f"run ./dev format\n{result.stdout[-4000:]}"


def test_shell_is_clean():
    result = run(["shellcheck", "dev", ".ci/run"])
    assert result.returncode == 0, result.stdout


def test_clang_tidy():
    """The runtime in every run: no LLVM headers, so it is quick. With --full, the compiler too."""
    rooms = ("runtime/src/", "lib/", "tools/") if FULL else ("runtime/src/",)
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
    for name in files("*.cpp", "*.h", "*.td", "*.py", "*.mlir", "*.md", "dev", "CMakeLists.txt"):
        for number, line in enumerate((ROOT / name).read_text(errors="replace").split("\n"), 1):
            if mark.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


MOST_LINES = 80  # of a function in the middle of the compiler


def functions(text):
    """The functions of formatted C++, at the top level or in a class: first line and number of lines."""
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
    names = files("lib/Conversion/**.cpp", "lib/Dialect/*/Transforms/*.cpp")
    assert len(names) > 40
    found = [(name, *each) for name in names for each in functions((ROOT / name).read_text())]
    assert len(found) > 300
    long = [f"{name}: {lines} lines of {title}" for name, title, lines in found if lines > MOST_LINES]
    assert not long, f"at most {MOST_LINES}: a pass that does more does it in steps\n" + "\n".join(long)
