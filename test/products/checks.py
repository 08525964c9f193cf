# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare results with the oracle's, within tolerances."""

from __future__ import annotations

import contextlib
import math

import numpy
import torch

# Tolerance of the output of a row and head, relative to it; of a gradient, relative to the tensor and to its terms.
TOLERANCE = {"bfloat16": 8e-3, "float16": 1e-3}
OF_GRADIENT = {"bfloat16": (1.2e-2, 4e-3), "float16": (2e-3, 6e-4)}
LSE = 2e-3
LEAST = {"bfloat16": 0.0, "float16": 2.0**-24}  # all numbers are multiples of it
MOST = {"bfloat16": 3e38, "float16": 6e4}
# Several times the error of a weight or a dequantized value that is too small for f16.
UNWEIGHED = 3 * 2.0**-25
ROUNDING = 2.0**-21  # of a score, relative to the terms of its sum


class Wrong(Exception):
    pass


def check(name, holds, said):
    if not holds:
        raise Wrong(f"{name}: {said}")


def check_rows(form, found, wanted, size, tolerance=0.0, unweighed=0.0):
    """Check out and lse of [rows, heads]. `size`: magnitude of the terms of scores; `unweighed`: the error that an output may
    have because weights are too small for their dtype."""
    out, lse = (t.detach().double() for t in found)
    wanted_out, wanted_lse = (t.detach() for t in wanted)
    inexact = 4 * ROUNDING * size
    base = max(TOLERANCE[form["dtype"]] * max(1, 32 / form["value_dim"]), tolerance)
    fits = wanted_out.abs().amax(-1) < MOST[form["dtype"]] if wanted_out.numel() else inexact < 0
    error = ((out - wanted_out).abs() - LEAST[form["dtype"]] / 2).clamp(min=0).norm(dim=-1)
    error = torch.where((wanted_out == 0).all(-1), out.abs().amax(-1) if out.numel() else error, error)
    norm = wanted_out.norm(dim=-1)
    bad = fits & ~(error <= (base + inexact) * norm + unweighed) & (inexact < 0.05)
    if bad.any():
        row, head = (int(i) for i in bad.nonzero()[0])
        relative = float(error[row, head] / norm[row, head])
        check(
            "out",
            False,
            f"row {row}, head {head}: {relative:.2e} off, tolerance {float(base + inexact[row, head]):.1e}",
        )
    check("out", bool((out.isfinite() | ~fits[..., None]).all()), "not finite")
    none = wanted_lse == -math.inf
    check("lse", bool((lse[none] == -math.inf).all()), "of a row that sees nothing is not -inf")
    off = (lse - wanted_lse).abs()[~none]
    most = (max(LSE, tolerance) + 1e-6 * wanted_lse.abs() + inexact)[~none]
    check(
        "lse",
        bool((off <= most).all()),
        f"{float((off - most).max()) if len(off) else 0:.2e} past its tolerance",
    )


def unseen_weights(dtype, factor, other, rows):
    """Return the error that a gradient may have because products of weights are too small for the dtype: each is off by up
    to half of the least number, which multiplies a row of the other operand."""
    return factor * LEAST[dtype] / 2 * math.sqrt(rows) * float(other.detach().norm())


def check_gradient(form, name, found, wanted, terms, size=0.0, unseen=0.0):
    found, wanted, terms = found.detach().double(), wanted.detach().double(), terms.detach().double()
    check(name, found.shape == wanted.shape, f"shape {list(found.shape)} for {list(wanted.shape)}")
    if not found.numel():
        return
    dtype = form["dtype"]
    table = name not in ("dq", "dk", "dv")
    if not table and float(terms.max()) > MOST[dtype]:
        return
    check(
        name,
        bool(found.isfinite().all()),
        f"{int((~found.isfinite()).sum())} of {found.numel()} are not finite",
    )
    relative, of_terms = OF_GRADIENT[dtype]
    least = 0.0 if table else LEAST[dtype] * math.sqrt(found.numel())
    allowed = (
        (relative + 8 * ROUNDING * size) * float(wanted.norm())
        + (of_terms + 8 * ROUNDING * size) * float(terms.norm())
        + least
        + unseen
    )
    error = float((found - wanted).norm())
    check(
        name,
        error <= allowed,
        f"{error / max(float(wanted.norm()), 1e-300):.2e} off ({error / max(float(terms.norm()), 1e-300):.2e} of its terms), allowed {allowed / max(float(wanted.norm()), 1e-300):.2e}",
    )


def check_worth(found, wanted):
    found = torch.as_tensor(numpy.asarray(found)).double()
    check(
        "significance",
        bool(found.isfinite().all()),
        f"{int((~found.isfinite()).sum())} of {found.numel()} are not finite",
    )
    error = ((found - wanted).abs() / wanted.clamp(min=1e-4)).max() if found.numel() else 0
    check("significance", float(error) <= 1e-2, f"{float(error):.2e} off")


@contextlib.contextmanager
def dirty_memory():
    """Fill memory for results with NaN instead of zeros."""
    plain, plain_numpy = torch.empty, numpy.empty

    def empty(*arguments, **named):
        made = plain(*arguments, **named)
        return made.fill_(math.nan) if made.is_floating_point() else made

    def empty_numpy(*arguments, **named):
        made = plain_numpy(*arguments, **named)
        if made.dtype.kind == "f":
            made[...] = math.nan
        elif made.dtype == numpy.uint16:
            made[...] = 0x7FC0
        return made

    torch.empty, numpy.empty = empty, empty_numpy
    try:
        yield
    finally:
        torch.empty, numpy.empty = plain, plain_numpy
