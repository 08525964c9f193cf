# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the references and build the documentation site: `python tools/docs_site.py OUT [--sphinx-python PYTHON]`.

OUT gets `*.md`, the references of dialects, passes, the Python package and the C API. With PYTHON, which has
requirements-docs.txt, it also gets `source`, the pages as Sphinx reads them, and `html`, the site. Pages keep the paths
they have in the repository, so that a relative link works on a forge and on the site. A file that a page links to and that
is no page is copied beside it. A warning of Sphinx (a broken link, a page that the navigation does not reach) is an error.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import api_reference
import c_reference

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / "docs/site"
INDEX = Path("docs/index.md")
INCLUDES = ("-I", "include", "-I", "/usr/lib/llvm-22/include")
REFERENCES_MARK = "<!-- references -->\n"  # where docs/index.md lists what only the site has
REDIRECT = '<!DOCTYPE html>\n<meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def pages():
    """Return the pages that are files of the repository, by their paths in it."""
    found = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    found += [
        ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") if (ROOT / name).exists()
    ]
    return sorted(path.relative_to(ROOT) for path in found)


def linked(page):
    """Return the files that a page links to, by their paths in the repository."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    names = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    return {(ROOT / page.parent / name).resolve().relative_to(ROOT) for name in names}


def listed(text):
    """Return the pages that the navigation lists: each item of docs/index.md begins with a link to one."""
    names = re.findall(r"^- \[[^\]]+\]\(([^):]+\.md)\)", text, flags=re.M)
    return [(ROOT / INDEX.parent / name).resolve().relative_to(ROOT) for name in names]


def tblgen(title, *arguments):
    """Return a page that mlir-tblgen writes, with a title if it has none."""
    command = ["mlir-tblgen", *arguments, *INCLUDES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    text = re.sub(r"\A<!--.*?-->\n+", "", done.stdout)
    text = re.sub(
        r"^#### (Attributes|Operands|Options|Parameters|Results|Statistics):?$", r"**\1**", text, flags=re.M
    )
    return re.sub(r"\A(?:# .*\n)?", f"# {title}\n\n", text)


def dialect(name):
    source = f"include/attn/Dialect/{name}/IR/{name}Ops.td"
    return tblgen(f"The dialect `{name.lower()}`", "-gen-dialect-doc", f"-dialect={name.lower()}", source)


def passes(title, folder):
    return tblgen(title, "-gen-pass-doc", f"include/attn/{folder}/Passes.td")


REFERENCES = {
    "python": api_reference.reference,
    "c": c_reference.reference,
    "attn": lambda: dialect("Attn"),
    "tile": lambda: dialect("Tile"),
    "passes-attn": lambda: passes("Passes of the dialect `attn`", "Dialect/Attn/Transforms"),
    "passes-conversion": lambda: passes("Passes between dialects", "Conversion"),
    "passes-tile": lambda: passes("Passes of the dialect `tile`", "Dialect/Tile/Transforms"),
}


def write_references(out):
    """Write every reference and return the lines that list them in the navigation."""
    lines = []
    for name, reference in REFERENCES.items():
        text = reference()
        (out / f"{name}.md").write_text(text)
        title = text.splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}](../reference/{name}.md)\n")
    return "".join(lines)


def lay_out(out, references):
    """Make the folder that Sphinx reads."""
    source = out / "source"
    shutil.rmtree(source, ignore_errors=True)
    files = set(pages())
    for page in pages():
        files |= linked(page)
    for name in files:
        if (ROOT / name).is_file():
            (source / name.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    (source / "reference").mkdir()
    for name in REFERENCES:
        shutil.copy(out / f"{name}.md", source / "reference")
    text = (ROOT / INDEX).read_text()
    assert REFERENCES_MARK in text, f"{INDEX} has no line {REFERENCES_MARK}"
    (source / INDEX).write_text(text.replace(REFERENCES_MARK, references))
    return source


def build(out, sphinx_python):
    out.mkdir(parents=True, exist_ok=True)
    references = write_references(out)
    if not sphinx_python:
        return
    source, html = lay_out(out, references), out / "html"
    shutil.rmtree(html, ignore_errors=True)
    command = [sphinx_python, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-j", "auto"]
    command += ["-c", str(CONFIGURATION), "-d", str(out / "doctrees"), str(source), str(html)]
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode:
        sys.exit("docs_site.py: Sphinx warned; each warning is above")
    (html / "index.html").write_text(REDIRECT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sphinx-python", help="a Python that has requirements-docs.txt")
    arguments = parser.parse_args()
    build(arguments.out.resolve(), arguments.sphinx_python)
