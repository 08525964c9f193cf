# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans of decoding steps that SGLang replays CUDA graphs of."""

from __future__ import annotations

import torch
from torch import Tensor

from ..serving import DevicePlans, DeviceStep


class GraphPlans:
    """The plans of decoding steps with one block table, made on the device at fixed addresses. A graph of so many sequences
    reads the plan of the latest step of that size.

    sequences  of the largest graph
    pages      of a sequence, at most"""

    def __init__(self, sequences: int, pages: int, device: object) -> None:
        self.plans = DevicePlans(sequences, pages, device, range(1, sequences + 1))
        self._starts = torch.arange(sequences + 1, dtype=torch.int32, device=self.plans.device)

    def step(self, lengths: Tensor, block_table: Tensor) -> DeviceStep:
        """Plan a step in which each sequence has one row. `lengths` are integers [sequences], `block_table` integers
        [sequences, pages] with as many columns as the longest sequence needs. Waits for nothing."""
        count = len(lengths)
        return self.plans.step(self._starts[: count + 1], lengths, block_table, rows=count, longest=1)
