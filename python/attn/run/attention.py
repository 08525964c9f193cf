# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attend: attention on tensors, without a description, a kernel or a plan to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from .. import _attn
from ..describe import checks
from ..describe.forest import Forest
from ..describe.visibility import Visibility, sides
from ..errors import SpecError, TensorError, expected
from ..memory.views import is_autocast, is_traced, needs_gradient, refuse_tangents
from .described_calls import check_significance
from .direct import attend_now
from .launches import Asked

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AttendOptions(TypedDict, total=False):
    """The options of `attend` for type checkers, except those that decide the number of its results."""

    causal: bool
    window: int | None
    window_size: tuple[int, int] | None
    sink: int | None
    see: Visibility | None
    softcap: float | None
    score: Callable[..., Any] | None
    tensors: Mapping[str, Any] | None
    sink_logits: Any
    gate: Any
    output_scale: Any
    scale: float | None
    kv_lengths: Any
    cu_seqlens: Any
    cu_seqlens_k: Any
    forest: Forest | None
    layout: Literal["bshd", "bhsd"]
    out: Any
    reference: bool
    significance_rows: int | None
    ordered: bool | None
    numerics: Literal["row"] | None
    allow_empty_rows: bool


T = TypeVar("T")
_launches = _attn.Launches()


@overload
def attend(
    q: T,
    k: T,
    v: T,
    *,
    return_lse: Literal[False] = ...,
    significance: None = ...,
    **options: Unpack[AttendOptions],
) -> T: ...


@overload
def attend(
    q: T,
    k: T,
    v: T,
    *,
    return_lse: Literal[True],
    significance: None = ...,
    **options: Unpack[AttendOptions],
) -> tuple[T, T]: ...


@overload
def attend(
    q: T, k: T, v: T, *, return_lse: Literal[False] = ..., significance: str, **options: Unpack[AttendOptions]
) -> tuple[T, T]: ...


@overload
def attend(
    q: T, k: T, v: T, *, return_lse: Literal[True], significance: str, **options: Unpack[AttendOptions]
) -> tuple[T, T, T]: ...


@overload
def attend(
    q: T,
    k: T,
    v: T,
    *,
    return_lse: Literal[False] = ...,
    significance: None = ...,
    output_scales: Literal["head"],
    **options: Unpack[AttendOptions],
) -> tuple[T, T]: ...


@overload
def attend(
    q: T,
    k: T,
    v: T,
    *,
    return_lse: Literal[True],
    significance: None = ...,
    output_scales: Literal["head"],
    **options: Unpack[AttendOptions],
) -> tuple[T, T, T]: ...


@overload
def attend(
    q: T,
    k: T,
    v: T,
    *,
    return_lse: bool = ...,
    significance: str | None = ...,
    output_scales: str | None = ...,
    **options: Unpack[AttendOptions],
) -> Any: ...


def attend(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    sink: int | None = None,
    see: Visibility | None = None,
    softcap: float | None = None,
    score: Callable | None = None,
    tensors: Mapping[str, Any] | None = None,
    sink_logits: Any = None,
    gate: Any = None,
    output_scale: Any = None,
    output_scales: str | None = None,
    scale: float | None = None,
    kv_lengths: Sequence[int] | Any = None,
    cu_seqlens: Sequence[int] | Any = None,
    cu_seqlens_k: Sequence[int] | Any = None,
    forest: Forest | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    out: Any = None,
    reference: bool = False,
    significance: str | None = None,
    significance_rows: int | None = None,
    ordered: bool | None = None,
    numerics: str | None = None,
    allow_empty_rows: bool = False,
    **others: Any,
) -> Any:
    """Compute attention of dense tensors or packed sequences: on their GPU, or for CPU tensors on the host device.

    q, k, v       `[batch, seq, heads, dim]`; layout="bhsd": `[batch, heads, seq, dim]`. float16 or bfloat16 (NumPy: its
                  bits as uint16, or ml_dtypes'), of PyTorch, NumPy or with __dlpack__. The heads of q are a multiple of
                  those of k and v; v may have another dim
    causal        a sequence's rows are its last positions, and see positions up to their own
    window        with causal: only the last `window` positions, including the row's own
    window_size   (left, right) as in flash-attn: a row sees `left` positions before its own, its own, and `right`
                  after it; -1 for no limit. With causal `right` is 0
    sink          with causal: the first `sink` positions, too
    see           any other visibility, instead of these four
    softcap       scores become softcap * tanh(score / softcap); at most 16384
    score         any other score function, see attn.Spec; `tensors`: the tensors that it reads, float32, by name
    sink_logits   float32 [q heads]: a logit that joins each row's softmax and carries no value
    gate          the output is multiplied by sigmoid(gate) in float32 before it is rounded: a tensor of q's dtype in the
                  shape of the output, or without its last dimension, a number for each head. The LSE does not change.
                  PyTorch multiplies the rounded output if autograd records, in compiled code, and for the reference. With
                  numerics="row" a second kernel computes the output where autograd records
    output_scale  float32 [1], positive: the output is float8_e4m3fn, the quotient by this scale, clamped to 448 and rounded
                  once, after the gate. The LSE does not change. Without gradients, and not in compiled code
    output_scales  "head": the output is float8_e4m3fn, and its scales are the last result, float32 in the shape of the LSE:
                  max(|out|, 1e-10) / 448 over the features of a row and head, of values of up to 256 features. Without
                  gradients, and not in compiled code
    scale         factor of q k^T; by default 1/sqrt(dim)
    kv_lengths    int32 [batch]: valid tokens of each sequence, if k and v have room for more
    cu_seqlens    packed sequences: tensors are `[tokens, heads, dim]`, and sequence i has the rows from cu_seqlens[i]
                  to cu_seqlens[i + 1], int32 [batch + 1]. cu_seqlens_k does the same for k and v; by default
                  cu_seqlens. Rows after the last sequence are padding: their output is 0, their LSE -inf (with sinks the
                  sink's logit), and gradients of padding are 0. Offsets are read on the CPU; offsets on a GPU make the call wait for it
    forest        an attn.Forest of the tokens, instead of cu_seqlens: a row also sees the nodes above its own
    return_lse    returns (out, lse) with lse the natural logarithm of each row's softmax denominator, float32
                  `[batch, seq, heads]`, in the order of `layout`; packed `[tokens, heads]`
    out           the tensor to write the output to; it overlaps no other argument
    reference     True: the float64 reference computes the result, token by token, on CPU tensors of PyTorch, which may
                  also be float64 and float32. Tests compare kernels with it
    significance  "max", "mean" or "sum": the last result is the significance of each token, its softmax weights added up
                  over rows and reduced over its head group; float32 `[batch, seq, kv_heads]` in the order of `layout`,
                  packed `[tokens, kv_heads]`. No gradient passes to or from it. Within 1e-2; with one row for each
                  sequence, NaN for tokens with scores above 355 that may matter
    significance_rows    the number of last rows of each sequence that count; by default all
    ordered       whether gradients are the same bits in every run. Default: True if torch.use_deterministic_algorithms is
                  set, or if rows see fewer than 500 tokens on average; for heads of more than 64 features also with a score
                  function or a visibility that has a size; with numerics="row" always. Gradients of long sequences take
                  1.03 to 1.2 times as long in an order. Results of the forward pass are always the same bits
    numerics      "row": a row's output and LSE depend on its query and the keys that it sees, to the last bit, and not on
                  the other rows, padding, packing, or kernel; a paged cache under a description with numerics="row" gives
                  the same bits. None: the quickest plan
    allow_empty_rows  True: a sequence may have more rows than tokens although a causal mask leaves its first rows nothing
                  to see; their output is 0 and their LSE -inf. By default that is refused, as it is most often a tensor
                  in another order than `layout` says. Rows of a sequence without tokens are never refused

    Nothing is copied if each tensor lies in memory in one of the two layouts, whichever `layout` names its dimensions.
    k and v share one layout, and may be the front part of a longer cache. Tensors of PyTorch and NumPy that kernels
    cannot read where they lie are copied once in each call: dimensions that `expand` repeats, strides and addresses
    that are no multiples of 16 bytes, `[seq, batch, heads, dim]` (give q.transpose(0, 1)), and a q in another layout
    than k and v. Tensors of other libraries are refused then. The output has the memory layout of k and v.

    Under torch.autocast q, k and v are cast as those of scaled_dot_product_attention, and the output has autocast's
    dtype; float64 is not cast.

    When autograd records, gradients pass to q, k, v, sink_logits and `tensors`, from `out` and `lse` alike. Kernels
    compute them. On the CPU the reference computes gradients that have no kernel, such as those of `tensors`; on a GPU
    these are refused.

    After the first call of its kind, a call neither waits for a GPU nor allocates more than the output. Raises
    TensorError or SpecError before anything is launched; DeviceError.
    """
    if others:
        from .hints import refuse_options

        refuse_options(others, attend.__kwdefaults__)
    asked = None
    if not (traced := is_traced(q)):
        if is_autocast():
            from .torch_rules import cast_under_autocast

            q, k, v, gate = cast_under_autocast(q, k, v, gate)
        given = (q, k, v, sink_logits) if gate is None else (q, k, v, sink_logits, gate)
        if output_scale is not None:
            given = (q, k, v, sink_logits, gate, output_scale)
        options = (
            causal,
            window,
            window_size,
            sink,
            see,
            softcap,
            score,
            tensors,
            scale,
            kv_lengths,
            cu_seqlens,
            cu_seqlens_k,
            forest,
            layout,
            return_lse,
            out,
            output_scales,
            reference,
            significance,
            significance_rows,
            ordered,
            numerics,
            allow_empty_rows,
        )
        found = _launches.run(given, options)
        if found is not None:
            return found
        asked = Asked(_launches, given, options)
    return attend_anew(
        q,
        k,
        v,
        causal=causal,
        window=window,
        window_size=window_size,
        sink=sink,
        see=see,
        softcap=softcap,
        score=score,
        tensors=tensors,
        sink_logits=sink_logits,
        gate=gate,
        output_scale=output_scale,
        output_scales=output_scales,
        scale=scale,
        kv_lengths=kv_lengths,
        cu_seqlens=cu_seqlens,
        cu_seqlens_k=cu_seqlens_k,
        forest=forest,
        layout=layout,
        return_lse=return_lse,
        out=out,
        reference=reference,
        significance=significance,
        significance_rows=significance_rows,
        ordered=ordered,
        numerics=numerics,
        allow_empty_rows=allow_empty_rows,
        asked=asked,
        traced=traced,
    )


def attend_anew(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    sink: int | None = None,
    see: Visibility | None = None,
    softcap: float | None = None,
    score: Callable | None = None,
    tensors: Mapping[str, Any] | None = None,
    sink_logits: Any = None,
    gate: Any = None,
    output_scale: Any = None,
    output_scales: str | None = None,
    scale: float | None = None,
    kv_lengths: Sequence[int] | Any = None,
    cu_seqlens: Sequence[int] | Any = None,
    cu_seqlens_k: Sequence[int] | Any = None,
    forest: Forest | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    out: Any = None,
    reference: bool = False,
    significance: str | None = None,
    significance_rows: int | None = None,
    ordered: bool | None = None,
    numerics: str | None = None,
    allow_empty_rows: bool = False,
    asked: Asked | None = None,
    traced: bool = False,
) -> Any:
    """Compute `attend` where no prepared launch was found. `asked`: receives a launch for later calls of this form, whose
    tensors are q, k and v, followed by `sink_logits` (or None), `gate` if given, `output_scale` if given, and those of `tensors`;
    `traced`: whether q is (is_traced)."""
    if not isinstance(reference, bool):
        raise expected(TensorError, "reference", "True or False", reference)
    if ordered is not None and not isinstance(ordered, bool):
        raise expected(TensorError, "ordered", "True, False or None", ordered)
    if not isinstance(allow_empty_rows, bool):
        raise expected(TensorError, "allow_empty_rows", "True or False", allow_empty_rows)
    if significance is not None or significance_rows is not None:
        check_significance(q, significance, significance_rows, forest)
        if gate is not None:
            raise TensorError(
                "gate: expected None beside significance; multiply the output by torch.sigmoid(gate) afterwards"
            )
        if output_scale is not None:
            raise TensorError(
                "output_scale: expected None beside significance; quantize the output afterwards"
            )
    if output_scales is not None:
        _check_output_scales(output_scales, output_scale, significance)
    weighed = {}
    if significance is not None:
        weighed = dict(significance=significance, significance_rows=significance_rows)
    if numerics is not None:
        checks.numerics(numerics)
        if ordered is False:
            legal = "True or None beside numerics='row', whose gradients always have an order"
            raise expected(TensorError, "ordered", legal, ordered)
        ordered = True
    of_gradients = {} if ordered is None else {"ordered": ordered}
    if window_size is not None:
        if window is not None or sink is not None or see is not None:
            raise SpecError("window_size: expected instead of window, sink and see, got both")
        causal, see = False, sides(causal, window_size)
    if traced:
        from . import torch_attend as module
    else:
        refuse_tangents(q, k, v, sink_logits, tensors, gate, output_scale)
        if reference or needs_gradient(q, k, v, sink_logits, tensors, gate, output_scale):
            from . import torch_gradients as module
        else:
            module = None

    def now(q: Any, k: Any, v: Any, tensors: Any, sink_logits: Any, gate: Any, *how: Any, **more: Any) -> Any:
        """Compute by `attend_now`. `how`: return_lse and out."""
        return_lse, out = how or (False, None)
        return attend_now(
            q,
            k,
            v,
            causal,
            window,
            sink,
            see,
            softcap,
            score,
            tensors,
            sink_logits,
            scale,
            kv_lengths,
            cu_seqlens,
            cu_seqlens_k,
            layout,
            return_lse,
            out,
            forest,
            allow_empty_rows,
            numerics,
            gate=gate,
            **more,
        )

    if module is not None:
        if output_scale is not None or output_scales is not None:
            from .torch_rules import check_output_scale, quantized, quantized_by_head

            recorded = needs_gradient(q, k, v, sink_logits, tensors, gate, output_scale)
            check_output_scale(v, output_scale, out, traced, recorded)
            asked = None  # A later call would not divide.
        if gate is not None:
            from .torch_rules import check_torch_gate, detached, gated, with_bits_of

            check_torch_gate(q, v, gate, out, traced)
            if traced and numerics is not None:
                raise TensorError(
                    "numerics: expected None beside gate in compiled code, where PyTorch multiplies the rounded output; call "
                    "attend outside of it"
                )
            asked = None  # A later call would not multiply.
        results = module.attend(
            q,
            k,
            v,
            causal=causal,
            window=window,
            sink=sink,
            see=see,
            softcap=softcap,
            score=score,
            tensors=tensors,
            sink_logits=sink_logits,
            scale=scale,
            kv_lengths=kv_lengths,
            cu_seqlens=cu_seqlens,
            cu_seqlens_k=cu_seqlens_k,
            forest=forest,
            layout=layout,
            return_lse=return_lse,
            out=out,
            reference=reference,
            numerics=numerics,
            allow_empty_rows=allow_empty_rows,
            **weighed,
            **of_gradients,
            **({} if asked is None else {"asked": asked}),
        )
        if gate is not None:
            results = gated(results, gate, return_lse)
        if output_scale is not None:
            return quantized(results, output_scale, return_lse)
        if output_scales is not None:
            return quantized_by_head(results, return_lse)
        if gate is None:
            return results
        if numerics is None or reference:
            return results
        plain = map(detached, (q, k, v, tensors, sink_logits, gate))
        return with_bits_of(results, lambda: now(*plain), return_lse)  # those of calls without gradients
    return now(
        q,
        k,
        v,
        tensors,
        sink_logits,
        gate,
        return_lse,
        out,
        asked=asked,
        output_scale=output_scale,
        output_scales=output_scales,
        **weighed,
    )


def _check_output_scales(given: object, output_scale: object, significance: object) -> None:
    if not (isinstance(given, str) and given == "head"):
        legal = (
            "'head', a scale for each row and head, or None; output_scale=... takes one scale of all outputs"
        )
        raise expected(TensorError, "output_scales", legal, given, nearest="head")
    for name, other in (("output_scale", output_scale), ("significance", significance)):
        if other is not None:
            raise TensorError(f"output_scales: expected None beside {name}")
