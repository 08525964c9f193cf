# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of all of attn's operators of PyTorch: most have no backward pass, and some must not be in graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TensorError

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


def cast_under_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast queries, keys and values of a layer to autocast's dtype: rotary embeddings may have left some in float32."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)
