# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The excerpts of docs/architecture.md are the outputs of its commands, its passes are the pipeline's, and
its files exist.

If an excerpt differs, the test prints the closest text of the output.
`python test/integration/test_architecture.py` also prints it, and updates the numbers of values and the
indentation in the page; `%_` in the page is any value.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from attnlab import ROOT, program
from excerpts import is_printed, renewed, runs_of

PAGE = ROOT / "docs/architecture.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LONGEST = 40


def steps(text):
    """Yield (command, excerpt, the excerpt's offset, its line) of every excerpt."""
    command = None
    for block in BLOCK.finditer(text):
        if not block[1]:
            command = block[2].strip()
        else:
            yield command, block[2], block.start(2), text.count("\n", 0, block.start(2)) + 1


STEPS = list(steps(PAGE.read_text()))


def run(command):
    """Return all output of a command; its files go to a folder of its own."""
    name, *arguments = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        result = subprocess.run(
            [program(name), *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
    assert result.returncode == 0, f"{command}\n{result.stderr}"
    return result.stdout + result.stderr


@functools.cache
def outputs():
    commands = list(dict.fromkeys(command for command, *_ in STEPS))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(commands, pool.map(run, commands), strict=True))


def test_there_are_some():
    assert len(STEPS) > 20 and all(command.startswith("attn-opt ") for command, *_ in STEPS)


PRINTED = (
    "func.func @a {\n  %0 = x\n  %1 = y %0, %arg2 : long type\n  z %1 {\n  }\nfunc.func @b {\n  %0 = w\n}\n"
)


@pytest.mark.parametrize(
    "excerpt,there",
    [
        ("%0 = x\n%1 = y %0, %arg2 : long type", True),
        ("%4 = x\n  %7 = y %4,  %arg0 : ...", True),
        ("func.func @a {\n...\nz %1 {", True),
        ("%0 = x\nz %1 {", False),  # not the next line
        ("%0 = x\n%1 = y %1, %arg2 : ...", False),  # another value
        ("%0 = x\n%1 = y %0, %2 : ...", False),  # no argument
        ("z %1 {\n...\n%0 = x", False),  # another order
        ("func.func @a {\n...\n%0 = w", False),  # another kernel's
        ("%0 = y %1, %arg2 : type", False),  # an omission without a mark
    ],
)
def test_comparison(excerpt, there):
    assert is_printed(excerpt, PRINTED) == there


def test_renewed():
    assert renewed("%5 = y %4, %arg0 : ...\n...\n}", PRINTED) == "%1 = y %0, %arg2 : ...\n...\n}\n"
    assert "%1 = y %0, %arg2 : long type" in renewed("%1 = y %0 : long type", PRINTED)


@pytest.mark.parametrize(
    "command,excerpt,line",
    [(command, excerpt, line) for command, excerpt, _, line in STEPS],
    ids=[f"{command.split('=')[-1].split()[0]}-{line}" for command, _, _, line in STEPS],
)
def test_excerpt(command, excerpt, line):
    output = outputs()[command]
    assert runs_of(excerpt) and len(excerpt.splitlines()) <= LONGEST
    assert is_printed(excerpt, output), (
        f"{PAGE.name}:{line}: `{command}` prints something else. Closest is\n{renewed(excerpt, output)}"
    )


def test_passes_are_the_pipelines():
    printed = run(
        "attn-opt examples/01_paged_decode/decode.mlir --attn-pipeline --mlir-print-ir-after-all -o all"
    )
    ran = re.findall(r"^// -----// IR Dump After \w+ \(([\w-]+)\)", printed, flags=re.M)
    listed = re.findall(r"^\| \w* ?\| `([\w-]+)` \|", PAGE.read_text(), flags=re.M)
    assert listed == ran


MOST_TILE_LINES = 700  # in the decode example's three kernels


def test_tile_text_repeats_nothing():
    printed, _ = run("attn-opt examples/01_paged_decode/decode.mlir --emit=tile").split("\n}\n", 1)
    assert len(printed.splitlines()) <= MOST_TILE_LINES
    kernels = re.split(r"^ *func\.func ", printed, flags=re.M)[1:]
    assert len(kernels) == 3
    for kernel in kernels:
        constants = re.findall(r"= (arith\.constant .*)", kernel)
        assert constants and len(constants) == len(set(constants))
        for block in re.split(r"[{}]", kernel):
            pure = re.findall(r"= ((?:arith|math)\..*|tile\.(?:splat|lane_id|warp_id).*)", block)
            assert len(pure) == len(set(pure)), block


def test_files_exist():
    named = re.findall(r"`((?:lib|include|runtime|test|examples|docs)/[\w./-]+)`", PAGE.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    assert len(named) > 30 and not missing, missing


def write():
    text, written, at = PAGE.read_text(), "", 0
    for command, excerpt, start, line in STEPS:
        new = renewed(excerpt, outputs()[command])
        if not is_printed(new, outputs()[command]):
            print(f"{PAGE.name}:{line}: `{command}` prints something else. Closest is\n{new}")
            new = excerpt
        written += text[at:start] + new
        at = start + len(excerpt)
    PAGE.write_text(written + text[at:])


if __name__ == "__main__":
    write()
