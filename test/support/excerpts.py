# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Excerpts of printed programs: whether a program still prints one, and its present text.

An excerpt is lines of the output in their order. A line `...` stands for any lines of the same kernel, `...` in a line
for any text. White space counts as one blank, and values may have other numbers than in the output, as long as one
value has one number: `%3 = a %2` is found in `%7 = a %5`, and `%2 = a %2` is not.
"""

import difflib
import re

NAME = re.compile(r"%[\w$-]+")
NUMBERED = re.compile(r"%(arg|r|rd|rs|p|f|fd)?\d+$")
DEFINITION = re.compile(r"(:\d+)?( = |: |, %[^=(]*? = )")  # The text after a name that is new.
BOUNDARY = re.compile(r"func\.func @|\.visible \.entry|^// -----//")
ANY = "%_"


class Line:
    """A line of an excerpt, and its pattern."""

    def __init__(self, text):
        self.text = text.strip()
        self.names = NAME.findall(self.text)
        self.defines = [bool(DEFINITION.match(self.text, at.end())) for at in NAME.finditer(self.text)]
        pattern = ""
        for part in re.split(r"(\.\.\.|%[\w$-]+|\s+)", self.text):
            if part == "...":
                pattern += ".*?"
            elif NAME.fullmatch(part):
                pattern += f"({self.kind(part)})"
            else:
                pattern += r"\s+" if part.isspace() else re.escape(part)
        self.pattern = re.compile(r"\s*" + pattern + r"\s*$")

    @staticmethod
    def kind(name):
        """Return a pattern of the names that may stand for a name: equal but for the number that distinguishes it."""
        if name == ANY:
            return r"%[\w$-]+"
        if found := NUMBERED.match(name):
            return rf"%{found[1] or ''}\d+"
        return re.escape(re.sub(r"_\d+$", "", name)) + r"(?:_\d+)?"

    def match(self, text, bound, strict):
        """Return the bindings of names after the line, or None. A definition begins a new value."""
        found = self.pattern.match(text)
        if not found:
            return None
        if not strict:
            return bound
        named = list(zip(self.names, found.groups(), self.defines, strict=True))
        after = dict(bound)
        for name, actual, _ in (use for use in named if not use[2] and use[0] != ANY):
            if name not in after and actual in after.values():
                return None
            if after.setdefault(name, actual) != actual:
                return None
        for name, actual, _ in (definition for definition in named if definition[2]):
            after = {other: value for other, value in after.items() if value != actual}
            after[name] = actual
        return after

    def renamed(self, text):
        actual = iter(self.pattern.match(text).groups())
        return NAME.sub(lambda _: next(actual), self.text)


def runs_of(excerpt):
    """Return lines that follow each other, between lines that are `...`."""
    runs = [[]]
    for text in excerpt.splitlines():
        if text.strip() == "...":
            runs.append([])
        elif text.strip():
            runs[-1].append(Line(text))
    return [run for run in runs if run]


class Search:
    """The positions of an excerpt's runs in an output: line numbers, or None."""

    def __init__(self, runs, output, strict):
        self.runs, self.output, self.strict = runs, output, strict
        self.steps = 200_000
        self.places = self.place(0, 0, {})

    def place(self, index, start, bound):
        if index == len(self.runs):
            return []
        run = self.runs[index]
        for at in range(start, len(self.output) - len(run) + 1):
            self.steps -= 1
            if self.steps < 0:
                return None
            after = self.match(run, at, bound)
            if after is not None:
                rest = self.place(index + 1, at + len(run), after)
                if rest is not None:
                    return [at, *rest]
                if index and not self.strict:
                    return None  # A later position leaves less for the runs that follow.
            if index and BOUNDARY.search(self.output[at]):
                return None
        return None

    def match(self, run, at, bound):
        for line, text in zip(run, self.output[at : at + len(run)], strict=True):
            bound = line.match(text, bound, self.strict)
            if bound is None:
                return None
        return bound


def is_printed(excerpt, output):
    return Search(runs_of(excerpt), output.splitlines(), strict=True).places is not None


def closest(run, output):
    """Return lines of the output that resemble those of a run."""
    wanted = [NAME.sub("%", line.text) for line in run]
    plain = [NAME.sub("%", text.strip()) for text in output]

    def alike(at):
        return sum(
            difflib.SequenceMatcher(None, a, b[: len(a) + 20], autojunk=False).ratio()
            for a, b in zip(wanted, plain[at : at + len(run)], strict=False)
        )

    best = max(range(max(1, len(output) - len(run) + 1)), key=alike)
    return [text.strip() for text in output[best : best + len(run)]]


def indented(lines):
    """Return (columns, text) as an outline: text further right in the output is two columns further right."""
    levels, text = [], []
    for number, (columns, line) in enumerate(lines):
        if line == "...":
            columns = lines[number + 1][0]
            if lines[number - 1][1].endswith("{"):
                columns = max(columns, lines[number - 1][0] + 1)
        while levels and levels[-1] >= columns:
            levels.pop()
        levels.append(columns)
        text.append("  " * (len(levels) - 1) + line)
    return "\n".join(text) + "\n"


def renewed(excerpt, output):
    """Return the excerpt with the numbers of the output, or if more has changed with the most similar lines."""
    output, runs = output.splitlines(), runs_of(excerpt)
    places = Search(runs, output, strict=True).places or Search(runs, output, strict=False).places
    if places is None:
        known = [Search([run], output, strict=False).places is not None for run in runs]
        blocks = [
            [line.text for line in run] if here else closest(run, output)
            for run, here in zip(runs, known, strict=True)
        ]
        return "\n...\n".join("\n".join(block) for block in blocks) + "\n"
    lines = []
    for run, at in zip(runs, places, strict=True):
        lines += [(0, "...")] if lines else []
        for line, text in zip(run, output[at : at + len(run)], strict=True):
            text = text.expandtabs(4)
            lines.append((len(text) - len(text.lstrip()), line.renamed(text)))
    return indented(lines)
