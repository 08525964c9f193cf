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
    key, entry, _ = _find(request)
    return key, entry


def _find(request: Request) -> tuple[str, Entry, str]:
    """The key, the compiled code, and where it was: "bundle", "disk" or, where it was nowhere, "compiler"."""
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
    """For load_bundle."""
    _bundled[key] = entry


def bundled_keys(request: Request, assembler: str) -> list[str]:
    """Best first. Whoever loads a bundle wants its cubins, whichever assembler made them; PTX alone does only where
    there is no assembler to do better."""
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
    """The extension's kernel, loaded anew, with its key and where it came from."""
    key, entry, place = _find(request)
    while True:
        try:
            return _attn.Kernel(entry.payload, device, request.name()), key, entry
        except _attn.Failure as failure:
            disk_cache().reject(key)
            if place != "disk":
                raise failed(failure, CompileError) from None
            # The file is what was written, and yet nothing to load: it goes, and another is made.
            key, entry, place = _find(request)


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


_guard = make_guard()
