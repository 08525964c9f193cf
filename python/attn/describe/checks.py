# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the descriptions share."""

from __future__ import annotations

import operator
import re

from ..errors import SpecError, closest, expected

# Names that tensors of every kernel have (lib/Dialect/Attn/IR/Signature.cpp).
RESERVED = ("q", "q_start", "q_pos", "o", "lse", "classes", "ordinal_heads", "sink_logits", "plan", "partial")
MAX_HEADS = 4096
TOGETHER = ("max", "mean", "sum")
"""How the heads of a group are reduced."""
MAX_EXTENT = 2**31 - 1


def integer(argument: str, value: object, low: int, high: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        nearest = None if number is None else min(max(number, low), high)
        raise expected(SpecError, argument, f"an integer from {low} to {high}", value, nearest=nearest)
    return number


def key_features(argument: str, value: object) -> int:
    """Check the features of queries and keys: a multiple of 8 from 8 to 256, or of 32 up to 576."""
    return _features(argument, value, 32, 576)


def value_features(argument: str, value: object) -> int:
    """Check the features of values and outputs: a multiple of 8 from 8 to 256, or of 128 up to 512."""
    return _features(argument, value, 128, 512)


def nearest_value_features(most: int) -> int:
    """Return the largest legal number of features of a value that is no larger than `most`."""
    return most // 8 * 8 if most <= 256 else min(most // 128 * 128, 512)


def _features(argument: str, value: object, step: int, most: int) -> int:
    legal = f"a multiple of 8 from 8 to 256, or of {step} up to {most}"
    try:
        dim = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise expected(SpecError, argument, legal, value) from None
    unit = 8 if dim <= 256 else step
    if isinstance(value, bool) or not 8 <= dim <= most or dim % unit:
        below = min(max(dim // unit * unit, 8), most)
        nearest = str(below) if not 8 <= dim <= most else f"{below} or {below + unit}"
        raise expected(SpecError, argument, legal, value, nearest=nearest)
    return dim


def boolean(argument: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise expected(SpecError, argument, "True or False", value)


def significance(together: object, rows: object) -> None:
    """Check a description's request for significance, and its number of last rows."""
    if together is None and rows is not None:
        raise SpecError("significance_rows: expected None without significance")
    if together is not None and together not in TOGETHER:
        nearest = closest(together, TOGETHER)
        raise expected(SpecError, "significance", "max, mean or sum", together, nearest=nearest)
    if rows is not None:
        integer("significance_rows", rows, 1, MAX_EXTENT)


def numerics(value: object) -> str | None:
    """Check how bits of results may depend on a plan."""
    if not (value is None or isinstance(value, str) and value == "row"):
        legal = "'row', for bits that depend on the row alone, or None"
        raise expected(SpecError, "numerics", legal, value, nearest="'row'")
    return value  # type: ignore[return-value]


def gate(value: object) -> str | None:
    """Check the shape of the output's gate."""
    kinds = ("elementwise", "headwise")
    if value is not None and not (isinstance(value, str) and value in kinds):
        legal = "'elementwise', a number for each feature, 'headwise', one for each head, or None"
        raise expected(SpecError, "gate", legal, value, nearest=closest(value, kinds))
    return value  # type: ignore[return-value]


def output(value: object) -> str | None:
    """Check the format of outputs."""
    if value is not None and value != "fp8_e4m3":
        legal = "'fp8_e4m3', with a scale, or None for the dtype of queries"
        raise expected(SpecError, "output", legal, value, nearest="fp8_e4m3")
    return value  # type: ignore[return-value]


def output_scales(value: object, output: str | None, value_dim: int) -> str:
    """Check what has a scale of outputs in e4m3."""
    kinds = ("tensor", "head")
    if not (isinstance(value, str) and value in kinds):
        legal = "'tensor', one scale, which a run takes, or 'head', one for each row and head, which a run returns"
        raise expected(SpecError, "output_scales", legal, value, nearest=closest(value, kinds))
    if value == "head" and output is None:
        raise SpecError("output_scales: expected output='fp8_e4m3' beside 'head', got None")
    if value == "head" and value_dim > 256:
        legal = f"'tensor' for values of {value_dim} features, whose rows several warps share"
        raise expected(SpecError, "output_scales", legal, value, nearest="tensor")
    return value


def name(argument: str, value: object, taken: tuple[str, ...] = ()) -> str:
    """Check the name of an operand or a tensor: an identifier that nothing else has."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise expected(SpecError, argument, "a name of letters, digits and _, as in 'kv'", value)
    if value in RESERVED:
        legal = "a name that no kernel reserves (" + ", ".join(RESERVED) + ")"
        raise expected(SpecError, argument, legal, value, nearest=repr(value + "_"))
    if value in taken:
        raise expected(SpecError, argument, "a name of its own", value, nearest=repr(value + "_"))
    return value
