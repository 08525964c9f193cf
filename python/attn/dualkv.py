# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Responses over one shared context, with the signature of DualKV's function.

A batch of responses to one prompt reads the prompt's keys and values once, and each response its own. The kernel has
two operands and one softmax. A call over copies of the prompt would read the prompt once for each response.
`attn.Forest` describes the same for many prompts, and for responses that continue each other.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy

from .describe.spec import Spec
from .describe.stores import Packed
from .describe.visibility import all_tokens
from .describe.visibility import causal as causal_tokens
from .errors import TensorError, expected
from .memory.tables import int32_array
from .run.kernel import Kernel
from .run.kernels import compile
from .run.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["flash_attn_dualkv_varlen_func"]

_MOST_PLANS = 8
_of_thread = threading.local()


def flash_attn_dualkv_varlen_func(
    q: Tensor,
    k_context: Tensor,
    v_context: Tensor,
    k_decoded: Tensor,
    v_decoded: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k_decoded: Tensor,
    max_seqlen_q: int,
    context_seqlen: int,
    max_seqlen_k_decoded: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    *,
    numerics: str | None = None,
) -> Tensor:
    """Compute attention of packed responses over a context that all of them see, and each over its own tokens.

    q                        [rows of all responses, heads, dim], float16 or bfloat16
    k_context, v_context     [context_seqlen, kv heads, dim]; heads is a multiple of kv heads
    k_decoded, v_decoded     [tokens of all responses, kv heads, dim]
    cu_seqlens_q             int32 [responses + 1]: the offsets of each response's rows
    cu_seqlens_k_decoded     int32 [responses + 1]: the offsets of each response's tokens. Both are read on the CPU; offsets on
                             a GPU make the call wait for it
    max_seqlen_q, max_seqlen_k_decoded   at least the length of the longest response; used only for this check
    softmax_scale            factor of q k^T; by default 1/sqrt(dim)
    causal                   a response's rows are its last tokens, and see tokens up to their own. Every row sees the whole
                             context either way
    numerics                 "row" or None, as of attn.Spec

    Returns out [rows, heads, dim], of q's dtype. When autograd records, gradients go to the five tensors; those of the
    context are summed over all responses. Raises TensorError.
    """
    starts, starts_k = (
        _offsets("cu_seqlens_q", cu_seqlens_q, "q", q, max_seqlen_q, "max_seqlen_q"),
        _offsets(
            "cu_seqlens_k_decoded",
            cu_seqlens_k_decoded,
            "k_decoded",
            k_decoded,
            max_seqlen_k_decoded,
            "max_seqlen_k_decoded",
        ),
    )
    if len(starts) != len(starts_k):
        legal = f"{len(starts)} offsets, as many as cu_seqlens_q"
        raise expected(TensorError, "cu_seqlens_k_decoded", legal, len(starts_k))
    if not isinstance(causal, bool):
        raise expected(TensorError, "causal", "True or False", causal)
    _check_shapes(q, k_context, v_context, k_decoded, v_decoded, context_seqlen)
    spec = Spec(
        q_heads=q.shape[1],
        kv_heads=k_context.shape[1],
        head_dim=q.shape[2],
        value_dim=v_context.shape[2],
        dtype=q.dtype,
        kv=[
            Packed(name="context", see=all_tokens()),
            Packed(name="decoded", see=causal_tokens() if causal else all_tokens()),
        ],
        scale=softmax_scale,
        numerics=numerics,
        name="dualkv",
    )
    kernel = compile(spec, device=q.device)
    plan = _plan(kernel, q, (k_context, v_context), (k_decoded, v_decoded), starts, starts_k)
    return kernel.run(q, (k_context, v_context), (k_decoded, v_decoded), plan)


def _plan(
    kernel: Kernel,
    q: Tensor,
    context: tuple[Tensor, Tensor],
    decoded: tuple[Tensor, Tensor],
    starts: numpy.ndarray,
    starts_k: numpy.ndarray,
) -> Plan:
    """Return the plan of an equal earlier call, as other layers of a step make, or a new plan. Each thread and stream
    has its own plans."""
    plans = _of_thread.__dict__.setdefault("plans", OrderedDict())
    stream = kernel._stream(None)
    key = (kernel, stream, context[0].shape, starts.tobytes(), starts_k.tobytes())
    if (plan := plans.pop(key, None)) is None:
        tables = _tables(context[0].shape[0], starts, starts_k)
        data = {
            "q": q,
            **dict(zip(("context.k", "context.v"), context, strict=True)),
            **dict(zip(("decoded.k", "decoded.v"), decoded, strict=True)),
        }
        described = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in data.items()}
        plan = kernel.plan(described | tables)
    plans[key] = plan
    if len(plans) > _MOST_PLANS:
        plans.popitem(last=False)
    return plan


def _tables(context: int, starts: numpy.ndarray, starts_k: numpy.ndarray) -> dict[str, Any]:
    """Return the tables of a batch. Responses have positions after the context. A response with more rows than tokens
    begins later still, so that none of its rows has a position in the context."""
    rows, lengths = numpy.diff(starts), numpy.diff(starts_k)
    pos0 = context + numpy.maximum(rows - lengths, 0)
    first = pos0 + lengths - rows
    offsets = numpy.arange(starts[-1]) - numpy.repeat(starts[:-1], rows)
    return {
        "q_start": starts,
        "q_pos": offsets + numpy.repeat(first, rows),
        "context.start": [0, context],
        "context.pos0": [0],
        "context.rows": [[0, int(starts[-1])]],
        "decoded.start": starts_k,
        "decoded.pos0": pos0,
        "decoded.rows": numpy.stack([starts[:-1], starts[1:]], axis=1),
    }


def _is_tensor(given: Any) -> bool:
    torch = sys.modules.get("torch")  # A caller without tensors need not have PyTorch.
    return torch is not None and isinstance(given, torch.Tensor)


def _offsets(name: str, given: Any, of_name: str, of: Any, longest: Any, longest_name: str) -> numpy.ndarray:
    if not _is_tensor(of) or of.ndim != 3:
        raise expected(TensorError, of_name, "a tensor of PyTorch [tokens, heads, dim]", of)
    starts = int32_array(name, given)
    lengths = numpy.diff(starts)
    if starts.ndim != 1 or len(starts) == 0 or starts[0] != 0 or (lengths < 0).any() or starts[-1] != len(of):
        legal = f"offsets that rise from 0 to the {len(of)} tokens of {of_name}"
        raise expected(TensorError, name, legal, starts.tolist())
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < lengths.max(initial=0):
        legal = f"at least {lengths.max(initial=0)}, which {name} asks for"
        raise expected(TensorError, longest_name, legal, longest)
    return starts


def _check_shapes(
    q: Tensor, k_context: Tensor, v_context: Tensor, k_decoded: Tensor, v_decoded: Tensor, context: Any
) -> None:
    if not _is_tensor(k_context) or k_context.ndim != 3:
        raise expected(TensorError, "k_context", "a tensor of PyTorch [tokens, heads, dim]", k_context)
    if isinstance(context, bool) or context != len(k_context):
        legal = f"the {len(k_context)} tokens of k_context"
        raise expected(TensorError, "context_seqlen", legal, context)
    if not _is_tensor(v_context) or v_context.ndim != 3:
        raise expected(TensorError, "v_context", "a tensor of PyTorch [tokens, heads, dim]", v_context)
    heads, dim, value_dim = k_context.shape[1], q.shape[2], v_context.shape[2]
    for name, tensor, shape in (
        ("k_context", k_context, (len(k_context), heads, dim)),
        ("v_context", v_context, (len(k_context), heads, value_dim)),
        ("k_decoded", k_decoded, (len(k_decoded), heads, dim)),
        ("v_decoded", v_decoded, (len(k_decoded), heads, value_dim)),
    ):
        if not _is_tensor(tensor) or tuple(tensor.shape) != shape:
            found = list(tensor.shape) if _is_tensor(tensor) else tensor
            raise TensorError(f"{name}: expected shape {list(shape)}, got {found}")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise TensorError(
                f"{name}: expected {q.dtype} on {q.device} as q, got {tensor.dtype} on {tensor.device}"
            )
