# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The devices of this process: one object for each, opened on first use."""

from __future__ import annotations

import os
import re
import sys
import threading

from .. import _attn
from ..errors import CompileError, DeviceError, Error, TensorError, closest, expected
from ..forks import make_guard
from .dtypes import in_python

_guard = make_guard(threading.RLock)
_devices: dict[str, _attn.Device] = {}
_names: dict[object, str] = {}
_left_behind: list[_attn.Device] = []  # Devices of the process that forked: never used, never freed.
_cuda_before_fork = False
generation = 0
"""The number of forks between this process and the one that imported attn. Objects made before a fork are not used
after it."""


def failed(failure: _attn.Failure, kind: type[Error]) -> Error:
    """Return the exception for a failure of the extension: `kind` if the input was wrong."""
    kind_of = {"input": kind, "device": DeviceError, "memory": DeviceError, "internal": Error}
    message = failure.message if kind is CompileError else in_python(failure.message)
    return kind_of.get(failure.kind, kind)(message)


def device_name(device: object = None) -> str:
    """Return "host" or "cuda:0" for a device: None (a GPU if a driver finds one, else the host; or ATTN_DEVICE), "host"
    or "cpu", "cuda", "cuda:1", a torch.device, or a Device of the extension. DeviceError."""
    try:
        return _names[device]
    except (KeyError, TypeError):
        pass
    name = _find_name(device)
    if device is None or isinstance(device, str):
        _names[device] = name
    return name


def _find_name(device: object) -> str:
    if device is None:
        if wanted := os.environ.get("ATTN_DEVICE"):
            return _find_name(wanted)
        return "cuda:0" if _attn.cuda_devices() > 0 else "host"
    if isinstance(device, _attn.Device):
        return "host" if device.kind == "host" else f"cuda:{device.index}"
    text = str(device)
    if text in ("host", "cpu"):
        return "host"
    if text == "cuda":
        # A torch.device without a number is the current device.
        return f"cuda:{_current_cuda()}" if not isinstance(device, str) else "cuda:0"
    if re.fullmatch(r"cuda:\d{1,3}", text):
        return text
    nearest = closest(device, ("host", "cuda", "cuda:0")) if isinstance(device, str) else None
    raise expected(
        DeviceError, "device", "'host', 'cuda', 'cuda:1' or a torch.device", device, nearest=nearest
    )


def _current_cuda() -> int:
    import torch

    return torch.cuda.current_device()


def get_device(device: object = None) -> _attn.Device:
    """Return the device, opened once. DeviceError, with the driver's words, if it is missing."""
    if isinstance(device, _attn.Device):
        return device
    name = device_name(device)
    try:
        return _devices[name]
    except KeyError:
        pass
    with _guard:
        if name not in _devices:
            if name != "host" and _cuda_before_fork:
                raise DeviceError(
                    f"device: {name} was in use before this process was forked, and GPUs do not survive that; start "
                    "processes with multiprocessing's 'spawn' or 'forkserver', or use the GPU after the fork only"
                )
            try:
                _devices[name] = (
                    _attn.Device.host() if name == "host" else _attn.Device.cuda(int(name.partition(":")[2]))
                )
            except _attn.Failure as failure:
                raise failed(failure, DeviceError) from None
        return _devices[name]


def checked_host(*, seed: int = 0, shuffle: bool = False) -> _attn.Device:
    """Return a separate host device with all detectors, for kernels compiled with `checked`."""
    try:
        return _attn.Device.host(checked=True, seed=seed, shuffle=shuffle)
    except _attn.Failure as failure:
        raise failed(failure, DeviceError) from None


def raw_stream(index: int) -> int:
    """Return PyTorch's current stream on a GPU as a number, without making a stream object if PyTorch can."""
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return torch.cuda.current_stream(index).cuda_stream if raw is None else raw(index)


def stream_number(device: str, stream: object) -> int:
    """Return a CUstream as a number: of a torch.cuda.Stream, of an int, or for None PyTorch's current one. The host
    device has none. TensorError."""
    if device == "host":
        return 0
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return raw_stream(int(device.partition(":")[2]))
    number = getattr(stream, "cuda_stream", stream)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
        raise expected(TensorError, "stream", "a torch.cuda.Stream, or a CUstream as int", stream)
    return number


def _after_fork() -> None:
    global _cuda_before_fork, generation
    generation += 1
    _cuda_before_fork = _cuda_before_fork or any(name != "host" for name in _devices)
    _left_behind.extend(_devices.values())
    _devices.clear()


os.register_at_fork(after_in_child=_after_fork)
