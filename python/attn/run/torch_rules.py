# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of all of attn's operators of PyTorch: most have no backward pass, those that have one have no second
derivatives, none has forward derivatives, and some must not be in graphs. The gate of an output, where PyTorch multiplies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..describe import checks
from ..errors import TensorError, expected, given
from ..memory.views import NO_FORWARD_MODE, is_forward_mode, refuse_transformed
from .arrange import check_gate

# Tags of operators that plan on the CPU by contents of tensors: a CUDA graph would replay the plan of the
# step in which it was captured. torch.compile leaves them out of its graphs.
PLANS_ANEW = tuple(tag for tag in (getattr(torch.Tag, "cudagraph_unsafe", None),) if tag is not None)

NO_BACKWARD = "{}: requires a gradient, which this operator does not pass on; call under torch.no_grad(), or with {}.detach()"


def refuse_gradients(**tensors: Tensor | None) -> None:
    """Raise a TensorError for a tensor that requires a gradient; `attn.attend` has gradients."""
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor is not None and tensor.requires_grad:
                raise TensorError(NO_BACKWARD.format(name, name))


def refuse_later(operator) -> None:
    """Refuse gradients of an operator that the user calls directly: as soon as autograd would record it."""

    def refuse(ctx, inputs, output) -> None:
        raise TensorError(NO_BACKWARD.format(operator._qualname, "its inputs"))

    operator.register_autograd(lambda ctx, *grads: None, setup_context=refuse)


ONLY_ONCE = (
    "attn does not support second derivatives: these gradients of attention cannot be differentiated again; compute them "
    "with create_graph=False, or attention with torch.nn.functional.scaled_dot_product_attention"
)


def differentiable_once(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Wrap `backward(ctx, saved, *gradients)` of an autograd.Function. When autograd records (create_graph=True), its
    results depend on all saved tensors, and differentiating them by any of these raises a TensorError. Autograd's own
    once_differentiable does not raise where the caller allows unused tensors: derivatives are then silently 0."""

    @functools.wraps(backward)
    def once(ctx, *gradients: Tensor | None) -> tuple:
        saved = ctx.saved_tensors  # Read once: hooks may compute them anew.
        if not torch.is_grad_enabled():
            return backward(ctx, saved, *gradients)
        with torch.no_grad():
            found = list(backward(ctx, saved, *gradients))
        made = [i for i, each in enumerate(found) if isinstance(each, Tensor)]
        depends = [each for each in (*saved, *gradients) if each is not None and each.requires_grad]
        marked = _Once.apply(len(made), *(found[i] for i in made), *depends) if made and depends else ()
        for i, each in zip(made, marked, strict=False):
            found[i] = each
        return tuple(found)

    return once


class _Once(torch.autograd.Function):
    """Returns its first `count` tensors, which cannot be differentiated by any of the others."""

    @staticmethod
    def forward(ctx, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple:
        raise TensorError(ONLY_ONCE)


def refuse_twice(operator) -> None:
    """Refuse gradients of an operator that computes gradients."""

    def refuse(ctx, *gradients) -> None:
        raise TensorError(ONLY_ONCE)

    operator.register_autograd(refuse)


def refuse_forward_mode() -> None:
    """Raise a TensorError inside an operator while forward mode is on. Tensors have lost their tangents there, and
    results would have none."""
    if is_forward_mode():
        raise TensorError(NO_FORWARD_MODE)


def refuse_vmap(operator) -> None:
    """Refuse torch.func.vmap of an operator by name."""

    def refuse(info, in_dims, *inputs, **named) -> None:
        raise TensorError(
            f"{operator._qualname}: attn does not support torch.func.vmap; call it on the whole batch"
        )

    operator.register_vmap(refuse)


def cast_under_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast queries, keys and values to autocast's dtype, as PyTorch casts those of scaled_dot_product_attention: all
    floats but float64, on the device of the first. Objects that are no tensors stay as they are."""
    if not isinstance(tensors[0], Tensor):
        return tensors
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        tensor.to(dtype)
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64
        else tensor
        for tensor in tensors
    )


def check_torch_gate(q: Tensor, v: Tensor, gate: Any, out: Any, traced: bool) -> None:
    """Raise a TensorError for a gate that does not fit the output of `attend`. `traced`: whether q is (is_traced)."""
    if not isinstance(gate, Tensor):
        raise expected(TensorError, "gate", "a tensor of PyTorch", gate)
    if not traced:
        refuse_transformed("gate", gate)
    if out is not None:
        raise TensorError(f"out: expected None beside gate where PyTorch multiplies by it, got {given(out)}")
    check_gate(q, gate, (*q.shape[:-1], v.shape[-1]), given)


def gated(results: Any, gate: Tensor, return_lse: bool) -> Any:
    """Multiply the output of `attend` by the sigmoid of a gate, in float32 at least."""
    out = results[0] if return_lse else results
    precise = torch.promote_types(out.dtype, torch.float32)
    factors = torch.sigmoid(gate.to(precise))
    if gate.dim() < out.dim():
        factors = factors.unsqueeze(-1)
    out = (out.to(precise) * factors).to(out.dtype)
    return (out, *results[1:]) if return_lse else out


def check_output_scale(v: Tensor, scale: Any, out: Any, traced: bool, recorded: bool) -> None:
    """Raise a TensorError where `attend` gives no quantized output: in compiled code (`traced`) and where autograd records
    (`recorded`); or for a scale or an `out` that PyTorch does not divide by, for the reference. `scale`: None beside
    output_scales."""
    name = "output_scales" if scale is None else "output_scale"
    if traced:
        raise TensorError(
            f"{name}: expected None in compiled code; call attend outside of it, or Kernel.run under "
            "Spec(output='fp8_e4m3')"
        )
    if recorded:
        raise TensorError(
            f"{name}: expected None where autograd records, as outputs in float8_e4m3fn have no gradients; nearest: "
            "torch.no_grad()"
        )
    if scale is None:
        checks.output_scales("head", "fp8_e4m3", v.shape[-1])
    elif not isinstance(scale, Tensor) or scale.dtype != torch.float32 or tuple(scale.shape) != (1,):
        raise expected(TensorError, "output_scale", "a tensor of PyTorch, float32 [1]", scale)
    if out is not None:
        raise TensorError(f"out: expected None beside {name} and reference=True, got {given(out)}")


def quantized(results: Any, scale: Tensor, return_lse: bool) -> Any:
    """Divide the output of `attend` by a scale, in float32 at least, and round it to float8_e4m3fn."""
    out = results[0] if return_lse else results
    most = torch.finfo(torch.float8_e4m3fn).max
    precise = torch.promote_types(out.dtype, torch.float32)
    out = (out.to(precise) / scale.to(precise)).clamp(-most, most).to(torch.float8_e4m3fn)
    return (out, *results[1:]) if return_lse else out


def quantized_by_head(results: Any, return_lse: bool) -> tuple[Tensor, ...]:
    """Divide the output of `attend` by a scale of each row and head, and append the scales, as kernels do."""
    out, *lse = results if return_lse else (results,)
    most = torch.finfo(torch.float8_e4m3fn).max
    precise = out.to(torch.promote_types(out.dtype, torch.float32))
    scales = precise.abs().amax(-1).clamp(min=1e-10) / most
    out = (precise / scales.unsqueeze(-1)).clamp(-most, most).to(torch.float8_e4m3fn)
    return out, *lse, scales.float()


class _Bits(torch.autograd.Function):
    """Take the bits of another computation of the output; gradients pass to this one."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        return compute()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def with_bits_of(results: Any, compute: Callable[[], Tensor], return_lse: bool) -> Any:
    """Return results with the bits of the output that `compute` returns."""
    out = _Bits.apply(results[0] if return_lse else results, compute)
    return (out, *results[1:]) if return_lse else out


def detached(given: Any) -> Any:
    """Detach tensors of PyTorch, alone or in a dict; other objects stay as they are."""
    if isinstance(given, dict):
        return {name: detached(each) for name, each in given.items()}
    return given.detach() if isinstance(given, Tensor) else given
