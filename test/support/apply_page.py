# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Applies the diffs of a page to copies of the files that they name.

A block of the language diff has one file: a line `--- PATH`, then hunks, each after a line `@@`. A hunk is found by its
text, which must stand in the file once. So a page stays valid when lines move, and fails when the lines that it changes
change.
"""

import re
import sys
from pathlib import Path


def hunks(page):
    """Yield (file, text before, text after) of every hunk of the page, in order."""
    for block in re.findall(r"^```diff\n(.*?)^```$", page.read_text(), flags=re.M | re.S):
        head, *parts = re.split(r"^@@.*\n", block, flags=re.M)
        for part in parts:
            lines = [line or " " for line in part.splitlines()]
            before, after = (
                "".join(line[1:] + "\n" for line in lines if line[0] in " " + sign) for sign in "-+"
            )
            yield head.removeprefix("--- ").strip(), before, after


def apply(page, root, out, under="", reverse=False):
    """Write to `out` the files of `root`, below `under`, as the page changes them; returns their names. `reverse`: the
    files before the change, if the project has it."""
    texts = {}
    for name, before, after in hunks(page):
        if not name.startswith(under):
            continue
        if reverse:
            before, after = after, before
        text = texts.get(name) or (root / name).read_text()
        if text.count(before) != 1:
            raise SystemExit(f"{page.name}: this stands {text.count(before)} times in {name}:\n{before}")
        texts[name] = text.replace(before, after)
    for name, text in texts.items():
        path = out / name
        if not path.is_file() or path.read_text() != text:  # An unchanged file is not built again.
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return list(texts)


if __name__ == "__main__":
    paths = (Path(argument) for argument in sys.argv[1:4])
    print(";".join(apply(*paths, reverse="reverse" in sys.argv[4:])))
