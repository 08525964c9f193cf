# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The input of a compilation: a Request is everything that decides a kernel's code, except the compiler.

With the compiler's identity it makes the key of the caches: the same text, target and schedule give the same key in
every process and on every machine with this build of attn.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from typing import Any, NamedTuple

from .. import _attn
from ..errors import CompileError, SpecError, closest, expected

_KEY_FORMAT = 3


@functools.cache
def build_info() -> dict[str, str]:
    """Return the facts about the extension's build, read once."""
    return _attn.build_info()


ANY_ASSEMBLER = "any"
_assemblers: dict[tuple, str] = {}


def assembler() -> str:
    """Return the hash of the ptxas that would run now; "" if there is none. A file is read once, and again when it has
    changed."""
    path = _attn.build_info()["ptxas"]
    if not path:
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return _attn.identify_ptxas()
    file = path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    if file not in _assemblers:
        _assemblers[file] = _attn.identify_ptxas()
    return _assemblers[file]


class Asks(NamedTuple):
    """Requests beside a text: AttnAsks of include/attn-c/Compiler.h."""

    backward: tuple[str, ...] | None = None
    """Gradients, including those of these tables ("sink_logits" counts as one). None: no gradients."""
    ordered: bool | str | None = None
    """Whether gradients are the same bits in every run. "apart": they are, and rows and tokens have a launch each, which
    is quicker where rows see few tokens. None: the compiler chooses."""
    significance: str | None = None
    """"max", "mean" or "sum": the significance of each token is a result."""
    significance_rows: int | None = None
    """The number of last rows of each sequence that count. None: all."""
    device_plan: bool = False
    """Whether a kernel that makes plans on the device comes with it."""
    numerics: str | None = None
    """"row": a row has the same bits in every kernel and plan. None: the plan may decide."""

    def said(self) -> str:
        """Return text for messages: "backward=('bias',), ordered=True"; "" without requests."""
        asked = zip(self._fields, self, self._field_defaults.values(), strict=True)
        return ", ".join(f"{name}={value!r}" for name, value, default in asked if value != default)


def source_of(spec: Any) -> tuple[str, Asks]:
    """Return the text of a description as the compiler reads it, and the requests beside it. A text has its own
    requests."""
    if isinstance(spec, str):
        return spec, Asks()
    if (text := getattr(spec, "_plain", None)) is None:
        return spec.mlir(), Asks()
    return text, Asks(
        significance=spec.significance,
        significance_rows=spec.significance_rows,
        device_plan=spec.device_plan,
        numerics=spec.numerics,
    )


class Request(NamedTuple):
    """Everything that decides the compiler's result, except the compiler. `form`: "host" or "cuda"."""

    text: str
    asks: Asks
    entry: str
    target: str
    schedule: str
    form: str
    checked: bool

    def key(self, assembler: str = "") -> str:
        """Return the key, 32 hexadecimal digits. `assembler`: the one that made a cubin for the target beside the PTX;
        "": none."""
        info = build_info()
        code = [info["host_target"], info["host_abi"]] if self.form == "host" else [assembler or "ptx"]
        content = [_KEY_FORMAT, info["producer"], *self, *code]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()

    def name(self) -> str:
        """Return its name in messages."""
        _, _, rest = self.text.partition("func.func @")
        entry = self.entry or rest.partition("(")[0].strip() or "spec"
        return f"{entry} for {self.target}" + (" on the host device" if self.form == "host" else "")


def form_of(device: _attn.Device) -> str:
    return "host" if device.form == "host" else "cuda"


def request_for(
    spec: object,
    *,
    target: str,
    schedule: str = "auto",
    form: str,
    entry: str = "",
    checked: bool = False,
    asks: Asks | None = None,
) -> Request:
    """Check everything except the text, which the compiler checks. For a Spec its form is compiled: sizes of windows
    and sinks belong to a run. `asks`: instead of the description's requests."""
    spec = spec.form() if callable(getattr(spec, "form", None)) and not isinstance(spec, type) else spec
    if isinstance(spec, type) or not (isinstance(spec, str) or hasattr(spec, "mlir")):
        raise expected(SpecError, "spec", "an attn.Spec or MLIR text", spec)
    for argument, value, legal in (
        ("target", target, _attn.targets()),
        ("schedule", schedule, ["auto", "mma", "wgmma"]),
    ):
        if not isinstance(value, str) or value not in legal:
            raise expected(CompileError, argument, ", ".join(legal), value, nearest=closest(value, legal))
    if not isinstance(entry, str):
        raise expected(CompileError, "entry", "the name of a function", entry)
    text, asked = source_of(spec)
    return Request(text, asked if asks is None else asks, entry, target, schedule, form, bool(checked))
