# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels on disk, shared by all processes of a user.

A kernel is code that will be executed, so whoever can write here could run code as
the user. Nothing is believed because it lies in the right place:

    directory    the user's own, 0700, no symbolic link; else it is not used at all
    entry        a plain file of the user's that nobody else may write, whose first bytes are a
                 hash of all others, among them the key: a torn, changed, renamed or planted file
                 is removed and built anew

Writers write a file of their own and rename it, so a reader meets nothing or all of an entry, and
a killed writer leaves a part that a later sweep removes. Who builds an entry holds a lock (locks.py),
and others wait for the entry instead of building it too. Locks only save work: whoever has waited for
long builds without one, and renames over the other's equal entry.

Entries say nothing of where they lie: a directory may be copied or moved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import Error
from .locks import hold_byte
from .private_files import Unusable, open_private, read_private, remove, write_private

_MAGIC = b"attn kernel 1\n"
_DIGEST = 32
_SUFFIX = ".attn"
_LARGEST = 1 << 28  # Bytes of one entry: no kernel is larger.
_DEFAULT_LIMIT = 1 << 30
_PATIENCE = 60.0  # Seconds to wait for another process that builds the same kernel.
_ABANDONED = 3600.0  # Seconds after which a part of an entry no longer has a writer.


@dataclass(frozen=True)
class Entry:
    """An artifact, and facts about how it was made."""

    payload: bytes
    about: dict


@dataclass
class Counts:
    """Counters of one DiskCache object."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    rejected: int = 0
    evicted: int = 0


def default_directory() -> Path:
    """Return ATTN_CACHE_DIR, else attn in XDG_CACHE_HOME, else ~/.cache/attn. RuntimeError without a home directory."""
    if given := os.environ.get("ATTN_CACHE_DIR"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path("~/.cache").expanduser()) / "attn"


def default_limit() -> int:
    """Return ATTN_CACHE_SIZE in bytes, which may end in K, M or G; 1 GiB if it is not set. 0 turns the cache off."""
    text = os.environ.get("ATTN_CACHE_SIZE", "").strip()
    if not text:
        return _DEFAULT_LIMIT
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1].upper(), 1)
    digits = text[:-1] if scale > 1 else text
    if not (digits.isascii() and digits.isdigit()):
        raise Error(f"ATTN_CACHE_SIZE: expected bytes as 500000000, 500M or 1G, got {text!r}")
    return int(digits) * scale


class DiskCache:
    """Entries by key, a string of hexadecimal digits. An error of the file system is not an error here: kernels that
    cannot be kept are built each time, with one RuntimeWarning. Threads and forked children may use it."""

    def __init__(self, directory: str | os.PathLike | None = None, limit: int | None = None):
        self.limit = default_limit() if limit is None else limit
        self.counts = Counts()
        self.problem: str | None = None
        try:
            base = Path(directory) if directory is not None else default_directory()
            self.directory = Path(os.path.abspath(base)) / "kernels"
        except RuntimeError:  # There is no HOME, and no user has this process's uid.
            self.directory = Path("~/.cache/attn/kernels")
            self.limit = 0
            self._complain("there is no home directory; set ATTN_CACHE_DIR or HOME")

    def get(self, key: str, build: Callable[[], Entry]) -> tuple[Entry, bool]:
        """Return the entry, and True if it was there; else the result of `build`, which is then kept."""
        if entry := self.load(key):
            return entry, True
        with self.lock(key):
            if entry := self.load(key):
                return entry, True
            self.counts.misses += 1
            entry = build()
            self.store(key, entry)
            return entry, False

    def load(self, key: str) -> Entry | None:
        """Return an entry; None if there is no valid one."""
        with self._folder(create=False) as folder:
            if folder is None:
                return None
            try:
                content = read_private(folder, key + _SUFFIX, _LARGEST)
                entry = _unpack(key, content)
            except FileNotFoundError:
                return None
            except (OSError, Unusable):
                self.counts.rejected += 1
                remove(folder, key + _SUFFIX)
                return None
        self.counts.hits += 1
        return entry

    def reject(self, key: str) -> None:
        """Remove an entry that turned out to be invalid."""
        with self._folder(create=False) as folder:
            if folder is not None:
                self.counts.rejected += 1
                remove(folder, key + _SUFFIX)

    def store(self, key: str, entry: Entry) -> bool:
        """Keep an entry, and drop the least recently used ones. Returns False if that was not possible."""
        content = _pack(key, entry)
        if len(content) > min(self.limit, _LARGEST):
            return False
        with self._folder(create=True) as folder:
            if folder is None:
                return False
            part = f"{key}.{os.getpid()}.{secrets.token_hex(4)}.part"
            try:
                write_private(folder, part, content)
                os.replace(part, key + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                remove(folder, part)
                self._complain(f"cannot write {self.directory}: {error.strerror}")
                return False
            self.counts.stored += 1
            self._sweep(folder)
        return True

    @contextlib.contextmanager
    def lock(self, key: str, patience: float = _PATIENCE) -> Iterator[bool]:
        """Keep other threads and processes from building the same kernel. Yields False if that was not possible, or
        after waiting for others too long."""
        with self._folder(create=True) as folder:
            if folder is None:
                yield False
                return
            with hold_byte(folder, "lock", key, patience) as locked:
                yield locked

    def entries(self) -> list[tuple[str, int, float]]:
        """Return key, bytes and time of the last use of each entry, the least recently used one first."""
        with self._folder(create=False) as folder:
            return [] if folder is None else _entries(folder)

    def state(self) -> dict:
        """Return facts for reports: directory, why it cannot be used or None, entries, bytes, limit in bytes."""
        entries = self.entries()
        return {
            "directory": str(self.directory),
            "problem": self.problem,
            "entries": len(entries),
            "bytes": sum(size for _, size, _ in entries),
            "limit": self.limit,
        }

    def clear(self) -> None:
        """Remove every entry."""
        with self._folder(create=False) as folder:
            for key, _, _ in [] if folder is None else _entries(folder):
                remove(folder, key + _SUFFIX)

    @contextlib.contextmanager
    def _folder(self, create: bool) -> Iterator[int | None]:
        """Yield the directory, opened and checked to be private; None if it does not exist, or must not be used."""
        folder = None
        if self.limit > 0:
            try:
                folder = open_private(self.directory, create)
                self.problem = None
            except FileNotFoundError as error:
                if create:
                    self._complain(f"cannot make {self.directory}: {error.strerror}")
            except OSError as error:
                self._complain(f"cannot use {self.directory}: {error.strerror}")
            except Unusable as error:
                self._complain(str(error))
        try:
            yield folder
        finally:
            if folder is not None:
                os.close(folder)

    def _complain(self, problem: str) -> None:
        if self.problem != problem:
            self.problem = problem
            warnings.warn(f"attn keeps no compiled kernels on disk: {problem}", RuntimeWarning, stacklevel=2)

    def _sweep(self, folder: int) -> None:
        """Remove the least recently used entries until the rest fits with headroom, and parts of entries whose writers
        must have died."""
        now = time.time()
        with os.scandir(folder) as files:
            parts = [file.name for file in files if file.name.endswith(".part")]
        for name in parts:
            with contextlib.suppress(OSError):
                if now - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > _ABANDONED:
                    remove(folder, name)
        entries = _entries(folder)
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for key, size, _ in entries[:-1]:
            if total <= self.limit - self.limit // 10:
                break
            remove(folder, key + _SUFFIX)
            self.counts.evicted += 1
            total -= size


# --- Entries -------------------------------------------------------------------------------------------------


def _pack(key: str, entry: Entry) -> bytes:
    about = json.dumps(entry.about).encode()
    name = key.encode()
    rest = b"".join(
        [len(name).to_bytes(4, "little"), name, len(about).to_bytes(4, "little"), about, entry.payload]
    )
    return _MAGIC + hashlib.blake2b(rest, digest_size=_DIGEST).digest() + rest


def _unpack(key: str, content: bytes) -> Entry:
    head = len(_MAGIC) + _DIGEST
    rest = memoryview(content)[head:]
    digest = hashlib.blake2b(rest, digest_size=_DIGEST).digest()
    if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : head] != digest:
        raise Unusable("the hash does not fit")
    name, rest = _field(rest)
    about, rest = _field(rest)
    if name != key.encode():
        raise Unusable("an entry of another key")
    try:
        known = json.loads(about)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"no JSON: {error}") from None
    if not isinstance(known, dict):
        raise Unusable("no JSON object")
    return Entry(bytes(rest), known)


def _field(rest: memoryview) -> tuple[bytes, memoryview]:
    end = 4 + int.from_bytes(rest[:4], "little")
    return bytes(rest[4:end]), rest[end:]


def _entries(folder: int) -> list[tuple[str, int, float]]:
    found = []
    with os.scandir(folder) as files:
        for file in files:
            if file.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    found.append((file.name.removesuffix(_SUFFIX), status.st_size, status.st_mtime_ns / 1e9))
    return sorted(found, key=lambda entry: entry[2])
