# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host's words for a step, in one table that is copied to the device before it."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

UNDER_WAY = 2  # Steps whose results the host has not read, at most.
BANNED = 16  # Tokens that a row may not choose yet, at most.


class StepTable:
    """Arrays of i64 with fixed addresses on the device, and pinned copies of the host. Steps of all sizes share them.

    ids, positions  of rows [rows]; an id below 0 is the token in slot -1 - id
    kept            the rows whose next token is chosen [sequences]
    slots           of their sequences [sequences]; unused entries name the slot behind the last
    numbers, weights  how each token is drawn (Sampling), [4, sequences] and f64[3, sequences]
    banned, bans    tokens that each may not be, i64[sequences, BANNED], and whether there are any, i64[sequences, 1]

    Rows that choose the likeliest of all tokens read none of the last four arrays, and their steps do not copy these.
    """

    def __init__(self, sequences: int, rows: int, device: torch.device):
        shapes = {
            "kept": (sequences,),
            "slots": (sequences,),
            "ids": (rows,),
            "positions": (rows,),
            "numbers": (4, sequences),
            "weights": (3, sequences),
            "banned": (sequences, BANNED),
            "bans": (sequences, 1),
        }
        size = sum(map(math.prod, shapes.values()))
        self._plain = sum(math.prod(shapes[name]) for name in ("kept", "slots", "ids", "positions"))
        self._device = torch.zeros(size, dtype=torch.int64, device=device)
        on_gpu = device.type == "cuda"
        self._sent = [torch.zeros(size, dtype=torch.int64, pin_memory=on_gpu) for _ in range(UNDER_WAY)]
        self.on_device: dict[str, torch.Tensor] = _split(self._device, shapes)
        self.on_device["weights"] = self.on_device["weights"].view(torch.float64)
        self._host: list[dict[str, numpy.ndarray]] = []
        for sent in self._sent:
            arrays = _split(sent.numpy(), shapes)
            self._host.append(arrays | {"weights": arrays["weights"].view(numpy.float64)})
        self._steps = 0

    def begin(self) -> dict[str, numpy.ndarray]:
        """Return the host's arrays for the next step. At most UNDER_WAY steps may have results that nobody waited
        for."""
        self._steps += 1
        return self._host[self._steps % UNDER_WAY]

    def send(self, whole: bool) -> None:
        """Copy the arrays to the device, in the stream's order; all of them, or those that every step reads."""
        size = len(self._device) if whole else self._plain
        self._device[:size].copy_(self._sent[self._steps % UNDER_WAY][:size], non_blocking=True)


def _split(flat: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    found, first = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        found[name] = flat[first : first + size].reshape(shape)
        first += size
    return found
