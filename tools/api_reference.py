"""Writes the reference of the Python package from its docstrings: `python tools/api_reference.py OUT.md`.

What is public is what a module's `__all__` names, or else what it defines without a leading underscore.
"""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

# Modules that are used by their own name, beside `attn` itself; those of PyTorch are left out where there is none.
MODULES = (
    "attn",
    "attn.math",
    "attn.head_gates",
    "attn.aot",
    "attn.env",
    "attn.torch_ops",
    "attn.transformers",
)
NEEDS = {"attn.torch_ops": "torch", "attn.transformers": "transformers"}


def public_names(module):
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def signature(name, value):
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        text = "(...)"
    text = text.replace("attn.", "").replace("'", "")
    if len(name) + len(text) <= 110:
        return name + text
    parameters = inspect.signature(value).parameters.values()
    lines, starred = [], False
    for parameter in parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
            starred = True
        lines.append(str(parameter).replace("attn.", "").replace("'", ""))
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
    returns = text.rpartition(" -> ")[2] if " -> " in text else ""
    return f"{name}(\n    " + ",\n    ".join(lines) + f"\n){' -> ' + returns if returns else ''}"


def members(value):
    """Public methods and properties that the class, or a base of attn's own, defines."""
    found = {}
    for base in reversed(value.__mro__):
        if not base.__module__.startswith("attn"):
            continue
        for name, member in vars(base).items():
            if not name.startswith("_") and (
                inspect.isfunction(member)
                or isinstance(member, (property, staticmethod, classmethod))
                or type(member).__name__ == "cached_property"
            ):
                found[name] = member
    return found


def documentation(value):
    return (inspect.getdoc(value) or "").strip()


def block(text):
    """A docstring as Markdown: its paragraphs, with tables of arguments and examples (what is indented or aligned) in
    the fixed width that they were written in."""
    out = []
    for paragraph in filter(None, text.split("\n\n")):
        rows = paragraph.splitlines()
        aligned = len(rows) > 1 and sum("  " in row.strip() for row in rows) * 2 >= len(rows)
        indented = all(row.startswith("    ") for row in rows if row)
        aligned = aligned or (len(rows) == 1 and "  " in rows[0].strip())
        out.append(f"```text\n{inspect.cleandoc(paragraph)}\n```" if aligned or indented else paragraph)
    return "\n\n".join(out)


def entry(name, value):
    """The section of one public name."""
    if inspect.ismodule(value):
        return [f"### `{name}`", block(documentation(value))]
    if not inspect.isclass(value):
        if not callable(value):
            return [f"### `{name}`"]
        return [f"### `{name}`", f"```python\n{signature(name, value)}\n```", block(documentation(value))]
    parts = [f"### class `{name}`"]
    if not issubclass(value, BaseException):
        parts.append(f"```python\n{signature(name, value)}\n```")
    parts.append(block(documentation(value)))
    for member, of in members(value).items():
        plain = getattr(of, "__func__", of)
        if isinstance(of, property) or type(of).__name__ == "cached_property":
            parts.append(f"#### `{name}.{member}`")
        else:
            text = signature(member, plain).replace("(self, ", "(").replace("(self)", "()")
            parts += [f"#### `{name}.{member}`", f"```python\n{text}\n```"]
        parts.append(block(documentation(of)))
    return parts


def reference():
    parts = ["# attn in Python", "Generated from the docstrings of the package."]
    for name in MODULES:
        if importlib.util.find_spec(NEEDS.get(name, "sys")) is None:
            continue
        module = importlib.import_module(name)
        parts += [f"## {name}", block(documentation(module))]
        for public in public_names(module):
            parts += entry(public, getattr(module, public))
    return "\n\n".join(part for part in parts if part) + "\n"


def undocumented():
    """Public names and members without a docstring."""
    found = []
    for name in MODULES:
        if importlib.util.find_spec(NEEDS.get(name, "sys")) is None:
            continue
        module = importlib.import_module(name)
        for public in public_names(module):
            value = getattr(module, public)
            if not callable(value) and not inspect.ismodule(value):
                continue
            if not documentation(value):
                found.append(f"{name}.{public}")
            if inspect.isclass(value):
                found += [
                    f"{name}.{public}.{member}"
                    for member, of in members(value).items()
                    if not documentation(of)
                ]
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
