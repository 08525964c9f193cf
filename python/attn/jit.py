"""From a description to a kernel: out of memory, a bundle or the disk, and only else out of the compiler.

What decides a kernel's code is a Request, and with the compiler's identity its key: the same text,
target and schedule give the same key in every process and on every machine with this build of attn.

    memory     this process's kernels, by what `compile` was given: those that were used last
    bundles    what load_bundle brought (bundle.py)
    disk       what any process of the user compiled (disk.py)
    compiler   one thread of one process, while others wait for what it makes
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import _attn, checks
from .devices import device_name, failed, get_device
from .disk import DiskCache, Entry
from .errors import CacheMiss, CompileError, Error, SpecError, closest, expected
from .kernel import Kernel
from .locks import ThreadLocks

_KEY_FORMAT = 1
_USUAL_KERNELS = 256  # in memory: some 70 MB on the host device
_MOST_KEYS = 64  # of one of them: sizes of windows, ways to say the same
_QUIET_SECONDS = 0.5  # a compilation that takes no longer is not spoken of


@dataclass
class Counts:
    """Kernels that this process has got from each place. Hits in memory are not counted."""

    compiled: int = 0
    from_disk: int = 0
    from_bundle: int = 0


class Request(NamedTuple):
    """All that decides what the compiler makes, but for the compiler. `form`: "host" or "cuda"."""

    text: str
    entry: str
    target: str
    schedule: str
    form: str
    checked: bool

    def key(self, cubin: bool = False) -> str:
        """32 hexadecimal digits. `cubin`: with code for the target beside the PTX."""
        info = build_info()
        code = (
            [info["host_target"], info["host_abi"]] if self.form == "host" else ["cubin" if cubin else "ptx"]
        )
        content = [_KEY_FORMAT, info["producer"], *self, *code]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()

    def name(self) -> str:
        """How messages call it."""
        _, _, rest = self.text.partition("func.func @")
        entry = self.entry or rest.partition("(")[0].strip() or "spec"
        return f"{entry} for {self.target}" + (" on the host device" if self.form == "host" else "")


class Kept:
    """Code that is in memory for `compile`, and under which keys: what it was given (with sizes of windows and sinks,
    so that each is a Kernel of its own), and the request and device."""

    __slots__ = ("keys", "used")

    def __init__(self) -> None:
        self.keys: dict[tuple, None] = {}
        self.used = 0


counts = Counts()
_kernels: dict[tuple, tuple[Kernel, Kept]] = {}
_clock = itertools.count()
_bundled: dict[str, Entry] = {}
_flights = ThreadLocks()
_left_behind: list[dict] = []
_forbidden = 0 if os.environ.get("ATTN_FORBID_COMPILING", "0") in ("", "0") else 1


@functools.cache
def build_info() -> dict[str, str]:
    """Of the extension, read once."""
    return _attn.build_info()


@functools.cache
def disk_cache() -> DiskCache:
    """The one that compile uses. The environment is read when it is first needed."""
    return DiskCache()


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
    target    sm_80, sm_89, sm_90a, sm_100a or sm_120a; by default the device's own (sm_90a on the host device)
    schedule  auto, mma or wgmma
    device    None (a GPU where there is one, else the host device), "host", "cuda", "cuda:1", a torch.device
    entry     the function, where the text has several
    checked   host device: instrumented for its detectors, which find races and stray accesses; slower

    The same arguments give the same object, as long as it is kept (limit_kernels). Any thread may call it; while one compiles, others that ask for the same
    wait. Errors: CompileError (the compiler's words), DeviceError, CacheMiss where compiling is forbidden.
    """
    given = (spec, target, schedule, device, entry, checked)
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
    )
    if place is not get_device(device_name(place)):  # a device of the caller's own: it is theirs to keep
        return _load(request, place).described_by(spec)
    loaded = request, device_name(place)
    with _flights.hold(loaded):
        kernel, kept = _kernels.get(loaded) or (_load(request, place), Kept())
        _keep(loaded, kernel, kept)
    described = kernel.described_by(spec)
    with contextlib.suppress(TypeError):
        return _keep(given, described, kept)
    return described


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


def form_of(device: _attn.Device) -> str:
    return "host" if device.form == "host" else "cuda"


def request_for(
    spec: object, *, target: str, schedule: str = "auto", form: str, entry: str = "", checked: bool = False
) -> Request:
    """Checks everything but the text, which is the compiler's to judge. Of a Spec the form is compiled: sizes of
    windows and sinks are a run's."""
    spec = spec.form() if callable(getattr(spec, "form", None)) and not isinstance(spec, type) else spec
    text = spec if isinstance(spec, str) else getattr(spec, "mlir", None)
    if text is None or isinstance(spec, type):
        raise expected(SpecError, "spec", "an attn.Spec or MLIR text", spec)
    for argument, value, legal in (
        ("target", target, _attn.targets()),
        ("schedule", schedule, ["auto", "mma", "wgmma"]),
    ):
        if not isinstance(value, str) or value not in legal:
            raise expected(CompileError, argument, ", ".join(legal), value, nearest=closest(value, legal))
    if not isinstance(entry, str):
        raise expected(CompileError, "entry", "the name of a function", entry)
    return Request(text if isinstance(text, str) else text(), entry, target, schedule, form, bool(checked))


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
    return [request.key(cubin=True)] if build_info()["ptxas"] else [request.key(cubin=True), request.key()]


def _build(request: Request) -> Entry:
    forms = ["host"] if request.form == "host" else ["ptx", "cubin"] if build_info()["ptxas"] else ["ptx"]
    try:
        with _progress(request.name()):
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


def _load(request: Request, device: _attn.Device) -> Kernel:
    native, key, entry = load_native(request, device)
    return Kernel(native, request=request, key=key, about=entry.about)


def load_native(request: Request, device: _attn.Device) -> tuple[_attn.Kernel, str, Entry]:
    """The extension's kernel, loaded anew, with its key and where it came from."""
    key, entry = artifact(request)
    try:
        return _attn.Kernel(entry.payload, device, request.name()), key, entry
    except _attn.Failure as failure:
        # The file is what was written, and yet nothing to load: it goes, and the next compile makes another.
        disk_cache().reject(key)
        raise failed(failure, CompileError) from None


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


# --- Progress ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(name: str) -> Iterator[None]:
    """A line that says what is being waited for, on a terminal, and is gone afterwards."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    ended = threading.Event()

    def tell() -> None:
        begin, pause, written = time.monotonic(), _QUIET_SECONDS, False
        while not ended.wait(pause):
            written, pause = True, 0.1
            stream.write(f"\r\033[Kattn: compiling {name} … {time.monotonic() - begin:.1f} s")
            stream.flush()
        if written:
            stream.write("\r\033[K")
            stream.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _after_fork() -> None:
    """Kernels hold the devices of the parent: a child gets its own, from disk."""
    global _guard
    _guard = threading.Lock()
    _left_behind.append(dict(_kernels))
    _kernels.clear()


os.register_at_fork(after_in_child=_after_fork)
