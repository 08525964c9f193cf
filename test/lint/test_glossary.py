# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/glossary.md has each noun once, the sources use it, pages link to it, and renamed words do not come back."""

import io
import re
import tokenize
from pathlib import Path

import pytest
from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/glossary.md"
SOURCES = ("*.h", "*.cpp", "*.cc", "*.td", "*.def", "*.py")


def nouns(text):
    """Return the first column of the tables of nouns, which precede the words that are not used."""
    used, _ = text.split("## Words that are not used")
    cells = re.findall(r"^\| ([^|]+?) \|", used, flags=re.M)
    return [noun.strip() for cell in cells if cell not in ("noun", "---") for noun in cell.split(",")]


def test_every_noun_has_one_meaning():
    found = nouns(PAGE.read_text())
    assert len(found) > 50
    assert sorted(found) == sorted(set(found))


def test_every_noun_is_used():
    paths = [ROOT / name for name in tracked(*SOURCES) if "lint" not in name]
    sources = "\n".join(path.read_text() for path in paths).lower()
    words = [noun.lower().removesuffix("s") for noun in nouns(PAGE.read_text())]
    unused = [word for word in words if not re.search(word.replace(" ", "[ _]?"), sources)]  # blockTable
    assert not unused, unused


def test_pages_lead_to_the_glossary():
    for page in ("README.md", "docs/architecture.md", "docs/rationale/overview.md"):
        assert "glossary.md" in (ROOT / page).read_text(), page


# Python's former names of views and bindings.
RENAMED = {"look", "looks", "Look", "Seen", "Slot"}


# Words that the glossary replaced, where the dialects, the passes, the planner and the API would say them.
REPLACED = (
    r"\btile\.(?:dot|start_dot|finish_dots|fetch|send|finish_sends|await|meet|pass_by|fill|take)\b",
    r"\battn\.(?:codes|take_rows|put_rows)\b",
    r"\b(?:Start)?DotOp\b|FinishDots|\b(?:Fetch|Send|FinishSends|Await|Meet|PassBy|Fill|Take)Op\b",
    r"TakeTurns|take-turns|overlap-dots|OverlapDots|[aA]breast|bindSlot|PlanUnit|UnitBuilder",
    r"#attn\.form<dots|[,<] held = (?:rows|tokens|keys|values)\b",
)


def test_replaced_words_do_not_come_back():
    pattern = re.compile("|".join(REPLACED))
    paths = [ROOT / name for name in tracked(*SOURCES, "*.mlir", "*.test", "*.md") if "lint" not in name]
    kept = {"glossary.md", "CHANGELOG.md"}
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if path.name not in kept and "results" not in path.parts
        for match in pattern.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["tile.dot %a", "FillOp::create", "heads abreast", "attn.codes<i8>", ", held = rows"]
)
def test_replaced_words_are_found(text):
    assert re.search("|".join(REPLACED), text)


# Words of their own for comments; identifiers may be called so.
OF_COMMENTS = re.compile(r"\b(?:abreast|codes|dealt|fetch|fetches|fetched|turned|pass(?:es)? by)\b")
COMMENT = re.compile(r"^\s*(?://+|#)(?! ?(?:CHECK|[A-Z]+(?:-[A-Z]+)?:)) (.*)", flags=re.M)


def test_comments_have_the_words_of_the_glossary():
    rooms = ("lib", "include", "runtime", "python", "tools", "examples", "test")
    found = [
        f"{name}: {comment[1]}"
        for name in tracked(*rooms)
        if name.endswith((".h", ".cpp", ".cc", ".td", ".def", ".mlir", ".py")) and "lint" not in name
        for comment in COMMENT.finditer((ROOT / name).read_text())
        if OF_COMMENTS.search(re.sub(r"`[^`]*`", "", comment[1]))
    ]
    assert not found, "\n".join(found)


def names(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_renamed_words_do_not_come_back():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "python/attn").rglob("*.py"))
        for name in names(path.read_text()) & RENAMED
    }
    assert not found, found


def test_names_are_found():
    assert names('x = look(y)  # Look\n"Seen"\n') & RENAMED == {"look"}
