# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the kernel of a description: in this process's memory, or loaded from the compiler's caches.

Kernels are kept by the arguments of `compile`, the most recently used ones.
"""

from __future__ import annotations

import contextlib
import copyreg
import itertools
import json
import os
import re
from pathlib import Path

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.locks import ThreadLocks
from ..compiler.requests import Asks, Request, form_of, request_for
from ..describe import checks
from ..errors import CompileError, Error, expected
from ..forks import make_guard
from ..memory import devices
from ..memory.devices import device_name, failed, get_device
from .kernel import Kernel

_USUAL_KERNELS = 256  # In memory; some 70 MB on the host device.
_MOST_KEYS = 64  # For one kernel: sizes of windows, and other descriptions of the same.


class Kept:
    """Code that is kept in memory for `compile`, and its keys: arguments (those with other sizes of windows and sinks
    give a Kernel of their own), and request and device."""

    __slots__ = ("keys", "used")

    def __init__(self) -> None:
        self.keys: dict[tuple, None] = {}
        self.used = 0


_kernels: dict[tuple, tuple[Kernel, Kept]] = {}
_clock = itertools.count()
_flights = ThreadLocks()
_guard = make_guard()
_left_behind: list[dict] = []


def compile(
    spec: object,
    *,
    target: str | None = None,
    schedule: str = "auto",
    device: object = None,
    entry: str = "",
    checked: bool = False,
) -> Kernel:
    """Compile a description into a kernel, ready to plan and run.

    spec      an attn.Spec, or MLIR text as in examples/*.mlir
    target    sm_80, sm_86, sm_89, sm_90a, sm_100a or sm_120a; by default the device's own (sm_90a on the host device)
    schedule  auto, mma or wgmma
    device    None (a GPU if there is one, else the host device), "host", "cuda", "cuda:1", a torch.device
    entry     the function, if the text has several
    checked   host device: instrumented for its detectors, which find races and stray accesses; slower

    Equal arguments return the same object, as long as it is kept (limit_kernels). Any thread may call it; while one
    compiles, others that ask for the same kernel wait. Raises CompileError (the compiler's words), DeviceError, and
    CacheMiss if compiling is forbidden.
    """
    return _compiled(spec, None, target, schedule, device, entry, checked)


def compile_asked(spec: object, asks: Asks, device: object) -> Kernel:
    """Compile as `compile` does, with `asks` instead of the description's requests."""
    return _compiled(spec, asks, None, "auto", device, "", False)


def _compiled(
    spec: object,
    asks: Asks | None,
    target: str | None,
    schedule: str,
    device: object,
    entry: str,
    checked: bool,
) -> Kernel:
    given = (spec, asks, target, schedule, device, entry, checked)
    try:
        kernel, kept = _kernels[given]
        kept.used = next(_clock)
        return kernel
    except (KeyError, TypeError):
        pass
    place = get_device(device)
    request = request_for(
        spec,
        target=place.target if target is None else target,
        schedule=schedule,
        form=form_of(place),
        entry=entry,
        checked=checked,
        asks=asks,
    )
    try:
        # The caller's own device object, which the caller keeps.
        if place is not get_device(device_name(place)):
            return _load(request, place).described_by(spec)
        loaded = request, device_name(place)
        with _flights.hold(loaded):
            kernel, kept = _kernels.get(loaded) or (_load(request, place), Kept())
            _keep(loaded, kernel, kept)
    except CompileError as error:
        if isinstance(spec, str):
            raise
        raise CompileError(_without_places(str(error))) from None
    described = kernel.described_by(spec)
    with contextlib.suppress(TypeError):
        return _keep(given, described, kept)
    return described


_PLACE = re.compile(r"\w+:\d+:\d+: (?:error: )?(.*)")
_CARET = re.compile(r" *\^~*")


def _without_places(message: str) -> str:
    """Remove positions in a text that the user has not written from the compiler's message: `spec:6:14: error: ` before
    it, and the line and a caret after it."""
    lines, said = message.splitlines(), []
    while lines:
        line = lines.pop(0)
        if place := _PLACE.fullmatch(line):
            line = place[1]
            if len(lines) > 1 and _CARET.fullmatch(lines[1]):
                del lines[:2]
        said.append(line)
    return "\n".join(said)


def _reduced(kernel: Kernel) -> tuple:
    """Return what pickle keeps of a kernel: what it was compiled from, and its device."""
    if kernel._generation == devices.generation and kernel._native.device is not get_device(kernel.device):
        raise TypeError(
            f"kernel: {kernel.entry} runs on a device object of the caller's own, which cannot be pickled; pickle "
            "its attn.Spec, and compile that for the device"
        )
    return restore, (tuple(kernel._request), kernel.device, kernel.text, kernel._plain, kernel.ends)


copyreg.pickle(Kernel, _reduced)


def restore(request: tuple, device: str, text: str, plain: str, ends: tuple[int, ...]) -> Kernel:
    """Return a kernel that was pickled: from this process's memory or a cache, or compiled again. `text`, `plain` (the
    text without requests) and `ends` are its description's. Raises the errors of `compile`."""
    loaded = Request(*request), device
    with _flights.hold(loaded):
        kernel, kept = _kernels.get(loaded) or (_load(loaded[0], get_device(device)), Kept())
        kernel = _keep(loaded, kernel, kept)
    if (plain, ends) == (kernel._plain, kernel.ends):
        kernel.text = text
        return kernel
    resized = (*loaded, text, ends)
    known, kept = _kernels.get(resized) or (kernel._resized(text, plain, ends), kept)
    return _keep(resized, known, kept)


def load(path: str | os.PathLike, *, entry: str = "", device: object = None) -> Kernel:
    """Load a kernel from a file of artifacts, as attn-opt --emit=artifact makes them; nothing is compiled.

    path    the file. It is code: load only files that you would execute
    entry   the function, if the file has several
    device  as for `compile`

    Raises CompileError if the file is damaged, of another version, or lacks the function or code for the device;
    OSError if it cannot be read.
    """
    place = get_device(device)
    if not isinstance(entry, str):
        raise expected(CompileError, "entry", "the name of a function", entry)
    try:
        native = _attn.Kernel(Path(path).read_bytes(), place, str(path), entry=entry)
    except _attn.Failure as failure:
        raise failed(failure, CompileError) from None
    manifest = json.loads(native.manifest)
    request = Request(
        manifest["problem"], Asks(), native.entry, manifest["target"], "auto", form_of(place), native.checked
    )
    return Kernel(native, request=request, key=manifest["content_hash"], about={})


def _keep(key: tuple, kernel: Kernel, kept: Kept) -> Kernel:
    """Keep the kernel, and drop the least recently used ones. Returns it, or the one that another thread has kept
    meanwhile."""
    with _guard:
        kernel, kept = _kernels.setdefault(key, (kernel, kept))
        kept.used = next(_clock)
        kept.keys[key] = None
        if len(kept.keys) == 1:
            _forget_some()
        elif len(kept.keys) > _MOST_KEYS:
            _, oldest, *_ = kept.keys  # The first key is the request.
            del kept.keys[oldest]
            _kernels.pop(oldest, None)
    return kernel


def _forget_some() -> None:
    all_kept = {id(kept): kept for _, kept in _kernels.values()}.values()
    for kept in sorted(all_kept, key=lambda kept: kept.used)[: max(len(all_kept) - _most, 0)]:
        for key in kept.keys:
            _kernels.pop(key, None)


def _load(request: Request, device: _attn.Device) -> Kernel:
    native, key, entry = load_native(request, device)
    return Kernel(native, request=request, key=key, about=entry.about)


def clear_kernels() -> None:
    """Forget this process's kernels; those in use live on. Files on disk stay."""
    with _guard:
        _kernels.clear()


def kernels_in_memory() -> int:
    """Return how many compiled kernels are kept; descriptions that differ only in sizes of windows and sinks share one."""
    with _guard:
        return len({id(kept) for _, kept in _kernels.values()})


def limit_kernels(most: int) -> None:
    """Keep at most so many compiled kernels in this process's memory, the most recently used ones. The environment
    variable ATTN_KERNELS sets the initial limit; by default 256.

    A forgotten kernel lives on while the caller holds it, or a plan of it; a new request loads it from disk. Raises
    SpecError.
    """
    global _most
    most = checks.integer("most", most, 1, 2**31 - 1)
    with _guard:
        _most = most
        _forget_some()


def _limit_of_environment() -> int:
    text = os.environ.get("ATTN_KERNELS", "").strip()
    if not text:
        return _USUAL_KERNELS
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise Error(f"ATTN_KERNELS: expected the most kernels to keep in memory, at least 1, got {text!r}")
    return int(text)


_most = _limit_of_environment()


def _after_fork() -> None:
    """Forget the parent's kernels, which hold its devices: a child loads its own from disk."""
    _left_behind.append(dict(_kernels))
    _kernels.clear()


os.register_at_fork(after_in_child=_after_fork)
