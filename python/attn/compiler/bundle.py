# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels compiled ahead of time, in one file.

    python -m attn.aot specs.py -o kernels.attn      # where there is time
    attn.load_bundle("kernels.attn")                 # where there is none; then attn.compile as ever

A bundle is code: load only what you would execute. Its hash finds damage, not malice. It serves the
build of attn that made it, whose compiler is part of every key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import Error
from . import artifacts, requests
from .disk import Entry

_MAGIC = b"attn bundle 1\n"
_DIGEST = 32


@dataclass(frozen=True)
class Bundle:
    """What load_bundle brought. `kernels`: names as in messages; `skipped`: those that this machine cannot run, with
    the reason."""

    path: Path
    kernels: tuple[str, ...]
    skipped: tuple[str, ...]


def write_bundle(path: str | os.PathLike, kernels: Iterable[tuple[requests.Request, str, Entry]]) -> int:
    """Writes requests with their keys and compiled code; whoever reads the file meets the old one or the new one.
    Gives its bytes."""
    info, index, payloads, offset = requests.build_info(), [], [], 0
    for request, key, entry in kernels:
        row = {"key": key, "name": request.name(), "form": request.form, "about": entry.about}
        index.append(row | {"offset": offset, "bytes": len(entry.payload)})
        payloads.append(entry.payload)
        offset += len(entry.payload)
    head = json.dumps(
        {name: info[name] for name in ("producer", "host_target", "host_abi")} | {"kernels": index}
    )
    rest = b"".join([len(head.encode()).to_bytes(8, "little"), head.encode(), *payloads])
    content = _MAGIC + hashlib.blake2b(rest, digest_size=_DIGEST).digest() + rest
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return len(content)


def load_bundle(path: str | os.PathLike) -> Bundle:
    """Makes a bundle's kernels known to attn.compile in this process. Errors: attn.Error where the file is damaged, no
    bundle, or made by another build of attn; OSError where it cannot be read."""
    path = Path(path)
    content = path.read_bytes()
    head = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC:
        raise Error(f"{path}: expected a bundle made by python -m attn.aot, got another file")
    rest = memoryview(content)[head:]
    if hashlib.blake2b(rest, digest_size=_DIGEST).digest() != content[len(_MAGIC) : head]:
        raise Error(f"{path}: this bundle is damaged: its hash is not that of its content; make it again")
    end = 8 + int.from_bytes(rest[:8], "little")
    about = json.loads(bytes(rest[8:end]))
    info = requests.build_info()
    if about["producer"] != info["producer"]:
        raise Error(
            f"{path}: made by {about['producer']}, and this is {info['producer']}; make it again with this build: "
            "python -m attn.aot"
        )
    loaded, skipped = [], []
    for row in about["kernels"]:
        if row["form"] == "host" and any(about[name] != info[name] for name in ("host_target", "host_abi")):
            skipped.append(
                f"{row['name']}: code for {about['host_target']} (version {about['host_abi']}), this process loads "
                f"{info['host_target']} (version {info['host_abi']})"
            )
            continue
        begin = end + row["offset"]
        artifacts.add_bundled(row["key"], Entry(bytes(rest[begin : begin + row["bytes"]]), row["about"]))
        loaded.append(row["name"])
    return Bundle(path, tuple(loaded), tuple(skipped))
