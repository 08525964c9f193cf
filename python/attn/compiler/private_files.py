# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that only the user may have written, in a directory that is the user's alone."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


class Unusable(Exception):
    """The reason that a directory cannot be used, or a file not be trusted."""


def read_private(folder: int, name: str, largest: int) -> bytes:
    """Return the content of a file of at most so many bytes. Raises OSError, or Unusable if others may have written it."""
    # Without O_NONBLOCK, opening a planted pipe would block.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb", buffering=0) as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise Unusable("not a file of this user's alone")
        if status.st_size > largest:
            raise Unusable("too large for a kernel")
        content = stream.read()
        with contextlib.suppress(OSError):
            os.utime(file)  # The time of the last use, whatever the file system records about reads.
    return content


def write_private(folder: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb", buffering=0) as stream:
        rest = memoryview(content)
        while rest:
            rest = rest[stream.write(rest) :]


def remove(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def open_private(directory: Path, create: bool) -> int:
    """Open <base>/kernels. The base must belong to the user and be writable for no other user, so that none can
    exchange its contents; others may read its names, nothing more. Raises OSError or Unusable."""
    base = directory.parent
    if create:
        os.makedirs(base, mode=0o700, exist_ok=True)
    status = os.lstat(base)
    if stat.S_ISLNK(status.st_mode):
        raise Unusable(f"{base} is a symbolic link; set ATTN_CACHE_DIR to the directory itself")
    if not stat.S_ISDIR(status.st_mode):
        raise Unusable(f"{base} is no directory")
    _check_owner(base, status)
    if status.st_mode & 0o022:
        raise Unusable(
            f"{base} may be written by others (mode {status.st_mode & 0o777:o}); chmod go-w {base}"
        )
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
    if stat.S_ISLNK(os.lstat(directory).st_mode):
        raise Unusable(f"{directory} is a symbolic link; remove it")
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        _check_owner(directory, status)
        if status.st_mode & 0o077:
            raise Unusable(
                f"{directory} is open to others (mode {status.st_mode & 0o777:o}); chmod 700 {directory}"
            )
    except Unusable:
        os.close(folder)
        raise
    return folder


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise Unusable(
            f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()} who runs this; set "
            "ATTN_CACHE_DIR to a directory of your own"
        )
