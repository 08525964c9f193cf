# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sphinx's configuration. tools/docs_site.py lays the pages out and runs Sphinx; docs/index.md is the navigation."""

import re

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

project = "attn"
author = "the attn authors"
copyright = "the attn authors, Apache-2.0 WITH LLVM-exception"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
highlight_language = "text"

myst_heading_anchors = 4  # as forges make them, so that one link serves both
# mlir-tblgen leaves out levels of headings, and excerpts have "..." where lines are left out.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_title = "attn"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["attn.css"]
copybutton_exclude = ".linenos, .gp, .go"


class MlirLexer(RegexLexer):
    """MLIR's generic shape: values, types, attributes, operations."""

    name = "MLIR"
    aliases = ["mlir"]
    tokens = {
        "root": [
            (r"//.*?$", Comment.Single),
            (r'"(?:\\.|[^"\\])*"', String),
            (r"[%^][\w$.#-]+", Name.Variable),
            (r"@[\w$.-]+", Name.Function),
            (r"[!#][A-Za-z][\w.]*", Keyword.Type),
            (r"\b(?:tensor|memref|vector|index|none|bf16|f16|f32|f64|f8E\w+|[su]?i\d+)\b", Keyword.Type),
            (r"-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", Number),
            (r"[A-Za-z_]\w*\.[\w.]+", Name.Builtin),
            (r"[A-Za-z_]\w*", Text),
            (r"->|[-+*/=&|?<>:]", Operator),
            (r"[()\[\]{},.]", Punctuation),
            (r"[\s\S]", Text),
        ]
    }


def add_navigation(app, document, content):
    """Makes a hidden table of contents of each list of links of docs/index.md, with its heading and its names."""
    if document != root_doc:
        return
    trees = []
    for section in re.split(r"^## ", content[0], flags=re.M)[1:]:
        caption = section.split("\n", 1)[0]
        pages = re.findall(r"^- \[([^\]]+)\]\(([^):]+)\.md\)", section, flags=re.M)
        if pages:
            lines = [f"{name.replace('`', '')} <{page}>" for name, page in pages]
            trees.append("\n".join([f"```{{toctree}}\n:hidden:\n:caption: {caption}\n", *lines, "```"]))
    content[0] += "\n" + "\n\n".join(trees) + "\n"


def setup(app):
    app.add_lexer("mlir", MlirLexer)
    app.connect("source-read", add_navigation)
