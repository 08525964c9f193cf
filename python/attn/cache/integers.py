# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks whole numbers of callers: no bool, no float, within 32 bits."""

from __future__ import annotations

import numpy

from .. import _attn
from ..errors import PlanError, expected

_MOST = (1 << 31) - 1


def whole(name: str, value: object, least: int) -> int:
    if type(value) is int and least <= value <= _MOST:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or not least <= value <= _MOST:
        nearest = least if not isinstance(value, int) or value < least else _MOST
        raise expected(PlanError, name, f"a whole number from {least} to {_MOST}", value, nearest=nearest)
    return int(value)


def node_number(node: object) -> int:
    if isinstance(node, bool) or not isinstance(node, (int, numpy.integer)):
        raise expected(PlanError, "node", "a node, as add, branch and fork give it", node)
    return int(node)


def new_tokens(nodes: object, tokens: object) -> _attn.Appends:
    """Read nodes, and the number of new tokens at each, one for all or a list."""
    each = [node_number(nodes)] if isinstance(nodes, (int, numpy.integer)) else items("append", nodes)
    if isinstance(tokens, (int, numpy.integer)):
        return _attn.Appends(each, whole("tokens", tokens, 0), _read_number)
    return _attn.Appends(each, items("tokens", tokens), _read_number)


def _read_number(name: str, value: object) -> int:
    """Read a number that is not Python's int, or refuse it."""
    if name == "tokens":
        return whole(name, value, 0)
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or not 0 <= value < 1 << 64:
        raise expected(PlanError, name, "whole numbers", value)
    return int(value)


def items(name: str, values: object) -> list:
    try:
        return list(values)
    except TypeError:
        raise expected(PlanError, name, "a sequence", values) from None


def integers(name: str, values: object) -> list[int]:
    values = items(name, values)
    if set(map(type, values)) <= {int}:
        return values
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)):
            raise expected(PlanError, name, "whole numbers", value)
    return [int(value) for value in values]
