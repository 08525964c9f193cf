# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m attn.env: what a report of a mistake should say about the machine. --json for programs."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

_PACKAGES = ("numpy", "torch", "transformers", "ml_dtypes", "nvidia-cuda-nvcc")
_VARIABLES = ("ATTN_", "CUDA_", "NVIDIA_VISIBLE", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")


def collect() -> dict[str, object]:
    """Everything by section. What cannot be found out says why; nothing raises."""
    return {
        "attn": _attempt(_attn_build),
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        },
        "machine": {
            "system": platform.platform(),
            "libc": " ".join(platform.libc_ver()),
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
        },
        "devices": _attempt(_devices),
        "ptxas": _attempt(_ptxas),
        "cache": _attempt(_cache),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
        },
    }


def _attempt(part) -> object:
    try:
        return part()
    except Exception as error:  # what is broken is what the report is for
        return f"{type(error).__name__}: {error}"


def _attn_build() -> dict[str, str]:
    from . import _attn

    return dict(_attn.build_info()) | {"package": str(Path(__file__).parent)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def _devices() -> dict[str, object]:
    from . import _attn

    found: dict[str, object] = {}
    for name in ["host", *(f"cuda:{index}" for index in range(_attn.cuda_devices()))]:
        found[name] = _attempt(lambda name=name: _device(name))
    if len(found) == 1:
        found["cuda"] = _attempt(lambda: _device("cuda:0"))  # the driver's own words
    return found


def _device(name: str) -> dict[str, object]:
    from .memory.devices import get_device

    device = get_device(name)
    return {"name": device.name, "target": device.target, "code": device.form} | dict(device.properties)


def _ptxas() -> dict[str, str]:
    from . import _attn

    path = _attn.build_info()["ptxas"]
    if not path:
        return {"path": "", "version": "none found: kernels for GPUs are PTX, assembled by the driver"}
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
    return {"path": path, "version": said.strip().splitlines()[-1] if said.strip() else "says nothing"}


def _cache() -> dict[str, object]:
    from .compiler.artifacts import disk_cache
    from .run import kernels

    return disk_cache().state() | {
        "in memory": f"{kernels.kernels_in_memory()} of at most {kernels._most} kernels"
    }


def _lines(value: object, indent: int = 2):
    for name, item in value.items():
        if isinstance(item, dict):
            yield f"{' ' * indent}{name}"
            yield from _lines(item, indent + 2)
        else:
            yield f"{' ' * indent}{name:<20} {item if item not in (None, '') else '-'}"


def main(arguments: list[str] | None = None) -> int:
    """The command: its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m attn.env", description=(__doc__ or "").partition(": ")[2]
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args(arguments)
    found = collect()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for section, content in found.items():
        print(section)
        for line in _lines(content) if isinstance(content, dict) else [f"  {content}"]:
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
