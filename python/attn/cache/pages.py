# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory of a paged cache: keys and values of a head class, and the kernels that write new tokens.

Layers with equally many heads are one tensor [layers, pages, page_size, heads, dim], so that one call moves the tokens
of all. Quantized values and their metadata are separate tensors, [layers, pages, heads, page_size, …] if lines have
metadata. On the host moves of 16-bit tokens are plain copies. On a GPU, and for quantized tokens, they are kernels,
compiled once for each kind of cache, that run in the order of the stream.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from typing import Any

import numpy

from .. import _attn
from ..compiler.artifacts import load_native
from ..compiler.requests import form_of, request_for
from ..errors import DeviceError, PlanError, TensorError
from ..memory.devices import failed, get_device
from ..memory.dtypes import DTYPES, numpy_name, short_name, storage_name, torch_dtype
from ..memory.formats import PART_OF_KEY, describe_store
from ..memory.views import Binding, View, check, view_of
from .kinds import Stored
from .operations import Shape, append_text, move_text

_KINDS = {"tensor_scale": "scale"}
"""The extension's names of tensors that are neither quantized values nor metadata by line."""


class Run:
    """Layers from `first` on with equally many heads: the keys and values of one head class."""

    def __init__(self, first: int, layers: int, heads: int, shape: Shape, torch: object):
        self.first, self.layers, self.heads, self.shape = first, layers, heads, shape
        try:
            found = describe_store(
                "paged",
                shape.page_size,
                False,
                0,
                shape.key_dim,
                shape.value_dim,
                shape.key.text(),
                PART_OF_KEY if shape.latent else shape.value.text(),
            )
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None
        known = {"pages": shape.pages, "heads": heads}
        self.head_bytes = found.token_bytes
        """Bytes of a token of one head, including its own metadata."""
        self.heads_first = found.heads_first
        """Whether a page lies head by head, [pages, heads, page_size, …]."""
        self.tensors: dict[str, object] = {}
        """Tensors [layers, …] of values and metadata, by the part of kernels' names after the operand's."""
        self._kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, dtype, dims in found.tensors:
            sizes = tuple(known[dim] if isinstance(dim, str) else dim for dim in dims)
            self._kinds[name] = dtype, sizes
            self.tensors[name] = _of_layers(layers, sizes, dtype, shape.device, torch)
            if "pages" not in dims:  # Scales that the caller gives.
                self.tensors[name][:] = 1
        self.k, *rest = self.tensors.values()
        self.v = self.k[..., : shape.value_dim] if shape.latent else rest[0]
        self.views = {name: view_of(name, tensor, 0, []) for name, tensor in self.tensors.items()}
        itemsize = DTYPES[shape.dtype][1]
        dims = (shape.key_dim,) if shape.latent else (shape.key_dim, shape.value_dim)
        self.row_bytes = tuple(heads * dim * itemsize for dim in dims)
        """Bytes of a new token's keys and, unless they are a part of the keys, values."""
        self.layer_bytes = {
            name: DTYPES[dtype][1] * _layer_step(self.tensors[name])
            for name, (dtype, _) in self._kinds.items()
        }
        self._mover: _Mover | None = None
        self.requantizers: weakref.WeakKeyDictionary[Run, Any] = weakref.WeakKeyDictionary()
        """Kernels that write these layers from those of other caches (requantize.py)."""
        self._status: _attn.Memory | None = None

    def status(self) -> _attn.Memory:
        """Return the memory in which kernels count numbers that were not finite."""
        if self._status is None:
            self._status = get_device(self.shape.device).allocate(16, "status")
            self._status.fill(0)
        return self._status

    def clamped(self) -> int:
        """Return that count. Waits for the device."""
        count = numpy.zeros(1, numpy.int32)
        if self._status is not None:
            self._status.copy_out(count)
        return int(count[0])

    def addresses(self, layer: int) -> dict[str, int]:
        """Return the addresses of tensors at a layer, and the distances of layers in bytes."""
        found = {}
        for name, (address, _) in self.views.items():
            letter, _, rest = name.partition("_")
            part = letter if rest == "pages" else f"{letter}_{_KINDS.get(rest, 'meta')}"
            step = self.layer_bytes[name]
            found |= {part: address + (layer - self.first) * step, f"{part}_layer_bytes": step}
        return found

    def pages_of(self, layer: int) -> dict[str, int]:
        """Return one layer, as the extension takes it."""
        return self.pages() | {"layers": 1} | self.addresses(layer)

    def pages(self) -> dict[str, int]:
        """Return all layers, as the extension takes them."""
        sizes = {"pages": self.shape.pages, "page_tokens": self.shape.page_size, "layers": self.layers}
        status = 0 if self.shape.is_plain else self.status().address
        return {**sizes, **self.addresses(self.first), "status": status}

    def views_at(self, layer: int, page: int) -> tuple[View, ...]:
        """Return views of a layer's pages, for a kernel that counts in pages of `page` tokens."""
        found = []
        for name, (address, _) in self.views.items():
            dtype, sizes = self._kinds[name]
            if page != self.shape.page_size:  # Pages of 16-bit tokens.
                pages, tokens, *rest = sizes
                sizes = (pages * tokens // page, page, *rest)
            strides = tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
            signature = (dtype, sizes, strides, self.shape.device, True, False)
            found.append((address + (layer - self.first) * self.layer_bytes[name], signature))
        return tuple(found)

    def move(
        self,
        movement: _attn.Movement,
        head_class: int,
        layer: int,
        layers: int,
        rows: tuple | None,
        stream: int,
    ) -> None:
        """Execute the class's part of a movement in some of the layers. `rows`: views of the new keys and values,
        [layers, rows, heads, dim]."""
        if self.heads == 0:
            return
        try:
            if self.shape.device == "host" and self.shape.is_plain:
                self._copy(movement, head_class, layer, layers, rows)
            else:
                self._launch(movement, head_class, layer, layers, rows, stream)
        except _attn.Failure as failure:
            raise failed(failure, PlanError) from None

    def _copy(self, movement, head_class, layer, layers, rows) -> None:
        for part, name in enumerate(self.views):
            token, step = self.row_bytes[part], self.layer_bytes[name]
            movement.execute(
                head_class=head_class,
                page_tokens=self.shape.page_size,
                address=self.views[name][0] + (layer - self.first) * step,
                nbytes=layers * step,
                token_bytes=token,
                layers=layers,
                layer_bytes=step,
                rows_address=rows[part][0] if rows else 0,
                rows_nbytes=layers * movement.rows * token if rows else 0,
                rows_layer_bytes=movement.rows * token,
            )

    def _launch(self, movement, head_class, layer, layers, rows, stream) -> None:
        self.mover(head_class).execute(movement, layer - self.first, layers, rows, stream)

    def prepare(self, head_class: int) -> None:
        """Compile the kernels that `move` launches."""
        if self.heads and not (self.shape.device == "host" and self.shape.is_plain):
            self.mover(head_class)

    def mover(self, head_class: int) -> _Mover:
        """Return the kernels that change these layers."""
        if self._mover is None:
            self._mover = _Mover(self, head_class)
        return self._mover


class _Mover:
    """Cache kernels of a run's layers, with workspace for the largest movement so far."""

    def __init__(self, run: Run, head_class: int):
        self.run, self.head_class = run, head_class
        texts = append_text(run.heads, run.shape), move_text(run.heads, run.shape)
        self.kernels = _attn.CacheKernels(*(_cache_kernel(text, run.shape.device) for text in texts))
        self.room = (0, 0)

    def reserve(self, new: int, copied: int, stream: int) -> None:
        """Make workspace for so many tokens, and more."""
        run = self.run
        self.room = tuple(
            max(2 * need, room, 64) for need, room in zip((new, copied), self.room, strict=True)
        )
        get_device(run.shape.device).synchronize(stream)  # Launches may still use the lists that grow.
        self.kernels.reserve(
            run.pages(), head_class=self.head_class, new_tokens=self.room[0], copied_tokens=self.room[1]
        )

    def execute(
        self, movement: _attn.Movement, first: int, layers: int, rows: tuple | None, stream: int
    ) -> None:
        """Execute a movement in some of the run's layers; lists are copied to the device with the first of them."""
        copied = sum(copy[-1] for copy in movement.copies if copy[0] == self.head_class)
        if movement.rows > self.room[0] or copied > self.room[1]:
            self.reserve(movement.rows, copied, stream)
        named: dict[str, int] = {}
        if rows:
            named["rows"] = movement.rows
            for name, row, size in zip("kv", rows, self.run.row_bytes, strict=False):
                named |= {name: row[0], f"{name}_layer_bytes": movement.rows * size}
        self.kernels.execute(movement, first_layer=first, layers=layers, stream=stream, **named)


def _cache_kernel(text: str, device: str) -> _attn.Kernel:
    place = get_device(device)
    request = request_for(text, target=place.target, form=form_of(place))
    return load_native(request, place)[0]


def memory_of(sizes: tuple[int, ...], dtype: str, device: str, torch: Any) -> object:
    itemsize = DTYPES[dtype][1]
    if torch is not None:
        place = "cpu" if device == "host" else device
        if place != "cpu" and not torch.cuda.is_available():
            raise DeviceError(
                f"device: memory of {device} comes from PyTorch, which has no GPU here; nearest legal: 'host'"
            )
        try:
            return torch.empty(sizes, dtype=torch_dtype(torch, dtype), device=place)
        except (RuntimeError, TypeError, OverflowError) as error:
            raise _too_large(sizes, itemsize, place, error) from None
    if device != "host":
        raise DeviceError(
            f"device: memory of {device} comes from PyTorch; import torch first, or use device='host'"
        )
    try:
        return numpy.empty(sizes, _bfloat16() if dtype == "bf16" else numpy_name(dtype))
    except (MemoryError, ValueError) as error:
        raise _too_large(sizes, itemsize, "host", error) from None


def _of_layers(layers: int, sizes: tuple[int, ...], dtype: str, device: str, torch: object) -> object:
    """Allocate [layers, …], each layer at a multiple of 16 bytes, as kernels may need it."""
    count, itemsize = math.prod(sizes), DTYPES[dtype][1]
    step = -(-count * itemsize // 16) * 16 // itemsize
    if step == count:
        return memory_of((layers, *sizes), dtype, device, torch)
    return memory_of((layers, step), dtype, device, torch)[:, :count].reshape((layers, *sizes))


def _layer_step(tensor: object) -> int:
    """Return the number of elements from a layer to the next."""
    stride = getattr(tensor, "stride", None)
    return stride(0) if stride is not None else tensor.strides[0] // tensor.itemsize


def _too_large(sizes: tuple[int, ...], itemsize: int, device: str, error: Exception) -> DeviceError:
    nbytes, why = itemsize * math.prod(sizes), str(error).partition("\n")[0]
    return DeviceError(f"cache: {nbytes} bytes for {list(sizes)} on {device} are not to be had: {why}")


def _bfloat16() -> type:
    """Return the bfloat16 of ml_dtypes if the program uses it; else uint16, for its bits."""
    package = sys.modules.get("ml_dtypes")
    return numpy.uint16 if package is None else package.bfloat16


def parts_of_rows(stored: Stored, k: object, v: object) -> list[tuple[str, object, int]]:
    """Return the name, rows and features of new keys and, unless they are a part of the keys, of new values. Raises
    TensorError."""
    if not stored.latent:
        return [("k", k, stored.head_dim), ("v", v, stored.value_dim)]
    if v is not None:
        raise TensorError(f"v: expected None, as values are the first {stored.value_dim} features of k")
    return [("k", k, stored.head_dim)]


def look_rows(
    name: str, tensor: object, sizes: tuple[int, ...], shape: Shape, stream: int, keep: list
) -> View:
    """Check new keys or values: contiguous, of this shape, of the cache's dtype and device. Returns their view."""
    address, signature = view_of(name, tensor, stream, keep)
    check(Binding(name, shape.dtype, sizes), signature, {}, shape.device)
    return address, signature


@functools.lru_cache(maxsize=1024)
def _index_of(heads: tuple[int, ...], device: Any) -> Any:
    """Return numbers of heads on a device, made once: copying them waits for all work of the GPU."""
    torch = sys.modules["torch"]
    return torch.tensor(heads, dtype=torch.int64, device=device)  # A class may have no heads.


def take_heads(name: str, tensor: object, heads: list[int], axis: int) -> object:
    """Return the heads of one class, as a tensor of their own."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.index_select(axis, _index_of(tuple(heads), tensor.device))
    if isinstance(tensor, numpy.ndarray):
        return numpy.take(tensor, heads, axis=axis)
    raise TensorError(f"{name}: expected a tensor of PyTorch or NumPy where heads have classes of their own")


def take(tensor: Any, first: Any, third: Any = None) -> Any:
    """Return a copy of entries along the first axis; with `third` along the first and the third axis, together."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        on_device = lambda index: torch.as_tensor(index, device=tensor.device)  # noqa: E731
        first, third = (
            on_device(index) if isinstance(index, numpy.ndarray) else index for index in (first, third)
        )
        found = tensor[first] if third is None else tensor[first, :, third]
        return found.clone() if isinstance(first, slice) else found
    found = tensor[first] if third is None else tensor[first, :, third]
    return numpy.array(found)


def dtype_of_cache(dtype: object) -> str:
    short = short_name(dtype)
    if short not in ("bf16", "f16"):
        storage_name("dtype", dtype, PlanError)
    return short
