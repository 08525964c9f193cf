# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled code by its key: out of a bundle or the disk, and only else out of the compiler.

What is asked, in this order:

    bundles    what load_bundle brought (bundle.py)
    disk       what any process of the user compiled (disk.py)
    compiler   one thread of one process, while others wait for what it makes
"""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import dataclass

from .. import _attn
from ..errors import CacheMiss, CompileError
from ..memory.devices import failed
from . import requests
from .disk import DiskCache, Entry
from .progress import progress
from .requests import Request


@dataclass
class Counts:
    """Kernels that this process has got from each place. Hits in memory are not counted."""

    compiled: int = 0
    from_disk: int = 0
    from_bundle: int = 0


counts = Counts()
_bundled: dict[str, Entry] = {}
_forbidden = 0 if os.environ.get("ATTN_FORBID_COMPILING", "0") in ("", "0") else 1


@functools.cache
def disk_cache() -> DiskCache:
    """The one that compile uses. The environment is read when it is first needed."""
    return DiskCache()


def artifact(request: Request) -> tuple[str, Entry]:
    """The key and the compiled code, from wherever it is at hand."""
    keys = _acceptable_keys(request)
    for key in keys:
        if entry := _bundled.get(key):
            counts.from_bundle += 1
            return key, entry
    disk = disk_cache()
    for key in keys:
        if entry := disk.load(key):
            counts.from_disk += 1
            return key, entry
    key = keys[-1]
    if _forbidden:
        raise CacheMiss(
            f"compiling is forbidden here, and {request.name()} (key {key}) is neither in memory nor in a bundle nor "
            f"in {disk.directory}; compile it during warm-up, or load a bundle of it made by python -m attn.aot. The "
            f"description:\n{request.text.strip()}"
        )
    entry, found = disk.get(key, lambda: _build(request))
    if found:
        counts.from_disk += 1
    return key, entry


def add_bundled(key: str, entry: Entry) -> None:
    """For load_bundle."""
    _bundled[key] = entry


def _acceptable_keys(request: Request) -> list[str]:
    """Best first; the last is what is built here. Without ptxas a cubin from elsewhere is still welcome."""
    if request.form == "host":
        return [request.key()]
    return (
        [request.key(cubin=True)]
        if requests.build_info()["ptxas"]
        else [request.key(cubin=True), request.key()]
    )


def _build(request: Request) -> Entry:
    forms = (
        ["host"]
        if request.form == "host"
        else ["ptx", "cubin"]
        if requests.build_info()["ptxas"]
        else ["ptx"]
    )
    try:
        with progress(request.name()):
            made = _attn.compile(
                request.text,
                entry=request.entry,
                target=request.target,
                schedule=request.schedule,
                forms=forms,
                checked=request.checked,
            )
    except _attn.Failure as failure:
        raise failed(failure, CompileError) from None
    counts.compiled += 1
    about = {"seconds": dict(made.seconds), "remarks": list(made.remarks), "ptxas": made.ptxas}
    return Entry(bytes(made.artifact), about | {"forms": forms})


def load_native(request: Request, device: _attn.Device) -> tuple[_attn.Kernel, str, Entry]:
    """The extension's kernel, loaded anew, with its key and where it came from."""
    key, entry = artifact(request)
    try:
        return _attn.Kernel(entry.payload, device, request.name()), key, entry
    except _attn.Failure as failure:
        # The file is what was written, and yet nothing to load: it goes, and the next compile makes another.
        disk_cache().reject(key)
        raise failed(failure, CompileError) from None


# --- Compiling forbidden -------------------------------------------------------------------------------------


class forbid_compiling:
    """From this call on, compiling what is neither in memory nor in a bundle nor on disk raises CacheMiss, in all
    threads. As a context manager, until its end:

        attn.forbid_compiling()                   # after warm-up: for good
        with attn.forbid_compiling(): serve()     # for a while

    ATTN_FORBID_COMPILING=1 in the environment says so for the whole process.
    """

    def __init__(self) -> None:
        self._change(1)

    def __enter__(self) -> forbid_compiling:
        return self

    def __exit__(self, *_: object) -> None:
        self._change(-1)

    @staticmethod
    def _change(by: int) -> None:
        global _forbidden
        with _guard:
            _forbidden += by


_guard = threading.Lock()


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
