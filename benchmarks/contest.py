# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs all sides of a point in one process, alternating on the same tensors: `bench gpu` compares them.

Before anything is timed, attn's result is compared with a peer's, or if no peer takes the point with single rows from
the definition: a wrong result is not timed.
"""

import warnings
from dataclasses import dataclass, field

from measuring.codes import CodedTensors
from measuring.peers import EXPANDS, Side, backend, makers, reason
from measuring.report import import_attn
from measuring.tensors import Tensors, difference
from parts.quantized import BASELINE, PEER, QuantizedPoint

DIFFERENCE = 0.03  # The most between two results in bf16, as a share of the largest number of a row and head.
CLOSE = 1.3  # A peer is measured sustained if alone it takes at most so many times the best side's time.
PEERS = ("cudnn", "flash", "flex", "flashinfer", "flashinfer, single", "flash4")


@dataclass
class Measured:
    """Milliseconds by side, `attn` first; why peers declined; facts about attn's run; and its distance from `judge`."""

    alone: dict = field(default_factory=dict)
    sustained: dict = field(default_factory=dict)
    declined: dict = field(default_factory=dict)
    about: dict = field(default_factory=dict)
    judge: str = ""
    difference: float | None = None


def attn_side(torch, tensors):
    """Return attn's side, and facts about its run."""
    attn = import_attn()
    problem = tensors.point.problem
    kernel = attn.compile(problem.text(), device="host" if tensors.device == "cpu" else tensors.device)
    batch, operands, extras = tensors.batch(), tensors.operands(), tensors.extras()
    shape = (len(tensors.q), problem.q_heads, problem.value_dim)
    out = torch.empty(shape, dtype=tensors.q.dtype, device=tensors.device)
    plan = kernel.plan(batch)

    def record():
        """Return a run with a fixed plan of its own, as recorded launches need it."""
        fixed = kernel.plan(batch)
        fixed.fix()
        return lambda: kernel.run(tensors.q, operands, fixed, out=out, **extras)

    stats = plan.stats
    about = {
        "predicted_ms": 1e3 * stats["seconds"],
        "schedule": kernel.schedule,
        "kernel": kernel.manifest["kernels"][stats["kernel"]]["name"],
        "blocks": stats["blocks"],
        "tasks": stats["tasks"],
        "cuts": stats["cuts"],
        "balance": stats["balance"],
    }
    run = lambda: kernel.run(tensors.q, operands, plan, out=out, **extras)  # noqa: E731
    by_sequence = len(set(tensors.lengths)) == 1
    return Side(run, lambda: tensors.by_sequence(out) if by_sequence else out[None], record), about


def attn_plain(torch, tensors):
    """Return attn's side with the same numbers in bf16."""
    return attn_side(torch, tensors.plain)[0]


class Contest:
    """Called with a point and the names of its peers, measures them and, unless told otherwise, attn."""

    def __init__(self, torch, timer, device="cuda"):
        self.torch, self.timer, self.device = torch, timer, device
        self.makers = {**makers(), BASELINE: attn_plain}

    def __call__(self, point, names, ours=True):
        with self.torch.no_grad():
            measured = self.measure(point, names, ours)
        if self.device == "cuda":
            self.torch.cuda.empty_cache()  # attn-run, which other parts start, is another process.
        return measured

    def measure(self, point, names, ours):
        kind = CodedTensors if isinstance(point, QuantizedPoint) else Tensors
        measured, tensors = Measured(), kind(self.torch, point, self.device)
        sides = {}
        if ours:
            sides["attn"], measured.about = attn_side(self.torch, tensors)
            sides["attn"].run()
        for name in names:
            self.invite(name, tensors, sides, measured.declined)
        if ours:
            self.judge(point, tensors, sides, measured)
        runs = {name: side.run for name, side in sides.items()}
        measured.alone = self.timer.alone(runs) if runs else {}
        close = {name: runs[name] for name in self.close(measured.alone)}
        if ours:
            record = lambda name: sides[name].record() if sides[name].record else runs[name]  # noqa: E731
            unrecorded = {}
            measured.sustained = self.timer.sustained(close, measured.alone, record, unrecorded)
            measured.declined |= {name: reason(error) for name, error in unrecorded.items()}
        return measured

    def invite(self, name, tensors, sides, declined):
        """Add a peer if it takes the point; it has run once then."""

        def attempt(label, make):
            with warnings.catch_warnings(record=True) as said:  # PyTorch warns of the cause before it raises.
                try:
                    side = make(self.torch, tensors)
                    side.run()
                    side.result()
                    sides[label] = side
                except Exception as error:  # Compilers raise errors of many types.
                    declined[label] = reason(error, said)
            return label in sides

        if attempt(name, self.makers[name]) or name not in EXPANDS:
            return
        if tensors.rows[0] > 1 and tensors.point.problem.group > 1:
            attempt(f"{name}, heads expanded", backend(name, expand=True))

    def judge(self, point, tensors, sides, measured):
        """Compare attn with the first peer, or with rows of the definition. Quantized points use the latter: their
        peers are attn itself, and rounded."""
        found = sides["attn"].result()
        judges = [name for name in sides if name not in ("attn", BASELINE, PEER)]
        if judges:
            measured.judge = judges[0]
            measured.difference = max(
                difference(a, b) for a, b in zip(found, sides[judges[0]].result(), strict=True)
            )
        else:
            measured.judge = "definition"
            starts, rows = tensors.starts(tensors.rows), found.flatten(0, 1)
            measured.difference = max(
                difference(rows[starts[sequence] + row], tensors.expected(sequence, row))
                for sequence, row in tensors.sampled()
            )
        if not measured.difference <= DIFFERENCE:
            raise RuntimeError(
                f"{point.key}: attn's result differs from that of {measured.judge} by {measured.difference:.3g} of "
                f"a row's largest number, expected at most {DIFFERENCE}"
            )

    def close(self, alone):
        """Return attn, and the peers that may be the best when sustained."""
        best = min((ms for name, ms in alone.items() if name != "attn"), default=0)
        return [name for name, ms in alone.items() if name == "attn" or ms <= CLOSE * best]
