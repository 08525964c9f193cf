# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that merge the states of ranks: outputs of 16 bits and LSEs in float32."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import DeviceError
from ..memory.devices import device_name, failed, get_device, stream_number

SIGNALS = 2048
"""Words of signals that a region has for each rank."""
STATE_WORDS = 4 + SIGNALS
MOST_RANKS = 32
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}


def serves(ranks: int, items: int, value_dim: int) -> bool:
    """Return whether a kernel merges so many ranks' states: LSEs begin at multiples of 16 bytes, and kernels count words
    in 31 bits."""
    fits = ranks * slot_words(items, value_dim) < 1 << 31
    return 2 <= ranks <= MOST_RANKS and items > 0 and value_dim % 8 == 0 and fits


def slot_words(items: int, value_dim: int) -> int:
    """Return the words of 32 bits of a rank's slot: outputs, LSEs, and 0 to 3 words more."""
    return -(-(items * (value_dim // 2) + items) // 4) * 4


class StateKernel:
    """A kernel for one number of items and features on a device. Launching it neither allocates nor waits on a GPU."""

    def __init__(self, text: str, sizes: Sequence[int], device: str):
        self._device, place = device, get_device(device)
        request = request_for(text, target=place.target, form=form_of(place), checked=False)
        try:
            self._native = _attn.TableOperation(load_native(request, place)[0], sizes)
        except _attn.Failure as failure:
            raise failed(failure, DeviceError) from None

    def launch(self, *tensors: Tensor) -> None:
        """Launch on the current stream. `tensors`: in the order of the kernel's arguments."""
        try:
            self._native.launch([each.data_ptr() for each in tensors], stream_number(self._device, None))
        except _attn.Failure as failure:
            raise failed(failure, DeviceError) from None


@functools.lru_cache(maxsize=64)
def merge_kernel(ranks: int, items: int, value_dim: int, dtype: torch.dtype, device: str) -> StateKernel:
    """Return the kernel of `attn.merge_states`: tensors result, total, memory [ranks, slot_words]."""
    text = _text(
        "merge", "%memory to %result, %total", {**_results(), "memory": f"{ranks}x?xi32"}, ranks, dtype
    )
    return StateKernel(text, (items, value_dim // 2, slot_words(items, value_dim)), device)


def exchange_kernel(
    ranks: int, items: int, value_dim: int, dtype: torch.dtype, device: str, shape: tuple[int, int]
) -> StateKernel:
    """Return the kernel of `attn.exchange_states`: tensors result, total, out, lse, memory, places, state, status.
    `shape`: regions of `memory`, and the words of one."""
    tensors = _results() | {"out": "?x?xi32", "lse": "?xf32", "memory": "?x?xi32"}
    tensors |= {"places": f"{ranks}x2xi32", "state": f"{STATE_WORDS}xi32", "status": f"{ranks}xi32"}
    words = "%out, %lse through %memory at %places state %state status %status to %result, %total"
    return StateKernel(
        _text("exchange", words, tensors, ranks, dtype), (items, value_dim // 2, *shape), device
    )


def name_of(device: torch.device) -> str:
    """Return attn's name of a device of PyTorch."""
    return device_name("host" if device.type == "cpu" else str(device))


def _results() -> dict[str, str]:
    return {"result": "?x?xi32", "total": "?xf32"}


def _text(name: str, words: str, tensors: dict[str, str], ranks: int, dtype: torch.dtype) -> str:
    arguments = ", ".join(
        f'%{tensor}: tensor<{dims}> {{attn.name = "{tensor}"}}' for tensor, dims in tensors.items()
    )
    types = ", ".join(f"tensor<{dims}>" for dims in tensors.values())
    return f"""func.func @{name}({arguments}) {{
  attn.{name}_states {words} ranks {ranks} element {_DTYPES[dtype]} : {types}
  return
}}
"""
