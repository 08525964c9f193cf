# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sections of a page that a program writes: the lines between `<!-- NAME -->` and `<!-- /NAME -->`."""


def replace_section(page, name, lines):
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}" + "\n".join(lines) + f"\n{end}{after}"
