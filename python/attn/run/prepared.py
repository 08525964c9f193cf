# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A batch that was checked and handed to the extension, from which plans are made; and its two orders of rows.

Rows of trees are numbered depth first, so that the rows that see a node are one range. If the user named them in
another order, queries are gathered into the batch's order and results scattered back.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy

from .. import _attn
from ..errors import TensorError, given


class RowOrder:
    """The two maps of a batch, int32 [rows]: `user_row` gives the user's row of each row, `batch_row` is the inverse."""

    def __init__(self, user_row: numpy.ndarray, batch_row: numpy.ndarray):
        self.user_row = user_row
        self.batch_row = batch_row
        self._on_device: dict[tuple, object] = {}

    @staticmethod
    def of(user_row: bytes, batch_row: bytes) -> RowOrder | None:
        """Return None if both orders are the same."""
        rows = numpy.frombuffer(user_row, dtype=numpy.int32)
        if numpy.array_equal(rows, numpy.arange(len(rows))):
            return None
        return RowOrder(rows, numpy.frombuffer(batch_row, dtype=numpy.int32))

    def gather(self, tensor: object) -> object:
        """Return the user's rows in the batch's order, as a new tensor."""
        return self._take("gather", tensor, None)

    def scatter(self, tensor: object, out: object = None) -> object:
        """Return the batch's rows in the user's order, as a new tensor or in `out`."""
        return self._take("scatter", tensor, out)

    def _take(self, which: str, tensor: object, out: object) -> object:
        rows = self.user_row if which == "gather" else self.batch_row
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(tensor, torch.Tensor):
            self._check(which, tensor, rows)
            index = self._on_device.get((which, tensor.device))
            if index is None:
                index = torch.from_numpy(rows.astype(numpy.int64)).to(tensor.device)
                self._on_device[which, tensor.device] = index
            if tensor.dtype.itemsize > 1:
                return torch.index_select(tensor, 0, index, out=out)
            # PyTorch indexes bytes on every device, and 8-bit floats on some.
            into = None if out is None else out.view(torch.uint8)
            found = torch.index_select(tensor.view(torch.uint8), 0, index, out=into)
            return found.view(tensor.dtype) if out is None else out
        if isinstance(tensor, numpy.ndarray):
            self._check(which, tensor, rows)
            return numpy.take(tensor, rows, axis=0, out=out, mode="clip")
        raise TensorError(
            f"{which}: expected a tensor of PyTorch or NumPy, got {given(tensor)}; others are gathered by their owner, "
            "and run with rows='batch'"
        )

    @staticmethod
    def _check(which: str, tensor: object, rows: numpy.ndarray) -> None:
        if len(tensor.shape) == 0 or tensor.shape[0] != len(rows):
            raise TensorError(f"{which}: expected {len(rows)} rows, got shape {list(tensor.shape)}")


class Prepared(NamedTuple):
    """A batch in the extension, the sizes that tensors of a run must have, the classes of heads, and the order of rows
    if it is not the user's."""

    native: _attn.Batch
    sizes: dict[str, int]
    classes: tuple[int, ...]
    order: RowOrder | None = None
