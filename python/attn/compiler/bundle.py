# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels compiled ahead of time, in one file.

    python -m attn.aot specs.py -o kernels.attn      # during the build
    attn.load_bundle("kernels.attn")                 # in production; then attn.compile as usual

A bundle is a file of artifacts (runtime/src/artifact/Artifact.cpp) with a note for each: its key and the facts that the
caches know of it. It is code: load only files that you would execute. Its hashes find damage, not malice. It serves the
build of attn that made it, whose compiler is part of every key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import _attn
from ..errors import Error
from . import artifacts, requests
from .disk import Entry

_OF_PROCESS = ("producer", "host_target", "host_abi")


@dataclass(frozen=True)
class Bundle:
    """The result of load_bundle. `kernels`: their names, as in messages; `skipped`: those that this machine cannot run,
    with the reason."""

    path: Path
    kernels: tuple[str, ...]
    skipped: tuple[str, ...]


def write_bundle(path: str | os.PathLike, kernels: Iterable[tuple[requests.Request, Entry]]) -> int:
    """Write requests with their compiled code; a reader of the file sees the old or the new content. Returns the number
    of bytes."""
    made = {name: requests.build_info()[name] for name in _OF_PROCESS}
    parts = []
    for request, entry in kernels:
        key = request.key(requests.ANY_ASSEMBLER if "cubin" in entry.about.get("forms", ()) else "")
        note = made | {"key": key, "name": request.name(), "form": request.form, "about": entry.about}
        parts.append((entry.payload, json.dumps(note)))
    content = _attn.join_artifacts(parts)
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return len(content)


def load_bundle(path: str | os.PathLike) -> Bundle:
    """Make a bundle's kernels known to attn.compile in this process. Raises attn.Error if the file is damaged, not a
    bundle, or made by another build of attn; OSError if it cannot be read."""
    path = Path(path)
    try:
        found = _attn.read_artifacts(path.read_bytes(), str(path))
    except _attn.Failure as failure:
        raise Error(f"{path}: expected a bundle made by python -m attn.aot: {failure.message}") from None
    info = requests.build_info()
    entries, loaded, skipped = {}, [], []
    for one in found:
        if not one["note"]:
            raise Error(
                f"{path}: expected a bundle made by python -m attn.aot, got {one['entry']} for {one['target']} of "
                f"{one['producer']}, which attn.load takes"
            )
        note = _read_note(path, one["note"])
        if note["producer"] != info["producer"]:
            raise Error(
                f"{path}: made by {note['producer']}, and this is {info['producer']}; make it again with this build: "
                "python -m attn.aot"
            )
        if note["form"] == "host" and any(note[name] != info[name] for name in ("host_target", "host_abi")):
            skipped.append(
                f"{note['name']}: code for {note['host_target']} (version {note['host_abi']}), this process loads "
                f"{info['host_target']} (version {info['host_abi']})"
            )
            continue
        entries[note["key"]] = Entry(one["file"], note["about"])
        loaded.append(note["name"])
    for key, entry in entries.items():
        artifacts.add_bundled(key, entry)
    return Bundle(path, tuple(loaded), tuple(skipped))


def _read_note(path: Path, text: str) -> dict:
    """Return the note that write_bundle wrote beside an artifact. attn.Error for another note."""
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        note = None
    names = (*_OF_PROCESS, "key", "name", "form")
    if (
        isinstance(note, dict)
        and all(isinstance(note.get(name), str) for name in names)
        and isinstance(note.get("about"), dict)
    ):
        return note
    raise Error(
        f"{path}: expected a bundle made by python -m attn.aot, got an artifact with the note {text[:60]!r}"
    )
