# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comments, docstrings, descriptions of operations and pages are sentences: none begins with a word of BEGINNINGS, after
which the subject would be missing or late. `python test/lint/test_sentences.py PATH...` lists what breaks the rule.

The first comment of a file is an essay, and free."""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from tracked import tracked

ROOT = Path(__file__).resolve().parents[2]
BEGINNINGS = ("Of", "What", "Where", "That", "The same", "As", "Whose", "Behind")
FRAGMENT = re.compile(rf"(?:{'|'.join(BEGINNINGS)})\b(?!-)")
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z])")

SOURCES = ("*.h", "*.cpp", "*.cc", "*.c", "*.td", "*.def", "*.mlir")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "examples/*.md", "benchmarks/*.md")
# Dated results keep the words of their time.
FREE = ("benchmarks/results/", "test/docs/", "CHANGELOG.md")


def fragments_in(text):
    """The sentences of a paragraph that begin with one of BEGINNINGS. Questions may."""
    sentences = SENTENCE.split(" ".join(text.split()))
    return [each for each in sentences if FRAGMENT.match(each) and not each.endswith("?")]


def blocks_of_lines(text, mark):
    """(line, text) of each comment of whole lines, and of each comment behind code."""
    block, begin = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(rf"\s*{mark}(.*)", line)
        if found:
            if not block:
                begin = number
            block.append(found[1])
            continue
        if block:
            yield begin, block
            block = []
        behind = re.search(rf'^[^"\']*\S\s+{mark} ?(.*)', line)
        if behind:
            yield number, [behind[1]]
    if block:
        yield begin, block


def paragraphs(block):
    """A block's paragraphs; lists and code within it stand alone."""
    parts = [[]]
    for line in block:
        bare = line.strip(" !<*/=-")
        if not bare or re.match(r"\s*(?:[*-]|\d+\.|\||\\|@)\s", line) or re.search(r"={3,}", line):
            parts.append([])
        if bare and not re.search(r"={3,}", line):
            parts[-1].append(bare)
    return [" ".join(part) for part in parts if part]


def of_source(text, mark):
    """(line, sentence) of C++, TableGen and MLIR. The first comment is an essay, as is a comment in a banner."""
    lines = text.split("\n")
    essay = 0
    if lines and "===" in lines[0]:
        while essay < len(lines) and re.match(rf"\s*{mark}", lines[essay]):
            essay += 1
    for begin, block in blocks_of_lines(text, mark):
        if begin > essay:
            for part in paragraphs(block):
                yield from ((begin, each) for each in fragments_in(part))


def of_tablegen(text):
    """(line, sentence) of descriptions and summaries."""
    for found in re.finditer(r"description = \[\{(.*?)\}\]", text, flags=re.S):
        line = text[: found.start()].count("\n") + 1
        body = re.sub(r"```.*?```", "\n\n", found[1], flags=re.S)
        for part in paragraphs(body.split("\n")):
            yield from ((line, each) for each in fragments_in(part))


def of_python(text):
    """(line, sentence) of comments and docstrings, the module's but for its first line is an essay."""
    comments = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    block, last = [], None
    for token in [*comments, None]:
        if block and (token is None or token.start[0] != last + 1):
            for part in paragraphs([each.string.lstrip("#") for each in block]):
                yield from ((block[0].start[0], each) for each in fragments_in(part))
            block = []
        if token:
            block.append(token)
            last = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            for part in paragraphs((ast.get_docstring(node) or "").split("\n")):
                yield from ((node.lineno, each) for each in fragments_in(part))


def of_page(text):
    """(line, sentence) of paragraphs, items and cells of Markdown, outside of code and headings."""
    begin, part, code = 0, [], False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.lstrip().startswith("```"):
            code = not code
        alone = not line.strip() or code or line.lstrip().startswith(("```", "#", "|"))
        item = re.match(r"\s*(?:[*-]|\d+\.) ", line)
        if part and (alone or item):
            yield from ((begin, each) for each in fragments_in(" ".join(part)))
            part = []
        if not alone:
            begin = begin if part else number
            part.append(line[item.end() :] if item else line.strip("> "))


def fragments(name, text):
    if name.endswith(".md"):
        return list(of_page(text))
    if name.endswith((".py", ".pyi")):
        return list(of_python(text))
    found = list(of_source(text, "//"))
    return found + list(of_tablegen(text)) if name.endswith(".td") else found


def names(*under):
    found = tracked(*under) if under else tracked(*SOURCES, "*.py", *PAGES)
    kinds = (".h", ".cpp", ".cc", ".c", ".td", ".def", ".mlir", ".py", ".md")
    return [name for name in found if name.endswith(kinds) and not name.startswith(FREE)]


def test_sentences_begin_with_their_subject():
    found = [
        f"{name}:{line}: {sentence[:80]}"
        for name in names()
        for line, sentence in fragments(name, (ROOT / name).read_text())
    ]
    assert not found, f"{len(found)} fragments\n" + "\n".join(found[:40])


@pytest.mark.parametrize(
    "name,text,count",
    [
        ("a.h", "//===- a.h - Free ---===//\n// Of an essay.\n\n/// Of a page.\nint x;", 1),
        ("a.cpp", "int x; // Of the last\n// A page. Behind it is\n// nothing. What is read?\n", 2),
        ("a.td", "let description = [{\n  Of a page.\n\n  ```mlir\n  As\n  ```\n}];", 1),
        ("a.py", '"""What is free."""\n# Whose page\ndef f():\n    """Where it is.\n\n    That too."""\n', 3),
        ("a.md", "# What is new\n\n- The same.\n- A page. As read.\n\n```\nOf\n```\n| Of |\n", 2),
        ("a.h", "/// Ofset and Whereas are words; A-As too.", 0),
    ],
)
def test_fragments_are_found(name, text, count):
    assert len(fragments(name, text)) == count, fragments(name, text)


if __name__ == "__main__":
    listed = [
        (name, line, sentence)
        for name in names(*sys.argv[1:])
        for line, sentence in fragments(name, Path(name).read_text())
    ]
    for name, line, sentence in listed:
        print(f"{name}:{line}: {sentence[:120]}")
    print(len(listed), "fragments")
