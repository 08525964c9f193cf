# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The assembler of a cubin is part of its key in the caches."""

import os

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import _attn  # noqa: E402
from attn.compiler import artifacts, bundle, requests  # noqa: E402
from extension_problem import sections  # noqa: E402
from fresh_process import seen, spec  # noqa: E402

# A stand-in that writes its own name as the cubin.
STAND_IN = """#!/bin/sh
[ "$1" = --version ] && { echo "version $VERSION"; exit; }
while [ $# -gt 0 ]; do [ "$1" = -o ] && output=$2; shift; done
printf %s NAME > "$output"
"""


@pytest.fixture
def assemblers(tmp_path, monkeypatch):
    """Make two assemblers that write different names, each first on its own PATH."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ptxas").write_text(STAND_IN.replace("NAME", name))
        (tmp_path / name / "ptxas").chmod(0o755)
    monkeypatch.delenv("ATTN_PTXAS", raising=False)
    usual = os.environ["PATH"]
    return lambda name: monkeypatch.setenv("PATH", f"{tmp_path / name}{os.pathsep}{usual}")


def cubin_of(request):
    key, entry = artifacts.artifact(request)
    return key, sections(entry.payload)["cubins"][0].decode()


def test_each_assembler_has_its_own_entries(fresh, assemblers):
    request = requests.request_for(spec(), target="sm_90a", form="cuda")
    found = {}
    for name in ("one", "two", "one", "two"):
        assemblers(name)
        key, cubin = cubin_of(request)
        assert cubin == name
        assert found.setdefault(name, key) == key
    assert found["one"] != found["two"]
    assert seen() == (2, 2, 0)


def test_an_assembler_that_was_exchanged_is_another(fresh, assemblers, tmp_path):
    request = requests.request_for(spec(), target="sm_90a", form="cuda")
    assemblers("one")
    first, _ = cubin_of(request)
    (tmp_path / "one" / "ptxas").write_text(STAND_IN.replace("NAME", "new"))
    second, cubin = cubin_of(request)
    assert second != first and cubin == "new"


def test_a_script_is_known_by_what_it_starts(fresh, assemblers, monkeypatch):
    assemblers("one")
    known = set()
    for version in ("13.0", "13.1", "13.0"):
        monkeypatch.setenv("VERSION", version)
        known.add(_attn.identify_ptxas())
    assert len(known) == 2 and all("version 13." in identity for identity in known)


def test_bundles_serve_whichever_assembler_is_there(fresh, assemblers, monkeypatch):
    request = requests.request_for(spec(), target="sm_90a", form="cuda")
    assemblers("one")
    bundle.write_bundle(fresh / "one.attn", [(request, artifacts.artifact(request)[1])])
    monkeypatch.setenv("ATTN_CACHE_DIR", str(fresh / "empty"))
    artifacts.disk_cache.cache_clear()
    attn.load_bundle(fresh / "one.attn")
    assemblers("two")
    with attn.forbid_compiling():
        assert cubin_of(request)[1] == "one"
