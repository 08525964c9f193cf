# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What wheels, source distributions and an installed prefix hold and need: glibc 2.34, as the tag of the wheels says. With
--full, also a first result of the wheel for each Python that is found, and a wheel from a source distribution."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from attnlab import BUILD, ROOT
from tracked import tracked

PLATFORM = "manylinux_2_34_x86_64"
NEWEST_GLIBC = (2, 34)
FULL = bool(os.environ.get("ATTN_FULL"))


def run(*command, timeout=600, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def is_elf(path):
    if not path.is_file() or path.is_symlink():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF" and path.suffix not in (".a", ".o")


def glibc_of(path):
    """The versions of glibc whose symbols an ELF file needs, from the section of needed versions."""
    needs = run("readelf", "-V", path).partition("Version needs section")[2]
    return {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([\d.]+)", needs)}


def too_new(folder):
    """The ELF files below a folder, and of each what it needs of a later glibc. Asserts that each needs some glibc."""
    found = {}
    for path in folder.rglob("*"):
        if is_elf(path):
            versions = glibc_of(path)
            assert versions, f"{path} names no version of glibc"
            found[path.name] = {version for version in versions if version > NEWEST_GLIBC}
    return found


@pytest.fixture(scope="module")
def wheels():
    found = sorted((BUILD / "dist").glob("attn-*.whl"))
    if not found:
        pytest.skip("no wheel in build/dist: ./dev wheel packs one")
    return found


def test_wheels_say_which_glibc_they_need(wheels, tmp_path):
    for wheel in wheels:
        tag = wheel.stem.split("-")[2:]
        assert tag == [tag[0], tag[0], PLATFORM]
        with zipfile.ZipFile(wheel) as archive:
            [meta] = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
            assert f"Tag: {tag[0]}-{tag[0]}-{PLATFORM}\n" in archive.read(meta).decode()
            archive.extractall(tmp_path / tag[0])
        found = too_new(tmp_path / tag[0])
        assert len(found) == 2 and not any(found.values()), f"{wheel.name}: {found}"


def test_auditwheel_agrees(wheels):
    for wheel in wheels:
        said = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
        assert f'is consistent with the following platform tag: "{PLATFORM}"' in said


def test_what_is_installed_needs_no_later_glibc(tmp_path):
    if not (BUILD / "lib/libattn_runtime.so").exists():
        pytest.skip("nothing to install is built")
    run("cmake", "--install", BUILD, "--prefix", tmp_path)
    found = too_new(tmp_path)
    assert {"attn-opt", "attn-run", "attn-plan", "attn-workload"} <= found.keys() and len(found) == 6
    assert not any(found.values()), found


def test_later_versions_are_seen(tmp_path):
    """A program that asks for a function of glibc 2.36 is found."""
    (tmp_path / "new.c").write_text(
        "#include <stdlib.h>\nint main(void) { return arc4random() == arc4random(); }\n"
    )
    done = subprocess.run(["cc", tmp_path / "new.c", "-o", tmp_path / "new"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this machine's glibc is older than 2.36")
    assert too_new(tmp_path) == {"new": {(2, 36)}}


FINDS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*Find)(void *, struct dl_find_object *);

int main(int argc, char **argv) {
  Find theirs = (Find)dlsym(dlopen("libc.so.6", RTLD_NOW), "_dl_find_object");
  void *addresses[] = {(void *)main, (char *)main + 1, (void *)_dl_find_object, dlsym(RTLD_DEFAULT, "qsort"),
                       dlsym(dlopen(argv[argc - 1], RTLD_NOW), "in_library"), &argc, malloc(1), 0, (void *)-1};
  int found = 0;
  for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; ++i) {
    struct dl_find_object ours, other = {0};
    const int result = _dl_find_object(addresses[i], &ours);
    if (theirs == _dl_find_object || result != theirs(addresses[i], &other)) return 1;
    if (result == 0 && ours.dlfo_eh_frame != other.dlfo_eh_frame) return 2;
    found += result == 0;
  }
  const unsigned first = arc4random();
  int equal = 0;
  for (int i = 0; i < 4; ++i) equal += arc4random() == first;
  return found == 5 && equal < 4 ? 0 : 3;
}
"""
THROWS = """
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>
int thrown(int depth) { if (depth == 0) throw std::runtime_error("x"); return thrown(depth - 1) + 1; }
int main() {
  std::atomic<int> caught = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { for (int j = 0; j < 500; ++j) try { thrown(j % 20); } catch (std::exception &) { ++caught; } });
  for (auto &thread : threads) thread.join();
  return caught == 4000 && std::random_device()() != std::random_device()() ? 0 : 1;
}
"""
OLDER = ROOT / "runtime/src/compat/OlderGlibc.c"


def needs_glibc_2_36():
    if run("ldd", "--version").split("\n")[0].split()[-1] < "2.36":
        pytest.skip("glibc itself has no _dl_find_object and arc4random to compare with")


def test_libraries_of_addresses_are_those_that_glibc_finds(tmp_path):
    needs_glibc_2_36()
    (tmp_path / "library.c").write_text("int in_library(void) { return 1; }\n")
    (tmp_path / "finds.c").write_text(FINDS)
    run("cc", "-shared", "-fPIC", tmp_path / "library.c", "-o", tmp_path / "library.so")
    run("cc", "-Wall", "-Werror", OLDER, tmp_path / "finds.c", "-o", tmp_path / "finds")
    run(tmp_path / "finds", tmp_path / "library.so")


def test_exceptions_of_many_threads_find_their_way(tmp_path):
    needs_glibc_2_36()
    (tmp_path / "throws.cpp").write_text(THROWS)
    run("cc", "-c", OLDER, "-o", tmp_path / "older.o")
    run("c++", "-O1", tmp_path / "throws.cpp", tmp_path / "older.o", "-static-libstdc++", "-static-libgcc",
        "-o", tmp_path / "throws")  # fmt: skip
    run(tmp_path / "throws")
    assert max(glibc_of(tmp_path / "throws")) <= NEWEST_GLIBC


# --- Installed -----------------------------------------------------------------------------------------------

# A first result on the CPU, beside the definition: the seconds after the import, and what is imported.
FIRST = """
import sys, time, attn
begin = time.monotonic()
import numpy
q, k, v = (numpy.random.default_rng(seed).standard_normal((1, 16, 2, 64)).astype("float16") for seed in range(3))
out = attn.attend(q, k, v, causal=True)
seconds = time.monotonic() - begin
scores = numpy.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / 8
weights = numpy.exp(scores) * numpy.tri(16)
wanted = numpy.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))
assert numpy.abs(out - wanted).max() < 1e-3 and "torch" not in sys.modules
print(seconds, attn.__version__, attn.__file__)
"""
# Without a GPU and without PyTorch.
CUBIN = """
import sys
sys.modules["torch"] = None
import attn
from attn import _attn
spec = attn.Spec(q_heads=8, kv_heads=2, head_dim=64, dtype="bfloat16", kv=[attn.Paged(page_size=16)], see=attn.causal())
cubin = attn.compile(spec, target="sm_90a").emit("cubin")
assert cubin[:4] == b"\\x7fELF" and len(cubin) > 10000
print(_attn.build_info()["ptxas"])
"""


def alone(tmp_path, **more):
    """An environment in which nothing of this machine's is found: no ptxas, no package, no compiled kernel."""
    dropped = ("PYTHON", "ATTN_", "LD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"ATTN_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"} | more


def test_ptxas_is_found_beside_the_package(wheels, tmp_path):
    """Install it as `compile-only` does, with this machine's ptxas in the place of NVIDIA's package."""
    ptxas = shutil.which("ptxas")
    mine = [wheel for wheel in wheels if f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name]
    if not ptxas or not mine:
        pytest.skip("there is no ptxas, or no wheel for this Python")
    with zipfile.ZipFile(mine[0]) as archive:
        archive.extractall(tmp_path / "site")
    found = tmp_path / "site/nvidia/cu13/bin/ptxas"
    found.parent.mkdir(parents=True)
    found.symlink_to(ptxas)
    environment = alone(tmp_path, PYTHONPATH=str(tmp_path / "site"), PATH="/nowhere")
    said = run(sys.executable, "-c", CUBIN, env=environment, cwd=tmp_path).strip()
    assert os.path.samefile(said, found) and said.endswith("/nvidia/cu13/bin/ptxas")


def installed(wheel, extra, folder):
    """The interpreter of an empty environment for the Python of a wheel that has nothing but the wheel, with an extra."""
    tag = wheel.stem.split("-")[2]
    packing = BUILD / f"packing-{tag}/bin/python"
    run(packing if packing.exists() else sys.executable, "-m", "venv", "--clear", folder)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}")
    return python


@pytest.mark.skipif(not FULL, reason="installs from the network: it runs with --full")
def test_each_wheel_gives_a_result_within_a_second(wheels, tmp_path):
    for wheel in wheels:
        python = installed(wheel, "", tmp_path / wheel.name)
        environment = alone(tmp_path)
        times = []
        for index in range(3):
            environment["ATTN_CACHE_DIR"] = str(tmp_path / f"{wheel.name}-{index}")
            seconds, version, file = run(python, "-c", FIRST, env=environment, cwd=tmp_path).split()
            assert f"attn-{version}-" in wheel.name and file.startswith(str(tmp_path))
            times.append(float(seconds))
        print(f"{wheel.name}: first results {times} s after the import")
        assert min(times) <= 1, wheel.name


@pytest.mark.skipif(not FULL, reason="installs from the network: it runs with --full")
def test_compile_only_makes_cubins_without_pytorch(wheels, tmp_path):
    [mine] = [wheel for wheel in wheels if f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name]
    python = installed(mine, "[compile-only]", tmp_path / "env")
    packages = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    assert "nvidia-cuda-nvcc==" in packages and "torch" not in packages
    said = run(python, "-c", CUBIN, env=alone(tmp_path, PATH="/nowhere"), cwd=tmp_path).strip()
    assert os.path.samefile(said, next((tmp_path / "env").rglob("nvidia/cu13/bin/ptxas")))


# --- The source distribution ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    code = f"import scikit_build_core.build as build; print(build.build_sdist({str(folder)!r}))"
    run(sys.executable, "-c", code, cwd=ROOT)
    [found] = folder.glob("attn-*.tar.gz")
    return found


def test_a_source_distribution_has_what_a_wheel_is_made_of(sdist):
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    needed = ("cmake", "include", "lib", "python", "runtime", "tools/attn-*")
    files = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "THIRD_PARTY_NOTICES",
             "pyproject.toml", "tools/CMakeLists.txt")  # fmt: skip
    assert members == set(tracked(*needed, *files)) | {"PKG-INFO"}


@pytest.mark.skipif(not FULL, reason="compiles everything: it runs with --full")
def test_a_source_distribution_builds(sdist, wheels, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env/bin/python"
    run(python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--wheel-dir", tmp_path / "wheels", sdist, timeout=4 * 3600)  # fmt: skip
    [built] = (tmp_path / "wheels").glob("attn-*.whl")
    [mine] = [wheel for wheel in wheels if f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name]

    def names(wheel):
        with zipfile.ZipFile(wheel) as archive:
            return {name for name in archive.namelist() if name.startswith("attn/")}

    assert names(built) == names(mine)
    python = installed(built, "", tmp_path / "fresh")
    run(python, "-c", FIRST, env=alone(tmp_path), cwd=tmp_path)
