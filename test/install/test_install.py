# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `cmake --install` leaves is enough for programs without a compiler: the examples of lesson 11 are built against it
and run on the host device."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from attnlab import BUILD, ROOT

EXAMPLE = ROOT / "examples/11_embedding"
SYMBOLS = Path(__file__).with_name("symbols.txt")
SYSTEM = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
CPP = {"libstdc++.so.6", "libgcc_s.so.1"}


LINES = """
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/LoadArtifact.h"
#include "attn_rt/session/Session.h"
"""


def run(*command, timeout=300, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if not (BUILD / "lib/libattn_runtime.a").exists():
        pytest.skip("nothing to install is built")
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def lib(prefix):
    [library] = prefix.rglob("libattn_runtime.so")
    return library.parent


@pytest.fixture(scope="module")
def programs(prefix, tmp_path_factory):
    """The folder of the example's programs, and of the file that they load."""
    build = tmp_path_factory.mktemp("embedding")
    launcher = [f"-DCMAKE_{lang}_COMPILER_LAUNCHER=ccache" for lang in ("C", "CXX") if shutil.which("ccache")]
    run("cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={prefix}", *launcher)  # fmt: skip
    run("cmake", "--build", build)
    targets = "--target=sm_90a,sm_80"
    run(prefix / "bin/attn-opt", EXAMPLE / "kernels/serve.mlir", "--emit=artifact", targets, "--host-code",
        "-o", build / "serve.attn")  # fmt: skip
    return build


def needed(file):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file)))


def test_a_server_of_many_requests_runs(programs):
    said = run(programs / "serve", programs / "serve.attn", "--device", "host")
    found = re.fullmatch(
        r"11 answers in \d+ steps of \d+ rows on .*: (\d+) forks, (\d+) sequences started over, "
        r"error (\S+)\n",
        said,
    )
    assert found, said
    forks, preempted, error = int(found[1]), int(found[2]), float(found[3])
    assert forks == 3 and preempted > 0 and error < 8e-3


def test_a_program_in_c_runs(programs):
    assert "5 steps of 2 sequences on" in run(programs / "step", programs / "serve.attn")


@pytest.mark.parametrize("program", ["serve", "step"])
def test_bad_input_is_refused_by_name(programs, program, tmp_path):
    content = (programs / "serve.attn").read_bytes()
    other = tmp_path / "other.attn"
    for altered, message in (
        (content[:8] + b"\x07" + content[9:], "expected version 1, got 7"),
        (content[:-1] + bytes([content[-1] ^ 1]), "damaged or altered"),
        (content[:1000], "damaged or cut off"),
    ):
        other.write_bytes(altered)
        done = subprocess.run([programs / program, other], capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr
    run(
        BUILD / "bin/attn-opt",
        EXAMPLE / "kernels/serve.mlir",
        "--emit=artifact",
        "--entry=attend",
        "-o",
        other,
    )
    done = subprocess.run([programs / program, other], capture_output=True, text=True)
    assert done.returncode == 2 and "has no code for the host device" in done.stderr


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="of machines without a GPU")
@pytest.mark.parametrize("program", ["serve", "step"])
def test_without_a_driver_a_gpu_is_refused(programs, program):
    command = [programs / program, programs / "serve.attn", "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "no NVIDIA driver" in done.stderr


def test_attn_run_takes_the_same_file(programs, prefix):
    for entry, dims in (("attend", ["kv_len=20..90"]), ("append", ["rows=20"])):
        command = [
            prefix / "bin/attn-run",
            programs / "serve.attn",
            f"--entry={entry}",
            "--check",
            "--device=host",
        ]
        said = run(*command, *(f"--dim={dim}" for dim in dims))
        assert "loaded in" in said and "right:" in said and "detectors" not in said
    for option, message in (
        ("--target=sm_89", "'attend' is not compiled for sm_89, but for sm_90a, sm_80"),
        ("--schedule=mma", "is compiled: leave it out"),
        ("--entry=attendd", "has no function 'attendd'; it has 'attend', 'append', 'move'"),
    ):
        command = [
            prefix / "bin/attn-run",
            programs / "serve.attn",
            "--entry=attend",
            "--device=host",
            option,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr


def test_programs_are_small_and_start_at_once(programs, lib, tmp_path):
    for file in (programs / "serve", lib / "libattn_runtime.so"):
        run("strip", "-o", tmp_path / "stripped", file)
        assert (tmp_path / "stripped").stat().st_size <= 5e6, file
    assert needed(lib / "libattn_runtime.so") <= SYSTEM
    assert needed(programs / "serve") <= SYSTEM | CPP
    assert needed(programs / "step") - SYSTEM == {"libattn_runtime.so.0"}
    listed = run("ldd", programs / "serve") + run("ldd", programs / "step")
    assert not re.search("llvm|mlir|python", listed, flags=re.I)
    times = []
    for _ in range(
        8
    ):  # of the processor, from nothing to the last of five steps: others may be at work beside it
        begin = os.times()
        run(programs / "step", programs / "serve.attn")
        end = os.times()
        times.append(end.children_user + end.children_system - begin.children_user - begin.children_system)
    assert min(times) <= 0.05


def linked_by(command, lib, folder):
    """A page's command that links, run in a folder."""
    environment = dict(os.environ, PKG_CONFIG_PATH=str(lib / "pkgconfig"))
    shutil.copytree(EXAMPLE, folder / "examples/11_embedding")
    run("sh", "-ec", command, cwd=folder, env=environment)
    return folder / "step"


def test_programs_say_where_the_library_is(lib, programs, tmp_path):
    """Programs find the library by an rpath or by LD_LIBRARY_PATH, as docs/embedding.md says; without either they do not."""
    [command] = re.findall(r"^cc .*step\.c .*$", (ROOT / "docs/embedding.md").read_text(), flags=re.M)
    step = linked_by(command, lib, tmp_path / "with")
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    run(step, programs / "serve.attn", env=environment)
    without = re.sub(r"-Wl,-rpath,\$\(.*?\) ", "", command)
    assert without != command
    step = linked_by(without, lib, tmp_path / "without")
    run(step, programs / "serve.attn", env=environment | {"LD_LIBRARY_PATH": str(lib)})
    done = subprocess.run([step, programs / "serve.attn"], capture_output=True, text=True, env=environment)
    assert done.returncode != 0
    assert "error while loading shared libraries: libattn_runtime.so.0" in done.stderr


def test_pkg_config_finds_it(prefix, lib, programs, tmp_path):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(lib / "pkgconfig"), LD_LIBRARY_PATH=str(lib))
    flags = run("pkg-config", "--cflags", "--libs", "attn-runtime", env=environment).split()
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", EXAMPLE / "step.c", *flags, "-o", tmp_path / "step")
    run(tmp_path / "step", programs / "serve.attn", env=environment)
    source = tmp_path / "compile.c"
    source.write_text("""
#include <attn-c/Compiler.h>
#include <attn-c/Runtime.h>
#include <stdio.h>
int main(void) {
  AttnSource source = {"func.func @x(", 13, "text", 0, 0, 0};
  AttnCompiled *compiled;
  AttnStatus status = attnCompile(&source, AttnFormHost, &compiled);
  printf("%s %s", attnVersion(), status.message);
  attnStatusFree(status);
  return status.kind != AttnStatusInput;
}
""")
    flags = run("pkg-config", "--cflags", "--libs", "attn-compiler", env=environment).split()
    run("cc", source, *flags, "-o", tmp_path / "compile")
    assert "text:1:13: error: " in run(tmp_path / "compile", env=environment)


def test_headers_stand_alone(prefix, tmp_path):
    include = prefix / "include"
    names = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
    assert not any(room in name for name in names for room in ("/capi/", "/workload/", "/picture/"))
    c = [name for name in names if name.startswith("attn-c/")]
    assert len(c) == 6 and "attn_rt/session/Session.h" in names
    for source, listed, flags in (
        ("all.c", c, ["-std=c99", "-pedantic"]),
        ("all.cpp", names, ["-std=c++20"]),
    ):
        (tmp_path / source).write_text("".join(f'#include "{name}"\n' for name in listed))
        run("cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags, f"-I{include}", tmp_path / source)


@pytest.mark.parametrize("page", ["README.md", "docs/embedding.md"])
def test_what_pages_show_compiles(prefix, page, tmp_path):
    [block] = re.findall(r"^```cpp\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)
    if "#include" not in block:  # some lines of a function
        block = f"{LINES}void f(const attn::rt::Batch &batch, const attn::rt::Plan &plan, uint64_t q) {{\n{block}}}\n"
    (tmp_path / "shown.cpp").write_text(block)
    run("c++", "-std=c++20", "-fsyntax-only", f"-I{prefix / 'include'}", tmp_path / "shown.cpp")


def test_versions_agree(prefix, programs):
    [version] = re.findall(r"project\(attn VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    header = (prefix / "include/attn-c/Common.h").read_text()
    assert (
        ".".join(re.findall(r"^#define ATTN_C_(?:MAJOR|MINOR|PATCH) (\d+)$", header, flags=re.M)) == version
    )
    assert run(programs / "step", programs / "serve.attn").endswith(f", attn {version}\n")
    for file in prefix.rglob("*.pc"):
        assert f"Version: {version}\n" in file.read_text()


def exported(library):
    lines = run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    return {line.split()[-1] for line in lines if line.split()[-2] in "TW"}


def test_symbols_are_those_of_the_list(lib):
    """A name that goes, or changes its version, breaks programs: then the library's version changes, and the list."""
    listed = {}
    for line in SYMBOLS.read_text().splitlines():
        if line and not line.startswith("#"):
            library, symbol = line.split()
            listed.setdefault(library, set()).add(symbol)
    for library in ("runtime", "compiler"):
        expected = listed["both"] | listed.get(library, set())
        assert exported(lib / f"libattn_{library}.so") == expected, (
            f"of {library}; write it into {SYMBOLS.name}"
        )


def test_a_program_runs_with_the_next_patch_version(lib, programs, tmp_path):
    """The library of the next version is this one with a function more."""
    (tmp_path / "more.c").write_text("int attnNext(void) { return 1; }\n")
    symbols = [name.partition("@@") for name in exported(lib / "libattn_runtime.so")]
    versions = sorted({version for _, _, version in symbols})
    maps = "".join(
        f"{version.replace('0.1.0', '0.1.1')} {{ global: "
        f"{' '.join(f'{name};' for name, _, of in symbols if of == version)} "
        f"{'local: *;' if version == 'ATTN_0' else ''} }};\n"
        for version in versions
    )
    (tmp_path / "next.map").write_text(maps + "ATTN_0.1 { global: attnNext; } ATTN_0;\n")
    run("c++", "-shared", "-fPIC", tmp_path / "more.c", "-Wl,--whole-archive", lib / "libattn_runtime.a",
        "-Wl,--no-whole-archive", f"-Wl,--version-script={tmp_path / 'next.map'}",
        "-Wl,-soname,libattn_runtime.so.0", "-o", tmp_path / "libattn_runtime.so.0")  # fmt: skip
    environment = dict(os.environ, LD_LIBRARY_PATH=str(tmp_path))
    assert str(tmp_path) in run("ldd", programs / "step", env=environment)
    said = run(programs / "step", programs / "serve.attn", env=environment)
    assert "5 steps" in said


TWICE = """
import ctypes, sys
class Status(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("message", ctypes.c_char_p)]
content = open(sys.argv[3], "rb").read()
found = []
for path in sys.argv[1:3]:
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    library.attnDeviceOpenHost.restype = library.attnKernelLoad.restype = Status
    library.attnKernelLoad.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                       ctypes.c_char_p, ctypes.c_void_p]
    device, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.attnDeviceOpenHost(None, ctypes.byref(device)).kind == 0
    status = library.attnKernelLoad(device, content, len(content), b"x", b"attend", ctypes.byref(kernel))
    assert status.kind == 0, status.message
    found.append((library, device, kernel))
assert ctypes.addressof(found[0][0].attnKernelLoad) != ctypes.addressof(found[1][0].attnKernelLoad)
for library, device, kernel in found:
    library.attnDeviceDestroy(device)
    library.attnKernelDestroy(kernel)
print("two")
"""


def test_two_copies_live_in_one_process(lib, programs, tmp_path):
    first = lib / "libattn_runtime.so.0"
    second = shutil.copy(first, tmp_path / "libother.so")
    assert run(sys.executable, "-c", TWICE, first, second, programs / "serve.attn") == "two\n"


def test_nothing_names_the_machine_that_built_it(prefix):
    for path in prefix.rglob("*"):
        if path.is_file() and path.suffix in (".cmake", ".pc", ".h"):
            assert str(ROOT) not in path.read_text(), path


def test_licences_are_there(prefix):
    documents = {path.name: path.read_bytes() for path in (prefix / "share/doc").rglob("*") if path.is_file()}
    for name in ("LICENSE", "THIRD_PARTY_NOTICES"):
        assert documents[name] == (ROOT / name).read_bytes()
