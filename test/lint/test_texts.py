# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python package writes a description's text whole, passes it to the compiler and shows it to people. It neither
edits nor parses it. Requests beside a text are data (attn.compiler.requests.Asks), and facts about a description come
from the Spec or the kernel's manifest. So no name in a text decides anything."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "attn"

# An expression with one of these names counts as a text: `text`, `kernel.text`, `spec.mlir()`, `see.text()`.
NAMES = {"text", "texts", "mlir", "_mlir", "plain", "_plain", "_text"}
PATTERNS = {"sub", "subn", "search", "match", "fullmatch", "findall", "finditer", "split"}
READERS = {
    *("replace", "translate", "partition", "rpartition", "split", "rsplit", "splitlines", "removeprefix"),
    *("removesuffix", "find", "rfind", "index", "rindex", "count", "startswith", "endswith"),
}
# Attributes of "Requests of a function" (AttnDialect.td).
ASKED = ("attn.backward", "attn.ordered", "attn.significance", "attn.device_plan")

# By file and function: texts that are not descriptions, and two that are for people.
EXCEPTIONS = {
    ("compiler/bundle.py", "_read_note"): "a message quotes the note of an artifact",
    ("compiler/disk.py", "default_limit"): "a number of bytes in the environment",
    (
        "compiler/requests.py",
        "name",
    ): "messages call a text by its first function; no key and no decision does",
    ("describe/printing.py", "_marks"): "writes the attributes that Spec.mlir shows to people",
    ("errors.py", "given"): "a message quotes a value",
    ("heads/passkeys.py", "_text"): "tokens of a prompt",
    ("memory/devices.py", "_find_name"): "the name of a device",
    ("memory/formats.py", "parse_format"): "the name of a format, as manifests have it",
    ("run/kernel.py", "_run_failed"): "a message of the runtime, whose names are put into the user's words",
    ("run/report.py", "parse_ptxas"): "what ptxas prints of registers",
}


def is_text(node):
    if isinstance(node, ast.Call):
        return not node.args and is_text(node.func)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in NAMES


def reads(node):
    """Whether an expression parses a text, or makes another text from it."""
    if isinstance(node, ast.Compare):
        pairs = zip(node.ops, node.comparators, strict=True)
        return any(isinstance(op, (ast.In, ast.NotIn)) and is_text(right) for op, right in pairs)
    if isinstance(node, ast.Subscript):
        return is_text(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in READERS and is_text(node.func.value):
            return True
        return node.func.attr in PATTERNS and any(map(is_text, node.args))
    return False


def docstrings(tree):
    """Return the strings that stand alone: docstrings of modules, classes, functions and attributes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def readings(source):
    """Return function and line of each place that parses a text, or spells an attribute of a request."""
    tree = ast.parse(source)
    alone, found = docstrings(tree), []

    def walk(node, function):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        spelled = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
        if reads(node) or spelled and any(name in node.value for name in ASKED):
            found.append((function, node.lineno))
        for child in ast.iter_child_nodes(node):
            walk(child, function)

    walk(tree, "")
    return found


def test_the_rule_finds_what_it_forbids():
    source = '''
def marked(text, mark):
    """With `attn.backward`."""
    return re.sub(r"(-> .*) {", rf"\\1 attributes {{{mark}}} {{", text, count=1)
def seen(kernel):
    return "see all" in kernel.text and "causal" not in kernel.text
def read(see):
    return "a sink" if "sink(" in see.mlir() else ""
def name(self):
    return self.text.partition("func.func @")[2]
def mark(ordered):
    return f"attn.ordered = {ordered}"
def fine(kernel, spec):
    return kernel.text == spec.mlir() or evaluate(kernel.text, spec.name.replace("a", "b"))
'''
    assert {function for function, _ in readings(source)} == {"marked", "seen", "read", "name", "mark"}
    assert [function for function, _ in readings(source)].count("seen") == 2


def test_no_text_is_read_or_edited():
    found, used = [], set()
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    for path in files:
        name = str(path.relative_to(PACKAGE))
        for function, line in readings(path.read_text()):
            if (name, function) in EXCEPTIONS:
                used.add((name, function))
            else:
                found.append(f"python/attn/{name}:{line}: {function}")
    assert not found, (
        "a text is written, not read or edited: ask the Spec, the manifest, or the compiler by an option\n"
        + "\n".join(found)
    )
    assert used == EXCEPTIONS.keys(), "no longer there: take them off"
