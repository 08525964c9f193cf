# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports what a kernel needs of a GPU, and how long it takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import _attn
from .code import Code
from .plan import Plan


@dataclass(frozen=True)
class FunctionReport:
    """One of a kernel's functions. None: there was no ptxas. Bytes are per block, registers per thread."""

    name: str
    role: str
    threads: int
    shared_bytes: int
    rows: int
    keys: int
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None


@dataclass(frozen=True)
class KernelReport:
    """The resources that a kernel needs; Kernel.report returns it. Prints as a table."""

    entry: str
    target: str
    schedule: str
    device: str
    functions: tuple[FunctionReport, ...]
    compile_seconds: dict[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    predicted_seconds: float | None = None
    """The plan's predicted time on an H200."""
    measured_seconds: float | None = None
    """The time of a run on the kernel's device, including launch and wait."""

    def __str__(self) -> str:
        lines = [f"{self.entry} for {self.target}, schedule {self.schedule}, on {self.device}"]
        head = f"  {'function':<28}{'role':<8}{'threads':>8}{'shared':>11}{'tile':>11}{'registers':>11}{'spills':>8}{'stack':>7}"
        lines.append(head)
        for f in self.functions:
            tile = f"{f.rows} x {f.keys}" if f.keys else "-"
            of_ptxas = [str(n) if n is not None else "?" for n in (f.registers, f.spill_bytes, f.stack_bytes)]
            lines.append(
                f"  {f.name:<28}{f.role:<8}{f.threads:>8}{f.shared_bytes:>9} B{tile:>11}{of_ptxas[0]:>11}"
                f"{of_ptxas[1]:>8}{of_ptxas[2]:>7}"
            )
        if self.compile_seconds:
            stages = ", ".join(
                f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in self.compile_seconds.items()
            )
            lines.append(f"  compiled in: {stages}")
        if self.predicted_seconds is not None:
            lines.append(f"  predicted on an H200: {self.predicted_seconds * 1e6:.1f} us")
        if self.measured_seconds is not None:
            lines.append(f"  measured on {self.device}: {self.measured_seconds * 1e6:.1f} us")
        return "\n".join(lines)


def make_report(
    kernel: Code, plan: Plan | None, run: Callable[[], object] | None, repeat: int
) -> KernelReport:
    of_ptxas = parse_ptxas(_ptxas_output(kernel))
    functions = tuple(
        FunctionReport(
            name=info["name"],
            role=info["role"],
            threads=info["threads"],
            shared_bytes=info["shared_bytes"],
            rows=info.get("rows", 0),
            keys=info.get("keys", 0),
            **of_ptxas.get(info["name"], {}),
        )
        for info in kernel.manifest["kernels"]
    )
    return KernelReport(
        entry=kernel.entry,
        target=kernel.target,
        schedule=kernel.schedule,
        device=kernel.device,
        functions=functions,
        compile_seconds=kernel.about.get("seconds", {}),
        remarks=tuple(kernel.about.get("remarks", ())),
        predicted_seconds=plan.stats["seconds"] if plan is not None else None,
        measured_seconds=_measure(kernel, run, repeat) if run is not None else None,
    )


def _ptxas_output(kernel: Code) -> str:
    """Return the output of ptxas, kept from compiling; for a kernel of the host device the assembler runs now. ""
    without one."""
    if said := kernel.about.get("ptxas"):
        return said
    request = kernel._request
    try:
        made = _attn.compile(
            request.text,
            entry=request.entry,
            target=request.target,
            schedule=request.schedule,
            asks=request.asks,
            forms=["cubin"],
        )
    except _attn.Failure:
        return ""
    kernel.about["ptxas"] = made.ptxas
    return made.ptxas


def parse_ptxas(text: str) -> dict[str, dict[str, int]]:
    """Return registers, spills and stack by function, from the output of ptxas -v."""
    found: dict[str, dict[str, int]] = {}
    name = None
    for line in text.splitlines():
        if match := re.search(r"(?:entry function|properties for) '?([\w$.]+)'?", line):
            name = match[1]
        elif name and (
            match := re.search(
                r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
            )
        ):
            found.setdefault(name, {})
            found[name] |= {"stack_bytes": int(match[1]), "spill_bytes": int(match[2]) + int(match[3])}
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            found.setdefault(name, {})["registers"] = int(match[1])
    return found


def _measure(kernel: Code, run: Callable[[], object], repeat: int) -> float:
    device, least = kernel._native.device, float("inf")
    for _ in range(max(1, repeat) + 1):  # The first run warms up.
        device.synchronize()
        begin = time.perf_counter()
        run()
        device.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least
