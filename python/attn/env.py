# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts about the machine for a bug report. `python -m attn` prints them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

MEASURED = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""GPUs that kernels were run, tuned and measured on, by the driver's names (benchmarks/results, docs/gpus.md)."""

_PACKAGES = ("numpy", "torch", "transformers", "trl", "ml_dtypes", "nvidia-cuda-nvcc")
_VARIABLES = ("ATTN_", "CUDA_", "NVIDIA_VISIBLE", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
_DRIVER = Path("/proc/driver/nvidia/version")


def collect() -> dict[str, object]:
    """Return facts by section, of types that JSON has. A fact that cannot be found says why; nothing raises."""
    parts: dict[str, Callable[[], object]] = {
        "attn": _package,
        "python": _python,
        "gpus": _gpus,
        "ptxas": _ptxas,
        "cache": _cache,
        "machine": _machine,
        "environment": _environment,
    }
    return {name: _attempt(part) for name, part in parts.items()}


def gpu_status(name: str, compute_capability: int, target: str) -> str:
    """Say what to expect of a GPU. `name`: the driver's name for it; `compute_capability`: 90 is 9.0; `target`: the
    chip that its kernels are compiled for."""
    own = target.removeprefix("sm_").rstrip("a") == str(compute_capability)
    if compute_capability < 80:
        return "too old: attn compiles for compute capability 8.0 and later"
    if own and name in MEASURED:
        return "measured"
    if own:
        return f"not measured: {target} kernels are checked on the CPU"
    return f"not measured: runs {target} kernels, which are checked on the CPU"


def _attempt(part: Callable[[], object]) -> object:
    try:
        return part()
    except Exception as error:  # The report shows what is broken.
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _package() -> dict[str, object]:
    import attn

    found: dict[str, object] = {
        "version": getattr(attn, "__version__", "unknown"),
        "package": str(Path(__file__).parent),
    }
    try:
        from . import _attn
    except ImportError as error:
        return found | {"extension": f"missing: {error}"}
    info = _attn.build_info()
    return found | {
        "extension": str(_attn.__file__),
        "compiler": info["producer"],
        "targets": _attn.targets(),
        "host_target": info["host_target"],
        "host_abi": info["host_abi"],
    }


def _python() -> dict[str, object]:
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _gpus() -> dict[str, object]:
    from . import _attn

    driver = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text()) if _DRIVER.exists() else None
    found: dict[str, object] = {"driver": driver.group() if driver else None}
    count = _attn.cuda_devices()
    for name in [f"cuda:{index}" for index in range(count)]:
        found[name] = _attempt(lambda name=name: _gpu(name))
    if not count:
        found["none"] = _why_none()
    return found


def _why_none() -> str:
    from .errors import Error
    from .memory.devices import get_device

    try:
        get_device("cuda:0")
    except Error as error:  # The message has the driver's words.
        return str(error)
    return "the driver counts no GPU"


def _gpu(name: str) -> dict[str, object]:
    from .memory.devices import get_device

    device = get_device(name)
    facts = dict(device.properties)
    cuda, capability = facts.pop("driver_version"), facts["compute_capability"]
    status = gpu_status(device.name, capability, device.target)
    return {
        "name": device.name,
        "target": device.target,
        "status": status,
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
    } | facts


def _ptxas() -> dict[str, object]:
    from . import _attn

    path = _attn.build_info()["ptxas"]
    if not path:
        return {"path": None, "version": "none found: the driver assembles kernels"}
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
    version = re.search(r"\bV(\d[\d.]*)", said)
    return {"path": path, "version": version.group(1) if version else f"unknown: {said.strip()!r}"}


def _cache() -> dict[str, object]:
    from .compiler.disk import DiskCache

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The report includes the problem.
        state = DiskCache().state()
    return {
        "directory": state["directory"],
        "problem": state["problem"],
        "entries": state["entries"],
        "bytes": state["bytes"],
        "limit_bytes": state["limit"],
    }


def _machine() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def _environment() -> dict[str, object]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
