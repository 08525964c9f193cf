# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds compiled code by its key: in a bundle or on disk, or else makes it with the compiler.

The order is:

    bundles    kernels that load_bundle has loaded (bundle.py)
    disk       kernels that any process of the user has compiled (disk.py)
    compiler   one thread of one process compiles, while others wait for the result
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from .. import _attn
from ..errors import CacheMiss, CompileError
from ..forks import make_guard
from ..memory.devices import failed
from . import requests
from .child import compile_in_child
from .child import is_wanted as child_is_wanted
from .disk import DiskCache, Entry
from .progress import progress
from .requests import Request


@dataclass
class Counts:
    """The number of kernels that this process got from each source. Hits in memory are not counted."""

    compiled: int = 0
    from_disk: int = 0
    from_bundle: int = 0


counts = Counts()
_bundled: dict[str, Entry] = {}
_forbidden = 0 if os.environ.get("ATTN_FORBID_COMPILING", "0") in ("", "0") else 1


@functools.cache
def disk_cache() -> DiskCache:
    """Return the cache that compile uses. It reads the environment on first use."""
    return DiskCache()


def artifact(request: Request) -> tuple[str, Entry]:
    """Return the key and the compiled code, from the first source that has it."""
    key, entry, _ = _find(request)
    return key, entry


def _find(request: Request) -> tuple[str, Entry, str]:
    """Return the key, the compiled code, and its source: "bundle", "disk" or "compiler"."""
    assembler = "" if request.form == "host" else requests.assembler()
    for key in bundled_keys(request, assembler):
        if entry := _bundled.get(key):
            counts.from_bundle += 1
            return key, entry, "bundle"
    disk, key = disk_cache(), request.key(assembler)
    if entry := disk.load(key):
        counts.from_disk += 1
        return key, entry, "disk"
    if _forbidden:
        asked = f", asked for {said}" if (said := request.asks.said()) else ""
        raise CacheMiss(
            f"compiling is forbidden here, and {request.name()} (key {key}) is neither in memory nor in a bundle nor "
            f"in {disk.directory}; compile it during warm-up, or load a bundle of it made by python -m attn.aot. The "
            f"description{asked}:\n{request.text.strip()}"
        )
    entry, found = disk.get(key, lambda: _build(request, bool(assembler)))
    if found:
        counts.from_disk += 1
    return key, entry, "disk" if found else "compiler"


def add_bundled(key: str, entry: Entry) -> None:
    """Add a kernel of a bundle, for load_bundle."""
    _bundled[key] = entry


def bundled_keys(request: Request, assembler: str) -> list[str]:
    """Return the keys of a bundle's kernels that serve a request, the best first. The user of a bundle wants its
    cubins, whichever assembler made them. PTX alone serves only if there is no assembler here."""
    if request.form == "host":
        return [request.key()]
    return [request.key(requests.ANY_ASSEMBLER), *([] if assembler else [request.key()])]


def _build(request: Request, assembles: bool) -> Entry:
    forms = ["host"] if request.form == "host" else ["ptx", "cubin"] if assembles else ["ptx"]
    try:
        with progress(request.name()):
            made = (compile_in_child if child_is_wanted() else _attn.compile)(
                request.text,
                entry=request.entry,
                target=request.target,
                schedule=request.schedule,
                asks=request.asks,
                forms=forms,
                checked=request.checked,
            )
    except _attn.Failure as failure:
        raise failed(failure, CompileError) from None
    counts.compiled += 1
    about = {"seconds": dict(made.seconds), "remarks": list(made.remarks), "ptxas": made.ptxas}
    return Entry(bytes(made.artifact), about | {"forms": forms})


def load_native(request: Request, device: _attn.Device) -> tuple[_attn.Kernel, str, Entry]:
    """Load the extension's kernel anew; return it with its key and entry."""
    key, entry, place = _find(request)
    while True:
        try:
            return _attn.Kernel(entry.payload, device, request.name()), key, entry
        except _attn.Failure as failure:
            disk_cache().reject(key)
            if place != "disk":
                raise failed(failure, CompileError) from None
            # The file is intact, but cannot be loaded: remove it, and make another.
            key, entry, place = _find(request)


# --- Compiling forbidden -------------------------------------------------------------------------------------


class forbid_compiling:
    """From this call on, compiling a kernel that is neither in memory nor in a bundle nor on disk raises CacheMiss, in
    all threads. A `with` block limits that to the block:

        attn.forbid_compiling()                   # after warm-up: for good
        with attn.forbid_compiling(): serve()     # for a while

    ATTN_FORBID_COMPILING=1 in the environment forbids it for the whole process.
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


_guard = make_guard()
