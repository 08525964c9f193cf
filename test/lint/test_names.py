# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No two types have one name: the linker merges code that is made from them, such as a std::vector's functions, by
name."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCOPES = re.compile(
    r"namespace\s*(?P<space>[\w:]*)\s*\{|\b(?:struct|class|union|enum\s+class|enum)\s+(?P<type>\w[\w:]*)[^;{}()]*\{"
    r"|(?P<open>\{)|(?P<close>\})"
)
STRINGS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def types_of(text):
    """Return the qualified names of the types that a file defines for others to link with: none in anonymous namespaces
    or in functions."""
    scopes = []  # A name, or None for an anonymous namespace or a scope without a type.
    for match in SCOPES.finditer(STRINGS.sub("", text)):
        if match["close"]:
            if scopes:
                scopes.pop()
        elif match["open"]:
            scopes.append(None)
        else:
            name = match["type"] or match["space"] or None
            if match["type"] and None not in scopes:
                yield "::".join([*scopes, name])
            scopes.append(name)


def test_types_are_found():
    text = """namespace a::b { struct S { enum class E { x }; }; namespace { struct T {}; } /* { */ void f() { struct U {}; } }
              namespace a { struct b::V : W { const char *x = "}"; }; class X; }"""
    assert list(types_of(text)) == ["a::b::S", "a::b::S::E", "a::b::V"]


def test_types_have_names_of_their_own():
    files = defaultdict(set)
    for room in ("runtime", "include", "lib", "tools"):
        for file in sorted((ROOT / room).rglob("*")):
            if file.suffix in (".h", ".cpp", ".cc"):
                for name in types_of(file.read_text()):
                    files[name].add(str(file.relative_to(ROOT)))
    assert len(files) > 300
    assert not {name: places for name, places in files.items() if len(places) > 1}
