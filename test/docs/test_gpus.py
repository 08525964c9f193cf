# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/gpus.md says of GPUs and drivers what the sources say."""

import re
import subprocess

from attnlab import ROOT, program

PAGE = (ROOT / "docs/gpus.md").read_text()


def chips():
    """Name, compute capability and PTX version of each row of the table of chips."""
    text = (ROOT / "runtime/src/support/Chips.cpp").read_text()
    return re.findall(r'^    \{"(\w+)", (\d+), (\d+),', text, flags=re.M)


def cuda_of_ptx():
    """The CUDA version that first took a version of PTX, as the runtime says it."""
    return dict(
        re.findall(r'\{"([\d.]+)", "([\d.]+)"\}', (ROOT / "runtime/src/cuda/CudaModule.cpp").read_text())
    )


def dotted(version):
    return f"{version[:-1]}.{version[-1]}"


def rows():
    found = re.findall(r"^\| ([^|]*) \| ([\d.]+) \| `(\w+)` \| ([\d.]+) \| ([\w ]+) \|$", PAGE, flags=re.M)
    assert len(found) >= 6
    return found


def test_targets_and_drivers():
    said = [(target, capability, cuda) for _, capability, target, cuda, _ in rows()]
    cuda = cuda_of_ptx()
    assert said == [(name, dotted(capability), cuda[dotted(ptx)]) for name, capability, ptx in chips()]


def test_ptx_has_the_versions_of_the_table():
    for name, _, ptx in chips():
        done = subprocess.run(
            [program("attn-opt"), ROOT / "examples/03_softcap/softcap.mlir", f"--target={name}", "--emit=ptx", "-o", "-"],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert f".version {dotted(ptx)}\n" in done.stdout, done.stderr


def test_measured_gpus():
    env = (ROOT / "python/attn/env.py").read_text()
    [listed] = re.findall(r"^MEASURED = \((.*)\)$", env, flags=re.M)
    names = re.findall(r'"([^"]*)"', listed)
    assert all(f"`{name}`" in PAGE for name in names)
    measured = [gpus for gpus, *_, status in rows() if status == "measured"]
    assert [set(gpus.split(", ")) for gpus in measured] == [{name.split()[1] for name in names}]
    assert {status for *_, status in rows()} == {"measured", "not measured"}


def test_least_drivers():
    said = dict(re.findall(r"^\| ([^|]*) \| (\d[\d.]*)[^|\n]*\|$", PAGE, flags=re.M))
    sources = {
        "opening": ("CudaApi.h", r"oldestDriver = (\d+);"),
        "recording": ("CudaRecorder.cpp", r"CUDA ([\d.]+) \(driver 470\) or later"),
        "TMA": ("CudaTensorMap.cpp", r"CUDA ([\d.]+) \(driver 525\) or"),
        "launches": ("CudaRecorder.h", r"driverVersion >= (\d+);"),
    }
    for word, (name, pattern) in sources.items():
        [version] = re.findall(pattern, (ROOT / "runtime/src/cuda" / name).read_text())
        version = version if "." in version else f"{int(version) // 1000}.{int(version) % 1000 // 10}"
        assert [cuda for about, cuda in said.items() if about.startswith(word)] == [version]
