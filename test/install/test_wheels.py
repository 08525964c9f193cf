# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What wheels and an installed prefix need of the machine: glibc 2.34, as the tag of the wheels says. With --full, also a
wheel and a first result for each Python that is found."""

import re
import subprocess
import sys
import zipfile

import pytest
from attnlab import BUILD, ROOT

PLATFORM = "manylinux_2_34_x86_64"
NEWEST_GLIBC = (2, 34)


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
