# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the reference of the Python package from its docstrings: `python tools/api_reference.py OUT.md`.

Public names are those in a module's `__all__`, or else those that it defines without a leading underscore.
"""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

# Modules that are used by their own name, beside `attn` itself; those of PyTorch are left out if it is
# missing.
MODULES = (
    "attn",
    "attn.math",
    "attn.heads",
    "attn.dualkv",
    "attn.training",
    "attn.training.trl",
    "attn.training.verl",
    "attn.serving",
    "attn.aot",
    "attn.env",
    "attn.torch_ops",
    "attn.transformers",
)
# Classes that calls return and users do not construct.
GIVEN = {
    "attn.cache.layer": ["CacheLayer"],
    "attn.cache.change": ["CacheChange"],
    "attn.cache.batch": ["CacheBatch"],
    "attn.run.report": ["KernelReport"],
    "attn.compiler.bundle": ["Bundle"],
}
NEEDS = {
    "attn.dualkv": "torch",
    "attn.torch_ops": "torch",
    "attn.serving": "torch",
    "attn.training": "transformers",
    "attn.training.trl": "trl",
    "attn.training.verl": "transformers",
    "attn.transformers": "transformers",
}


def public_names(module):
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


class Plain(str):
    """An annotation, shown as written."""

    def __repr__(self):
        return str(self).replace("attn.", "")


def plain(annotation):
    return Plain(annotation) if isinstance(annotation, str) else annotation


def signature(name, value):
    """Return a signature: on one line if it fits, else with a line for each parameter."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [p.replace(annotation=plain(p.annotation)) for p in found.parameters.values()]
    parameters = [p for p in parameters if p.name not in ("self", "cls")]
    found = found.replace(parameters=parameters, return_annotation=plain(found.return_annotation))
    text = name + str(found)
    if len(text) <= 110:
        return text
    lines, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
            starred = True
        lines.append(str(parameter))
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
    returns = str(found.replace(parameters=[])).partition(")")[2]
    return f"{name}(\n    " + ",\n    ".join(lines) + f"\n){returns}"


def members(value):
    """Return public methods and properties that the class, or a base of attn's own, defines."""
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
    """Return a docstring as Markdown: its paragraphs, with tables of arguments and examples (indented or
    aligned text) in their own fixed width."""
    out = []
    for paragraph in filter(None, text.split("\n\n")):
        rows = paragraph.splitlines()
        aligned = len(rows) > 1 and sum("  " in row.strip() for row in rows) * 2 >= len(rows)
        indented = all(row.startswith("    ") for row in rows if row)
        aligned = aligned or (len(rows) == 1 and "  " in rows[0].strip())
        out.append(f"```text\n{inspect.cleandoc(paragraph)}\n```" if aligned or indented else paragraph)
    return "\n\n".join(out)


def entry(name, value):
    """Return the section of one public name."""
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
        function = getattr(of, "__func__", of)
        if isinstance(of, property) or type(of).__name__ == "cached_property":
            parts.append(f"#### `{name}.{member}`")
        else:
            parts += [f"#### `{name}.{member}`", f"```python\n{signature(member, function)}\n```"]
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
    parts.append("## Classes that calls return")
    for name, classes in GIVEN.items():
        for public in classes:
            parts += entry(public, getattr(importlib.import_module(name), public))
    return "\n\n".join(part for part in parts if part) + "\n"


def undocumented():
    """Return public names and members without a docstring."""
    found = []
    for name in (*MODULES, *GIVEN):
        if importlib.util.find_spec(NEEDS.get(name, "sys")) is None:
            continue
        module = importlib.import_module(name)
        for public in GIVEN.get(name) or public_names(module):
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
