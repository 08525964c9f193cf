# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the output in pages comparable with the output of programs."""

import re

# Figures that depend on the machine: times, and rounding errors of its CPU.
OF_THE_MACHINE = re.compile(r"\b\d+(?:\.\d+)? m?s\b(?! on an)|\b\d\.\d\de[+-]\d\d\b|0x[0-9a-f]+")


def masked(text):
    """Replace such figures by N."""
    return OF_THE_MACHINE.sub("N", text)


def one_blank(text):
    return " ".join(text.split())


def blocks(page):
    """Yield (language, text, line) of every fenced block."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


OPERATION = re.compile(
    r"^(?:[%\w]+ = |else: |if .*?: )?(?:.*?  )?((?:tile|scf)\.\w+(?: (?:\d+|increase \d+|threads \d+))?)"
)


def operations(sketch):
    """Return the operations of a sketch, in order: at the beginning of a line, or after `x = ` or a condition."""
    found = []
    for line in sketch.splitlines():
        match = OPERATION.match(line.strip().lstrip("} "))
        found += [match[1]] if match else []
    return found


def is_sketched(sketch, printed):
    """Whether a program has the operations of a sketch, in their order, with others between them."""
    at = 0
    for operation in operations(sketch):
        name, _, rest = operation.partition(" ")
        match = re.compile(rf"{re.escape(name)}\b[^\n]*?{re.escape(rest)}").search(printed, at)
        if not match:
            return False
        at = match.end()
    return True
