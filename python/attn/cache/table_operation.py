# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on tables of pages, compiled for a device and for tables of some size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import PlanError
from ..memory.devices import device_name, failed, get_device, stream_number
from ..memory.views import Binding, check, view_of


class TableOperation:
    """An operation with its `text` from operations.py; `bindings` describe its tensors in order, and `sizes` its open
    dimensions."""

    def __init__(
        self, text: str, bindings: Sequence[Binding], sizes: Sequence[int], device: object, checked: bool
    ):
        self.bindings, self.device, place = bindings, device_name(device), get_device(device)
        request = request_for(text, target=place.target, form=form_of(place), checked=checked)
        try:
            self._native = _attn.TableOperation(load_native(request, place)[0], sizes)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def launch(self, tensors: Mapping[str, object], stream: object) -> None:
        """Launch the operation. Neither allocates nor waits. TensorError for a tensor of another dtype, shape or
        device."""
        number = stream_number(self.device, stream)
        keep: list = []
        addresses = []
        for binding in self.bindings:
            address, signature = view_of(binding.name, tensors[binding.name], number, keep)
            check(binding, signature, {}, self.device)
            addresses.append(address)
        try:
            self._native.launch(addresses, number)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
