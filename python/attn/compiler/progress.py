# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows progress on a terminal while a kernel is compiled."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_QUIET_SECONDS = 0.5  # A shorter compilation shows nothing.


@contextlib.contextmanager
def progress(name: str) -> Iterator[None]:
    """Show a line that names the kernel, on a terminal, until the compilation ends."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    ended = threading.Event()

    def tell() -> None:
        begin, pause, written = time.monotonic(), _QUIET_SECONDS, False
        while not ended.wait(pause):
            written, pause = True, 0.1
            stream.write(f"\r\033[Kattn: compiling {name} … {time.monotonic() - begin:.1f} s")
            stream.flush()
        if written:
            stream.write("\r\033[K")
            stream.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
