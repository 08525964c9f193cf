# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The contents of the wheel, and its dependencies where it is installed."""

import configparser
import email
import importlib.metadata
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "dist"


@pytest.fixture(scope="module")
def wheel():
    found = sorted(WHEELS.glob("attn-*.whl"))
    if not found:
        pytest.skip("no wheel in build/dist: ./dev wheel packs one")
    return found[-1]


@pytest.fixture(scope="module")
def libraries(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", ".so.0"))]
        archive.extractall(folder, names)
    return [folder / name for name in names]


def dynamic(library, tag):
    """Return the entries of one kind in a library's dynamic section."""
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def test_is_small(wheel):
    assert wheel.stat().st_size <= 40e6


def test_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name.removeprefix("attn/") for name in names if name.startswith("attn/")}
    assert {"__init__.py", "py.typed", "_attn.pyi", "libattn_compiler.so.0"} <= package
    sources = {str(path.relative_to(ROOT / "python/attn")) for path in (ROOT / "python/attn").rglob("*.py*")}
    sources = {name for name in sources if not name.endswith(".pyc")}
    assert sources | {"py.typed", "libattn_compiler.so.0"} == {
        name for name in package if "_attn.c" not in name
    }
    assert len([name for name in package if re.fullmatch(r"_attn\.cpython-\d+-.*\.so", name)]) == 1
    assert all(name.startswith(("attn/", "attn-")) for name in names)


def test_says_which_pythons_and_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0 WITH LLVM-exception"
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert [re.match(r"\w+", line).group() for line in needed] == ["numpy"]
    for minor in range(10, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in metadata.get_all("Classifier")


def test_says_what_engines_load(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        found = configparser.ConfigParser()
        found.read_string(archive.read(name).decode())
    assert {group: dict(found[group]) for group in found.sections()} == {
        "vllm.general_plugins": {"attn": "attn.vllm:register"},
        "sglang.srt.plugins": {"attn": "attn.sglang:register"},
    }


def test_carries_its_notices(wheel):
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name) for name in archive.namelist() if "/licenses/" in name}
    assert texts["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    notices = texts["THIRD_PARTY_NOTICES"].decode()
    titles = " ".join(re.findall(r"^={88}\n(.*)\n={88}$", notices, flags=re.M))
    embedded = (
        "LLVM and MLIR",
        "Boost.Context",
        "JSON for Modern C++",
        "xxHash",
        "zstd",
        "zlib",
        "pybind11",
        "libstdc++",
    )
    for name in embedded:
        assert name in titles, name


def test_needs_the_c_library_alone(libraries):
    """LLVM, the C++ library and zstd are linked in, and the C library is the only dependency."""
    assert len(libraries) == 2
    system = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
    for library in libraries:
        others = set(dynamic(library, "NEEDED")) - system
        assert others <= {"libattn_compiler.so.0"}, f"{library.name} needs {others}"


def test_libraries_are_found_beside_each_other(libraries):
    extension = next(library for library in libraries if library.name.startswith("_attn."))
    assert dynamic(extension, "NEEDED").count("libattn_compiler.so.0") == 1
    for library in libraries:
        assert dynamic(library, "RUNPATH") + dynamic(library, "RPATH") == ["$ORIGIN"]


def test_names_no_path_of_the_machine_that_built_it(wheel):
    private = {str(ROOT), str(ROOT.parent), str(Path.home())} - {"/"}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            for path in private:
                assert f"{path}/".encode() not in content, f"{name} names {path}"


@pytest.mark.skipif(not os.environ.get("ATTN_INSTALLED"), reason="of an installed attn alone")
def test_what_is_installed_is_the_wheel():
    import attn

    assert "site-packages" in attn.__file__
    assert str(ROOT / "python") not in str(Path(attn.__file__).resolve())
    assert importlib.metadata.version("attn") in next(WHEELS.glob("attn-*.whl")).name
