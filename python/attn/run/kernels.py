# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a description to a kernel: out of this process's memory, or loaded from what the compiler room has.

Kernels are kept by what `compile` was given: those that were used last.
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

_USUAL_KERNELS = 256  # in memory: some 70 MB on the host device
_MOST_KEYS = 64  # of one of them: sizes of windows, ways to say the same


class Kept:
    """Code that is in memory for `compile`, and under which keys: what it was given (with sizes of windows and sinks,
    so that each is a Kernel of its own), and the request and device."""

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
    """A kernel, ready to plan and run.

    spec      an attn.Spec, or MLIR text as in examples/*.mlir
    target    sm_80, sm_86, sm_89, sm_90a, sm_100a or sm_120a; by default the device's own (sm_90a on the host device)
    schedule  auto, mma or wgmma
    device    None (a GPU where there is one, else the host device), "host", "cuda", "cuda:1", a torch.device
    entry     the function, where the text has several
    checked   host device: instrumented for its detectors, which find races and stray accesses; slower

    The same arguments give the same object, as long as it is kept (limit_kernels). Any thread may call it; while one compiles, others that ask for the same
    wait. Errors: CompileError (the compiler's words), DeviceError, CacheMiss where compiling is forbidden.
    """
    return _compiled(spec, None, target, schedule, device, entry, checked)


def compile_asked(spec: object, asks: Asks, device: object) -> Kernel:
    """As `compile`; `asks` in place of what the description asks for."""
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
        if place is not get_device(device_name(place)):  # a device of the caller's own: it is theirs to keep
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
    """The compiler's words without the places in a text that the user has not written: `spec:6:14: error: ` in front of
    a message, and behind it the line and a caret."""
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
    """What pickle keeps of a kernel: what it was compiled from, and where it runs."""
    if kernel._generation == devices.generation and kernel._native.device is not get_device(kernel.device):
        raise TypeError(
            f"kernel: {kernel.entry} runs on a device object of the caller's own, which cannot be pickled; pickle "
            "its attn.Spec, and compile that for the device"
        )
    return restore, (tuple(kernel._request), kernel.device, kernel.text, kernel._plain, kernel.ends)


copyreg.pickle(Kernel, _reduced)


def restore(request: tuple, device: str, text: str, plain: str, ends: tuple[int, ...]) -> Kernel:
    """A kernel that was pickled: out of this process's memory or a cache, or compiled again. `text`, `plain` (the text
    without what is asked for) and `ends` are its description's. Errors: as of `compile`."""
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
    """A kernel out of a file of artifacts, as attn-opt --emit=artifact makes them; nothing is compiled.

    path    the file. It is code: load only what you would execute
    entry   the function, where the file has several
    device  as for `compile`

    Errors: CompileError where the file is damaged, of another version, or has no such function or no code for the
    device; OSError where it cannot be read.
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
    """The kernel, or the one that another thread has put there meanwhile; at the cost of those used longest ago."""
    with _guard:
        kernel, kept = _kernels.setdefault(key, (kernel, kept))
        kept.used = next(_clock)
        kept.keys[key] = None
        if len(kept.keys) == 1:
            _forget_some()
        elif len(kept.keys) > _MOST_KEYS:
            _, oldest, *_ = kept.keys  # the first is the request
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
    """Forgets this process's kernels; those that are in use live on. What is on disk stays."""
    with _guard:
        _kernels.clear()


def kernels_in_memory() -> int:
    """How many compiled kernels are kept; descriptions that differ in sizes of windows and sinks alone share one."""
    with _guard:
        return len({id(kept) for _, kept in _kernels.values()})


def limit_kernels(most: int) -> None:
    """Keeps at most so many compiled kernels in this process's memory, those that were used last. ATTN_KERNELS in the
    environment says so from the start; 256 where nothing does.

    A kernel that is forgotten lives on for whoever holds it, or a plan of it, and comes from disk where it is asked for
    again. Errors: SpecError.
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
    """Kernels hold the devices of the parent: a child gets its own, from disk."""
    _left_behind.append(dict(_kernels))
    _kernels.clear()


os.register_at_fork(after_in_child=_after_fork)
