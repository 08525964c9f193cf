# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documentation site is built without a warning, and every page of the repository is in its navigation."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from attnlab import BUILD, ROOT

sys.path.append(str(ROOT / "tools"))
import docs_site  # noqa: E402

INDEX = (ROOT / docs_site.INDEX).read_text()


def test_every_page_is_in_the_navigation_once():
    found = docs_site.listed(INDEX)
    assert sorted(found) == [page for page in docs_site.pages() if page != docs_site.INDEX]


def test_pages_are_found():
    assert docs_site.listed("- [A](a.md): text, [B](b.md)\n[C](c.md)\n") == [Path("docs/a.md")]
    assert Path("docs/glossary.md") in docs_site.linked(Path("docs/architecture.md"))


def test_code_is_on_pages_that_run():
    """test_guides.py runs docs/*.md and lessons, test_pages.py docs/python, test_architecture.py its page, and
    test_contributing.py CONTRIBUTING.md."""
    with_code = [page for page in docs_site.pages() if "\n```" in (ROOT / page).read_text()]
    assert len(with_code) > 30
    folders = {str(page.parent) for page in with_code if page.parts[0] != "examples"}
    assert folders <= {"docs", "docs/python", "."}
    assert [page.name for page in with_code if page.parent == Path(".")] == ["CONTRIBUTING.md"]


def sphinx_python():
    """A Python that has Sphinx: of ./dev docs, or this one."""
    env = BUILD / "docs-env/bin/python"
    if env.exists():
        return str(env)
    if all(importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "furo", "sphinx_copybutton")):
        return sys.executable
    pytest.skip("requirements-docs.txt is not installed: ./dev docs does it")


def test_the_site(tmp_path):
    if not shutil.which("mlir-tblgen"):
        pytest.skip("there is no mlir-tblgen on PATH")
    pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
    command = [sys.executable, ROOT / "tools/docs_site.py", tmp_path, "--sphinx-python", sphinx_python()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    html = tmp_path / "html"
    assert (html / "index.html").exists() and (html / "searchindex.js").exists()
    names = [*docs_site.pages(), *(Path(f"reference/{name}.md") for name in docs_site.REFERENCES)]
    assert not [name for name in names if not (html / name.with_suffix(".html")).exists()]
    navigation = re.findall(
        r'class="reference internal" href="([^"#]+\.html)"', (html / "docs/index.html").read_text()
    )
    reached = {(html / "docs" / name).resolve().relative_to(html.resolve()) for name in navigation}
    assert {name.with_suffix(".html") for name in names} - {Path("docs/index.html")} <= reached


@pytest.mark.parametrize("broken", ["[a page](no-such-page.md)", "[a place](#no-such-place)"])
def test_a_broken_link_is_an_error(broken, tmp_path, monkeypatch):
    pages = tmp_path / "root"
    (pages / "docs").mkdir(parents=True)
    (pages / "docs/index.md").write_text(f"# Title\n\n{broken}\n\n<!-- references -->\n")
    monkeypatch.setattr(docs_site, "ROOT", pages)
    monkeypatch.setattr(docs_site, "CONFIGURATION", ROOT / "docs/site")
    monkeypatch.setattr(docs_site, "REFERENCES", {"c": docs_site.c_reference.reference})
    with pytest.raises(SystemExit, match="Sphinx warned"):
        docs_site.build(tmp_path / "out", sphinx_python())
