# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of tensors, and the checks before a kernel binds their addresses.

A *view* of a tensor is its address and its signature: everything that decides whether the kernel may read it, and
nothing that changes from call to call. Signatures are compared with those accepted before, so a tensor is checked in
full once, and then costs a dictionary lookup. A *binding* is the kernel's argument for the address of a tensor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

from .. import _attn
from ..errors import TensorError, given
from .dtypes import DTYPES, is_dtype, no_floats, short_name
from .formats import describe_argument
from .layouts import why_unreadable

# dtype, shape, strides, device, writable, needs a gradient: as the tensor's library gives them.
Signature = tuple
View = tuple[int, Signature]

NOTHING: View = 0, (None,) * 6
"""Stands for a tensor that no kernel reads."""


class Binding(NamedTuple):
    """An argument of a kernel. `dims`: numbers, or names of a run's sizes ("rows", "kv.pages", …). `strided`: whether a
    launch takes strides."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    written: bool = False
    strided: bool = False

    def axes(self) -> tuple[str, ...]:
        """Return the names of its dimensions if kernels take strides of each; () if only pages lie apart."""
        if self.name.rpartition(".")[2] not in ("q", "o", "gate", "k", "v", "k_pages", "v_pages"):
            return ()
        if str(self.dims[0]).endswith("pages"):
            return ("pages", "tokens", "heads", "dim") if len(self.dims) == 4 else ()
        if len(self.dims) == 4:
            return ("batch", "seq", "heads", "dim")
        return ("rows" if self.name in ("q", "o", "gate") else "tokens", "heads", "dim")

    def legal(self, sizes: dict[str, int]) -> str:
        dims = ", ".join(str(sizes.get(dim, dim) if isinstance(dim, str) else dim) for dim in self.dims)
        return f"{DTYPES[self.dtype][0]} [{dims}]"


def tensors_of(manifest: dict) -> dict[str, Binding]:
    """Return the tensors of a description by name: q, its other arguments in order, its results, ordinal_heads. Kernels
    do not read a tensor without influence on the result, such as an operand that no row sees."""
    dtype, heads = manifest["dtype"], manifest["q_heads"]
    known = {"q": Binding("q", dtype, ("rows", heads, manifest["key_dim"]), strided=True)}
    written = [
        Binding(each["name"], each["dtype"], tuple(each["dims"]), True, each["name"] == "o")
        for each in manifest["results"]
    ]
    for argument in manifest["arguments"]:
        name = argument["name"]
        if argument["role"] == "kv":
            found = describe_argument(argument)
            for part, dtype, extents in found.tensors:
                dims = tuple(f"{name}.{dim}" if isinstance(dim, str) else dim for dim in extents)
                known[f"{name}.{part}"] = Binding(
                    f"{name}.{part}", dtype, dims, strided=part in found.strided
                )
        elif argument["role"] not in ("query", "classes"):
            dims = tuple(argument["dims"])
            strided = argument["role"] == "gate" and len(dims) == 3
            known[name] = Binding(name, argument["dtype"], dims, strided=strided)
    return (
        known
        | {result.name: result for result in written}
        | {"ordinal_heads": Binding("ordinal_heads", "i32", (manifest["kv_heads"],))}
    )


# --- Views ---------------------------------------------------------------------------------------------------


def _view_torch(tensor) -> View:
    if tensor.is_neg():
        raise RuntimeError("its memory holds the negative values; nearest: its .resolve_neg()")
    return tensor.data_ptr(), (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.device,
        True,
        tensor.requires_grad,
    )


def _view_numpy(array) -> View:
    return array.ctypes.data, (array.dtype, array.shape, array.strides, None, array.flags.writeable, False)


def _view_nothing(tensor) -> View:
    raise RuntimeError(f"{type(tensor).__name__} has no memory of its own")


def is_traced(tensor: object) -> bool:
    """Whether PyTorch only traces the operations on a tensor: compiled code, fake tensors. These use the operators of
    torch_ops."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return torch.compiler.is_compiling()
    dispatch = getattr(type(tensor), "__torch_dispatch__", None)
    return isinstance(tensor, torch.Tensor) and dispatch is not torch.Tensor.__torch_dispatch__


def is_autocast() -> bool:
    """Whether torch.autocast is on, for any device."""
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._is_any_autocast_enabled()


def needs_gradient(*given: object) -> bool:
    """Whether autograd would record operations on these: tensors, and lists and dicts of tensors."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return False
    return any(
        needs_gradient(*(each.values() if isinstance(each, dict) else each))
        if isinstance(each, (tuple, list, dict))
        else getattr(each, "requires_grad", False)
        for each in given
    )


_NOT_BACKWARD = "differentiate with torch.autograd.grad or .backward()"
NO_FORWARD_MODE = (
    f"attn does not support torch.func.jvp, jacfwd and torch.autograd.forward_ad; {_NOT_BACKWARD}"
)
"""The message where forward mode would find zero derivatives."""


def refuse_transformed(name: str, tensor: object) -> None:
    """Raise a TensorError for a tensor that a transform of torch.func has wrapped."""
    torch = sys.modules["torch"]
    wrappers = torch._C._functorch
    if not isinstance(tensor, torch.Tensor) or not wrappers.is_functorch_wrapped_tensor(tensor):
        return
    if wrappers.is_batchedtensor(tensor):
        transform, instead = "torch.func.vmap", "call it on the whole batch, [batch, seq, heads, dim]"
    elif has_tangent(tensor):
        transform, instead = "torch.func.jvp and jacfwd", _NOT_BACKWARD
    elif wrappers.is_gradtrackingtensor(tensor):
        transform, instead = "torch.func.grad, vjp and jacrev", _NOT_BACKWARD
    else:
        transform, instead = "transforms of torch.func", "call it outside"
    raise TensorError(f"{name}: attn does not support {transform}; {instead}")


def has_tangent(tensor: object) -> bool:
    """Whether PyTorch's forward mode differentiates by a tensor."""
    if not is_forward_mode() or not isinstance(tensor, sys.modules["torch"].Tensor):
        return False
    return sys.modules["torch.autograd.forward_ad"].unpack_dual(tensor).tangent is not None


def is_forward_mode() -> bool:
    """Whether PyTorch's forward mode is on, for any tensor."""
    forward = sys.modules.get("torch.autograd.forward_ad")
    return forward is not None and forward._current_level >= 0


def refuse_tangents(*given: object) -> None:
    """Raise a TensorError if forward mode differentiates by these tensors, or lists and dicts of tensors: it would find
    zero derivatives."""
    if not is_forward_mode():
        return
    for each in given:
        if isinstance(each, (dict, tuple, list)):
            refuse_tangents(*(each.values() if isinstance(each, dict) else each))
        elif has_tangent(each):
            raise TensorError(NO_FORWARD_MODE)


_viewers: dict[type, Callable[[object], View]] = {}


def _viewer_of(tensor: object) -> Callable[[object], View] | None:
    """Return the viewer of a tensor; kept if all objects of exactly this type share it."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(tensor, torch.Tensor):
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return _view_nothing
        if type(tensor) in (torch.Tensor, torch.nn.Parameter):
            _viewers[type(tensor)] = _view_torch
        return _view_torch
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        _viewers[type(tensor)] = _view_numpy
        return _view_numpy
    return None


def view_of(name: str, tensor: object, stream: int, keep: list) -> View:
    """Return the view of anything with numbers at an address. Objects that must live until the launch go to `keep`.
    TensorError."""
    viewer = _viewers.get(type(tensor)) or _viewer_of(tensor)
    if viewer is not None:
        try:
            return viewer(tensor)
        except RuntimeError as error:  # Fake, sparse and other tensors without an address.
            refuse_transformed(name, tensor)
            raise TensorError(
                f"{name}: expected a tensor with memory of its own, got {given(tensor)}: {error}"
            ) from None
    if not (hasattr(tensor, "__dlpack__") or isinstance(tensor, (bytearray, memoryview))):
        raise TensorError(
            f"{name}: expected a tensor of PyTorch or NumPy, or one with __dlpack__, got {given(tensor)}"
        )
    try:
        view = _attn.View(tensor, stream=stream or None)
    except (_attn.Failure, TypeError, BufferError) as failure:
        raise TensorError(f"{name}: {getattr(failure, 'message', failure)}") from None
    keep.append(view)
    place = "host" if view.device == "cpu" else f"cuda:{view.index}"
    return view.address, (view.dtype, view.shape, view.strides, place, not view.readonly, False)


class Strided(NamedTuple):
    """A signature in attn's words. Strides in elements; dtype None: unknown to attn."""

    dtype: str | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str

    def text(self) -> str:
        dtype = DTYPES[self.dtype][0] if self.dtype else "an unknown dtype"
        return f"{dtype} [{', '.join(map(str, self.shape))}]"


def strided(signature: Signature) -> Strided:
    dtype, shape, strides, device, _, _ = signature
    shape = tuple(shape)
    if device is None:
        strides, place = (
            tuple(stride // dtype.itemsize if dtype.itemsize else 0 for stride in strides),
            "host",
        )
    else:
        text = str(device)
        place = "host" if text == "cpu" else text
    return Strided(short_name(dtype), shape, tuple(strides), place)


def contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


# --- Checks --------------------------------------------------------------------------------------------------


def check(binding: Binding, signature: Signature, sizes: dict[str, int], device: str) -> int:
    """Check a tensor for a binding; return the bytes that it spans. `sizes`: those of the plan. The runtime checks
    strides. TensorError."""
    found, name = strided(signature), {"o": "out"}.get(binding.name, binding.name)
    if not is_dtype(found.dtype, binding.dtype) or not _fits(binding, found.shape, sizes):
        hint = no_floats(found.dtype) if binding.dtype == "f32" else ""
        raise TensorError(f"{name}: expected {binding.legal(sizes)}, got {found.text()}{hint}")
    if found.device != device:
        raise TensorError(f"{name}: expected memory of {device}, where the kernel runs, got {found.device}")
    dense = contiguous(found.shape, found.strides)
    if not dense and not binding.strided:
        raise TensorError(
            f"{name}: expected a contiguous tensor, got strides {list(found.strides)} for {found.text()}; "
            "nearest legal: its .contiguous() copy"
        )
    itemsize = DTYPES[binding.dtype][1]
    axes = () if dense else binding.axes()
    if axes and (why := why_unreadable(name, found.shape, found.strides, axes, itemsize)):
        raise TensorError(why)
    if binding.written and not signature[4]:
        raise TensorError(f"{name}: expected memory that may be written, got a read-only array")
    if signature[5] and sys.modules["torch"].is_grad_enabled():
        raise TensorError(
            f"{name}: requires a gradient, which is not passed on here; call under torch.no_grad(), or with "
            f"{name}.detach()"
        )
    return itemsize * math.prod(found.shape) if dense else span(found.shape, found.strides, itemsize)


def strides_of(binding: Binding, signature: Signature) -> tuple[int, ...] | None:
    """Return the strides of a checked tensor in bytes; None if it is dense."""
    found = strided(signature)
    if not binding.strided or contiguous(found.shape, found.strides):
        return None
    if signature[3] is None:
        return tuple(signature[2])
    return tuple(stride * DTYPES[binding.dtype][1] for stride in found.strides)


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes from the first element to past the last one."""
    if 0 in shape:
        return 0
    return itemsize * (1 + sum((n - 1) * max(stride, 0) for n, stride in zip(shape, strides, strict=True)))


def _fits(binding: Binding, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    return len(shape) == len(binding.dims) and all(
        size == (sizes.get(dim, size) if isinstance(dim, str) else dim)
        for size, dim in zip(shape, binding.dims, strict=True)
    )
