# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the reference of the C API from its headers: `python tools/c_reference.py OUT.md`.

A header's first comment and the names of its sections become text; declarations stay beside their comments.
The headers are the only source of both.
"""

import re
import sys
import textwrap
from pathlib import Path

HEADERS = Path(__file__).resolve().parents[1] / "include/attn-c"
ORDER = ("Common.h", "Runtime.h", "Cache.h", "Pages.h", "Compiler.h", "Unstable.h")
# Lines for the compiler that a reader does not need.
LEFT_OUT = re.compile(
    r"^(?:#(?:if|endif|include).*|#define ATTN_C_(?:\w+_H|EXPORT.*)|extern \"C\" \{|\}|/\* SPDX.*)\n",
    flags=re.M,
)
SECTION = re.compile(r"^/\*===--- (.*?) -*===\*/\n", flags=re.M)
BANNER = re.compile(r"/\*===- (\S+) - (.*?) -*\*- C -\*-===\*(?:/\n|\n(.*?)\*===-+===\*/\n)", flags=re.S)


def text_of(comment):
    """Return the text of a banner; its indented lines are code."""
    lines = [line.removeprefix(" *").removeprefix(" ") for line in comment.split("\n")]
    text = "\n".join(line for line in lines if not line.startswith("SPDX-License-Identifier")).strip("\n")
    return re.sub(
        r"(?:^  .*\n?)+", lambda code: f"```c\n{textwrap.dedent(code[0]).rstrip()}\n```\n", text, flags=re.M
    )


def code_of(declarations):
    code = re.sub(r"\n{3,}", "\n\n", LEFT_OUT.sub("", declarations).replace("ATTN_C_EXPORT ", ""))
    return f"```c\n{code.strip()}\n```" if code.strip() else ""


def reference_of(header):
    """Return a header's page: the text of its banner, then its sections."""
    source = header.read_text()
    banner = BANNER.match(source)
    first, *sections = SECTION.split(source[banner.end() :])
    parts = [f"## attn-c/{banner[1]}: {banner[2]}", text_of(banner[3] or ""), code_of(first)]
    for name, declarations in zip(sections[::2], sections[1::2], strict=True):
        parts += [f"### {name}", code_of(declarations)]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def reference():
    return "\n\n".join(["# The C API", *(reference_of(HEADERS / name) for name in ORDER)]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
