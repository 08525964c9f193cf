# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Versions of engines, whose interfaces move."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

_logger = logging.getLogger(__name__)


def refuse_version(engine: str, version: str, run_with: Sequence[str]) -> str:
    """Return why a version of an engine is refused, or ""; warn of a version that attn was not run in.

    engine    its name, for the message
    version   as the engine gives it. A developer's version counts as the newest
    run_with  the versions that attn was run in, the oldest first. Older ones had other interfaces of attention backends"""
    oldest = run_with[0]
    if "dev" not in version and _numbers(version) and _numbers(version) < _numbers(oldest):
        return (
            f"attn's backend needs {engine} {oldest}, whose interface of attention backends is another than that of "
            f"{version}; nearest legal: {oldest}"
        )
    if version.split("+")[0] not in run_with:
        _logger.warning("attn was run with %s %s, not with %s", engine, ", ".join(run_with), version)
    return ""


def _numbers(version: str) -> list[int]:
    """Return the numbers that a version begins with."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found[0].split(".")] if found else []
