# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands in README, docs and examples run, from a copy of the examples, and print the output that the
pages show. test_guides.py and test_pages.py compare Python's output, test_architecture.py that of
architecture.md; a block that no test compares fails here."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from attnlab import BUILD, ROOT, program
from shown import blocks, is_sketched, masked, one_blank, operations

PAGES = ["README.md", "docs/getting-started.md", "docs/embedding.md", "examples/02_prefill/hopper.md"]


PROGRAMS = ("attn-opt ", "attn-run ", "attn-plan ", "attn-workload ")


def commands():
    """Return (folder to run in, commands of one block), each once."""
    found = {}
    for page in PAGES:
        for language, block in re.findall(
            r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), flags=re.M | re.S
        ):
            if language:
                continue
            lines = [line for line in block.splitlines() if line.startswith(PROGRAMS)]
            if lines:
                found[".", "\n".join(lines)] = page
    for example in sorted((ROOT / "examples").glob("*/*.mlir")):
        for line in re.findall(r"^// +((?:attn-opt|attn-run) .*)$", example.read_text(), flags=re.M):
            found[str(example.parent.relative_to(ROOT)), line] = example.name
    return list(found)


def test_there_are_some():
    assert len(commands()) > 6


@pytest.mark.parametrize("folder,lines", commands(), ids=lambda value: value)
def test_command(folder, lines, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = os.pathsep.join([str(BUILD / "bin"), os.environ["PATH"]])
    for command in lines.splitlines():
        result = subprocess.run(
            shlex.split(command),
            cwd=tmp_path / folder,
            capture_output=True,
            text=True,
            env=dict(os.environ, PATH=path),
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert result.returncode == 0, result.stderr


def printed(*command):
    result = subprocess.run(
        [program(command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown(page, begin):
    """Return the one block of a page with this beginning."""
    [text] = [text for _, text, _ in blocks(ROOT / page) if text.startswith(begin)]
    return text


def test_the_demo_ends_as_readme_says():
    demo = (ROOT / "dev").read_text()
    [problem] = re.findall(r"^  local problem=(\S+) ", demo, flags=re.M)
    [arguments] = re.findall(r'^  build/bin/attn-run "\$problem" (.*--check) \|', demo, flags=re.M)
    report = printed("attn-run", problem, *arguments.split(), "--device=host")
    assert masked(report) == masked(shown("README.md", "decode: 8 sequences"))


HOPPER = "examples/02_prefill/hopper.md"


@pytest.fixture(scope="module")
def hopper():
    [command] = [
        text for _, text, _ in blocks(ROOT / HOPPER) if text.startswith("attn-opt") and "--emit=tile" in text
    ]
    return printed(*shlex.split(command))


def test_the_lesson_shows_a_tensor_map_of_its_kernel(hopper):
    assert one_blank(shown(HOPPER, "#tile.tensor_map")) in one_blank(hopper)


@pytest.mark.parametrize(
    "begin,count", [("tile.set_registers", 2), ("S = tile.start_mma", 10), ("%box = tile.overlay", 6)]
)
def test_the_lesson_sketches_its_kernel(hopper, begin, count):
    sketch = shown(HOPPER, begin)
    assert len(operations(sketch)) == count
    assert is_sketched(sketch, hopper)
    assert not is_sketched("\n".join(sketch.splitlines()[::-1]), hopper)


COMMANDS = (
    *PROGRAMS,
    "./dev ",
    "cmake ",
    ".venv/bin/python ",
    "python ",
    "ninja ",
    "pip install ",
    "vllm ",
    "cc ",
    "build/test-bin/",
    ". .venv/",
)
COMPARED = {
    "README.md": ("decode: 8 sequences",),
    "docs/getting-started.md": ("attn: SIG",),  # test_faults.py
    HOPPER: ("#tile.tensor_map", "tile.set_registers", "S = tile.start_mma", "%box = tile.overlay"),
    "examples/10_training/tutorial.md": ("learns: ", "micro-batches: ", "<attn.training"),  # test_examples.py
}
# Output about the language in the pages that add a part; the test of each page has it in full.
ADDED = {
    "docs/adding-a-visibility.md": ("attn.attend ",),
    "docs/adding-a-format.md": ("!attn.kv<",),
    "docs/adding-a-format-of-blocks.md": ("!attn.kv<",),
    "docs/adding-a-chip.md": ("attn-opt ",),
}


def test_every_output_is_compared():
    pages = [
        *(path.name for path in ROOT.glob("*.md")),
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    ]
    pages += [str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*/*.md")]
    left = []
    for page in pages:
        if page == "docs/architecture.md":
            continue
        text = (ROOT / page).read_text()
        of_python = set(re.findall(r"^```python\n.*?^```\n+```text\n(.*?)^```", text, flags=re.M | re.S))
        known = COMMANDS + COMPARED.get(page, ()) + ADDED.get(page, ())
        for language, block, line in blocks(ROOT / page):
            if language in ("", "text") and block not in of_python and not block.startswith(known):
                left.append(f"{page}:{line}: {block}")
    assert not left, "\n".join(left)


def test_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "`./dev test`" in text and "`./dev demo`" in text
