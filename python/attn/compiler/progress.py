# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a terminal shows while something takes long. Nothing is written where standard error is no terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

_QUIET_SECONDS = 0.5  # a compilation that takes no longer is not spoken of
_AGAIN_SECONDS = 0.1  # a line is not rewritten sooner
_CLEAR = "\r\033[K"


def is_terminal() -> bool:
    """Whether standard error is one."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def progress(name: str) -> Iterator[None]:
    """Show a line that names the kernel, on a terminal, until the compilation ends."""
    stream = sys.stderr
    if stream is None or not is_terminal():
        yield
        return
    ended = threading.Event()

    def tell() -> None:
        begin, pause, written = time.monotonic(), _QUIET_SECONDS, False
        while not ended.wait(pause):
            written, pause = True, _AGAIN_SECONDS
            stream.write(f"{_CLEAR}attn: compiling {name} … {time.monotonic() - begin:.1f} s")
            stream.flush()
        if written:
            stream.write(_CLEAR)
            stream.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


@contextlib.contextmanager
def steps_shown(name: str) -> Iterator[Callable[[object], None] | None]:
    """Yield a function that shows a step as text in one line, which each call replaces and which is gone afterwards.

    Yields None where standard error is no terminal."""
    stream = sys.stderr
    if stream is None or not is_terminal():
        yield None
        return
    shown: float | None = None

    def show(step: object) -> None:
        nonlocal shown
        if shown is None or time.monotonic() - shown >= _AGAIN_SECONDS:
            shown = time.monotonic()
            stream.write(f"{_CLEAR}attn: {name}: {step}")
            stream.flush()

    try:
        yield show
    finally:
        if shown is not None:
            stream.write(_CLEAR)
            stream.flush()
