# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the arguments of attend into a description."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..describe import visibility
from ..describe.checks import TOGETHER
from ..describe.forest import Forest
from ..describe.score import Score, tensor_shapes, trace
from ..describe.spec import Spec
from ..errors import SpecError, TensorError, closest, expected
from ..memory.dtypes import DTYPES, no_floats
from ..memory.views import Strided, is_traced, strided
from .arrange import Arrangement, arrange, arrange_gate


class Options(NamedTuple):
    """The arguments that decide the description, beside the tensors' shapes."""

    causal: bool
    window: int | None
    sink: int | None
    see: visibility.Visibility | None
    softcap: float | None
    score: Score | None
    scale: float | None
    layout: str
    return_lse: bool
    names: tuple[str, ...]
    """Names of the tensors beside q, k and v."""
    significance: str | None = None
    significance_rows: int | None = None
    allow_empty_rows: bool = False
    numerics: str | None = None
    gate: bool = False
    """Whether the tensor "gate" is the output's gate."""
    output_scale: bool = False
    """Whether the tensor "output_scale" is the output's."""
    output_scales: bool = False
    """Whether the scales of an output in e4m3 are a result."""

    def tables(self) -> tuple[str, ...]:
        """Return the names of the tensors that a score function reads."""
        own = {"sink_logits"}
        own |= {name for name, has in (("gate", self.gate), ("output_scale", self.output_scale)) if has}
        return tuple(name for name in self.names if name not in own)


def as_bfloat16(signature: tuple) -> Strided:
    """Return a signature in attn's words; NumPy's uint16 is read as the bits of bfloat16."""
    found = strided(signature)
    return found._replace(dtype="bf16") if signature[3] is None and found.dtype == "u16" else found


def describe_call(
    options: Options, views: list, tables: tuple, forest: Forest | None
) -> tuple[Arrangement, Spec]:
    """Check all arguments; return where each tensor goes, and the description. Raises TensorError or SpecError."""
    if options.layout not in ("bshd", "bhsd"):
        nearest = closest(options.layout, ("bshd", "bhsd"))
        raise expected(TensorError, "layout", "'bshd' or 'bhsd'", options.layout, nearest=nearest)
    q, k, v = (as_bfloat16(signature) for _, signature in views[:3])
    if q.dtype not in ("bf16", "f16"):
        cast = "; nearest legal: q.bfloat16()" if q.dtype in ("f32", "f64") else ""
        raise TensorError(f"q: expected bfloat16 or float16, got {q.text()}{cast}")
    dtype = DTYPES[q.dtype][0]
    see = visibility_of(options)
    score, tensors = score_of(options), read_tensors(options, views)
    made = arrange(
        q,
        k,
        v,
        options.layout,
        tables,
        forest,
        of_heads=_head_reader(options, score),
        of_positions=_position_reader(see, score),
        see=None if options.allow_empty_rows else see,
    )
    _check_tables(options, views, rows=made.operands["q"][1][0])
    gate = None
    if options.gate:
        _, signature = views[3 + options.names.index("gate")]
        gate = arrange_gate(made, q, as_bfloat16(signature), options.layout)
    spec = Spec(
        q_heads=made.q_heads,
        kv_heads=made.kv_heads,
        head_dim=made.operands["q"][1][-1],
        value_dim=made.shape[-1],
        dtype=dtype,
        kv=[made.store],
        see=see,
        score=score,
        tensors=tensors if options.score is not None else None,
        sink_logits="sink_logits" in options.names,
        gate=gate,
        output="fp8_e4m3" if options.output_scale or options.output_scales else None,
        output_scales="head" if options.output_scales else "tensor",
        scale=options.scale,
        return_lse=options.return_lse or options.significance is not None,
        significance=options.significance,
        significance_rows=options.significance_rows,
        numerics=options.numerics,
    )
    return made, spec


def _check_tables(options: Options, views: list, rows: int) -> None:
    for name, (_, signature) in zip(options.names, views[3:], strict=True):
        found = strided(signature)
        if rows and name in options.tables() and 0 in found.shape:
            raise TensorError(
                f"tensors[{name!r}]: expected at least 1 in each dimension, as the score function reads elements of it, "
                f"got {found.text()}"
            )


def check_significance(q: Any, significance: object, rows: object, forest: object) -> None:
    """Raise a TensorError if attn.attend cannot give this significance."""
    if not isinstance(significance, str) or significance not in TOGETHER:
        nearest = closest(significance, TOGETHER)
        raise expected(TensorError, "significance", "max, mean or sum", significance, nearest=nearest)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows < 2**31):
        legal = "a number of rows from 1 on, or None for all"
        raise expected(TensorError, "significance_rows", legal, rows, nearest=1)
    if is_traced(q):
        raise TensorError("significance: expected None in compiled code, which does not support it")
    if forest is not None and rows is not None:
        raise TensorError(
            "significance_rows: expected None beside forest, whose tokens rows of several sequences see; nearest: all rows"
        )


def visibility_of(options: Options) -> visibility.Visibility:
    causal, window, sink, see = options[:4]
    if not isinstance(causal, bool):
        raise expected(SpecError, "causal", "True or False", causal)
    if see is not None:
        if causal or window is not None or sink is not None:
            raise SpecError("see: expected instead of causal, window and sink, got both")
        return visibility.check_visibility("see", see)
    if not causal:
        for name, size in (("window", window), ("sink", sink)):
            if size is not None:
                raise SpecError(
                    f"{name}: expected causal=True beside it, got {size!r} without: windows end at the row's own position"
                )
        return visibility.all_tokens()
    if window is None and sink is None:
        return visibility.causal()
    if sink is None:
        return visibility.window(window)
    seen_first = visibility.sink(sink)
    return visibility.causal() & (seen_first if window is None else seen_first | visibility.recent(window))


def score_of(options: Options) -> Score | None:
    if options.softcap is not None:
        if options.score is not None:
            raise SpecError(
                "softcap: expected None beside score, which can hold it: attn.math.softcap(s, cap)"
            )
        return trace(_softcap(options.softcap))
    read = options.tables()
    if options.score is None and read:
        raise SpecError(f"tensors: expected a score function that reads {', '.join(read)}, got score=None")
    return options.score


def read_tensors(options: Options, views: list) -> tuple[tuple[str, tuple], ...]:
    """Return names and shapes of the tensors that a score function may read. An extent equal to the number of heads is
    compiled in; all others are sizes of the run."""
    q = views[0][1][1]
    for name, (_, signature) in zip(options.names, views[3:], strict=True):
        found = strided(signature)
        if name in options.tables() and found.dtype != "f32":
            raise TensorError(
                f"tensors[{name!r}]: expected float32, got {found.text()}{no_floats(found.dtype)}"
            )
    by_token = (
        isinstance(options.layout, str) and options.layout == "bshd"
    )  # Another layout is refused later.
    heads = q[2 if len(q) == 4 and by_token else 1] if len(q) > 1 else 1
    shapes = {
        name: tuple(n if n == heads else f"{name}_{axis}" for axis, n in enumerate(signature[1]))
        for name, (_, signature) in zip(options.names, views[3:], strict=True)
        if name in options.tables()
    }
    return tensor_shapes(shapes, ("kv",))


@functools.lru_cache(maxsize=256)
def _softcap(cap: object) -> Callable:
    if isinstance(cap, bool) or not isinstance(cap, (int, float)) or not 0 < cap < math.inf:
        raise expected(SpecError, "softcap", "a positive number, or None", cap)
    from ..describe.functions import check_cap, softcap

    check_cap(cap)

    return lambda s, h, qi, ki: softcap(s, cap)


def _head_reader(options: Options, score: Score | None) -> str:
    if "sink_logits" in options.names:
        return "a logit per head"
    if options.gate:
        return "a gate"
    if options.significance is not None:
        return "significance"
    return "a score function that depends on the head" if score and score.uses("h") else ""


def _position_reader(see: visibility.Visibility, score: Score | None) -> str:
    if score and not score.is_relative:
        return "a score function that depends on positions"
    term = see.fixed_term()
    return f"a {term}" if term else ""
