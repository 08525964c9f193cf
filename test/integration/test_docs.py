"""The commands that README, docs and examples tell people to run do run, from a copy of the examples."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from attnlab import BUILD, ROOT

PAGES = ["README.md", "docs/getting-started.md", "examples/02_prefill/hopper.md"]


PROGRAMS = ("attn-opt ", "attn-run ", "attn-plan ", "attn-workload ")


def commands():
    """(folder to run in, commands of one block), each once."""
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


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
