# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints versions, targets, caches, and the GPUs that were found: `python -m attn`. Compares the bits of an engine with
those of a trainer: `python -m attn check-bits MODEL`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator

from .env import collect


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["check-bits"]:
        from .bits.command import run

        return run(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m attn",
        description="Print versions, targets, caches, and the GPUs that were found. Add the output to a bug report.",
        epilog="python -m attn check-bits --help: compare the bits of an engine with those of a trainer.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options = parser.parse_args(arguments)
    found = collect()
    try:
        print(json.dumps(found, indent=2) if options.json else "\n".join(_lines(found, "")), flush=True)
    except BrokenPipeError:  # The reader closed the pipe; without this, Python complains when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _lines(values: dict[str, object], indent: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name.removesuffix('_bytes'):<20} {_text(name, value)}"


def _text(name: str, value: object) -> str:
    if name.endswith("bytes") and isinstance(value, int):
        return f"{value / 1024**2:.1f} MiB" if value < 1024**3 else f"{value / 1024**3:.1f} GiB"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value in (None, "") else str(value)


if __name__ == "__main__":
    sys.exit(main())
