# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Locks by name, among threads and among processes.

Of a process: ranges of bytes of one file, one byte per key. The system lets go of them when the
process dies, however it dies, and a forked child does not own its parent's. A process that closes
any descriptor of a file loses all its locks in it, so each file is opened once and stays open.

Threads of one process own the same locks, so they take one of their own first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Hashable, Iterator


class ThreadLocks:
    """One lock per key, for as long as a thread holds or awaits it."""

    def __init__(self) -> None:
        self._reset()
        _instances.append(self)

    def _reset(self) -> None:
        self._guard = threading.Lock()
        # For each key: its lock, and the number of threads that hold or await it.
        self._waiting: dict[Hashable, list] = {}

    @contextlib.contextmanager
    def hold(self, key: Hashable, patience: float = -1) -> Iterator[bool]:
        """Hold the lock of a key. Yields False if it was awaited for `patience` seconds in vain; negative: for ever."""
        with self._guard:
            waiting = self._waiting.setdefault(key, [threading.Lock(), 0])
            waiting[1] += 1
        locked = False
        try:
            locked = waiting[0].acquire(timeout=patience)
            yield locked
        finally:
            if locked:
                waiting[0].release()
            with self._guard:
                waiting[1] -= 1
                if waiting[1] == 0 and self._waiting.get(key) is waiting:
                    del self._waiting[key]


_instances: list[ThreadLocks] = []
_threads = ThreadLocks()
_files_guard = threading.Lock()
_files: dict[tuple[int, int], int] = {}


@contextlib.contextmanager
def hold_byte(folder: int, name: str, key: str, patience: float) -> Iterator[bool]:
    """Lock the key in a file of the folder, an open directory. Yields False if it was awaited in vain, or if the file
    system has no locks."""
    deadline = time.monotonic() + patience
    try:
        file, identity = _open_once(folder, name)
    except OSError:
        yield False
        return
    with _threads.hold((identity, key), patience) as alone:
        place = int(hashlib.blake2b(key.encode(), digest_size=7).hexdigest(), 16)
        locked = alone and _lock_byte(file, place, deadline)
        try:
            yield locked
        finally:
            if locked:
                fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


def _open_once(folder: int, name: str) -> tuple[int, tuple[int, int]]:
    with _files_guard:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            identity = status.st_dev, status.st_ino
            if identity in _files:
                return _files[identity], identity
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        status = os.fstat(file)
        identity = status.st_dev, status.st_ino
        return _files.setdefault(identity, file), identity


def _lock_byte(file: int, place: int, deadline: float) -> bool:
    pause = 0.0005
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= deadline:
                return False  # A file system without locks, or a holder that has stopped.
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _forget_threads() -> None:
    """Reset locks in a forked child, which has one thread, and none of those that held locks."""
    global _files_guard
    _files_guard = threading.Lock()
    for locks in _instances:
        locks._reset()


os.register_at_fork(after_in_child=_forget_threads)
