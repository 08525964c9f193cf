# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is compiled: a Request holds all that decides a kernel's code, but for the compiler.

With the compiler's identity it makes the key of the caches: the same text, target and schedule give the same key in every
process and on every machine with this build of attn.
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
    """Of the extension, read once."""
    return _attn.build_info()


ANY_ASSEMBLER = "any"
_assemblers: dict[tuple, str] = {}


def assembler() -> str:
    """Names the ptxas that would be run now, by its hash; "" where there is none. A file is read once, and again when
    it was changed."""
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
    """What is asked of a function beside its text: AttnAsks of include/attn-c/Compiler.h."""

    backward: tuple[str, ...] | None = None
    """Gradients, those of these tables among them ("sink_logits" is one, too). None: no gradients."""
    ordered: bool | None = None
    """Whether gradients are the same bits in every run. None: as the compiler chooses."""
    significance: str | None = None
    """"max", "mean" or "sum": the significance of each token is a result."""
    significance_rows: int | None = None
    """How many of the last rows of each sequence count. None: all."""
    device_plan: bool = False
    """Whether a kernel comes with it that makes plans on the device."""

    def said(self) -> str:
        """For messages: "backward=('bias',), ordered=True"; "" where nothing is asked for."""
        asked = zip(self._fields, self, self._field_defaults.values(), strict=True)
        return ", ".join(f"{name}={value!r}" for name, value, default in asked if value != default)


def source_of(spec: Any) -> tuple[str, Asks]:
    """The text of a description as the compiler reads it, and what is asked for beside it. A text asks for itself."""
    if isinstance(spec, str):
        return spec, Asks()
    if (text := getattr(spec, "_plain", None)) is None:
        return spec.mlir(), Asks()
    return text, Asks(
        significance=spec.significance,
        significance_rows=spec.significance_rows,
        device_plan=spec.device_plan,
    )


class Request(NamedTuple):
    """All that decides what the compiler makes, but for the compiler. `form`: "host" or "cuda"."""

    text: str
    asks: Asks
    entry: str
    target: str
    schedule: str
    form: str
    checked: bool

    def key(self, assembler: str = "") -> str:
        """32 hexadecimal digits. `assembler`: which one made a cubin for the target beside the PTX; "": there is none."""
        info = build_info()
        code = [info["host_target"], info["host_abi"]] if self.form == "host" else [assembler or "ptx"]
        content = [_KEY_FORMAT, info["producer"], *self, *code]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()

    def name(self) -> str:
        """How messages call it."""
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
    """Checks everything but the text, which is the compiler's to judge. Of a Spec the form is compiled: sizes of
    windows and sinks are a run's. `asks`: in place of what the description asks for."""
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
