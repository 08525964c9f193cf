# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms and rotations in float64, and the error that one rounding at the end may have."""

import numpy

ULPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def angles(positions, rotary_dim, theta=10000.0):
    """Cosines and sines [positions, rotary_dim / 2], float64."""
    turns = numpy.arange(positions)[:, None] * theta ** -(numpy.arange(0, rotary_dim, 2) / rotary_dim)
    return numpy.cos(turns), numpy.sin(turns)


def prepared(x, *, weight=None, epsilon=1e-6, cos=None, sin=None, positions=None, interleaved=False):
    """Heads [rows, heads, dim] in float64, normalized and rotated."""
    x = numpy.asarray(x, numpy.float64)
    if weight is not None:
        x = x / numpy.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * numpy.asarray(weight, numpy.float64)
    if cos is None:
        return x
    n = cos.shape[1]
    c, s = (numpy.asarray(table, numpy.float64)[positions][:, None] for table in (cos, sin))
    out = x.copy()
    first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(n), slice(n, 2 * n))
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., second] * c + x[..., first] * s
    return out


def close(found, wanted, dtype):
    """Whether each number is the float64 one, rounded to the dtype once; sums of float32 may be off by a bit of the
    head's largest number."""
    found, wanted = numpy.asarray(found, numpy.float64), numpy.asarray(wanted, numpy.float64)
    room = 1.01 * ULPS[dtype] * numpy.abs(wanted) + 2e-6 * numpy.abs(wanted).max(-1, keepdims=True) + 6e-8
    return bool((numpy.abs(found - wanted) <= room).all())


def quantized_alike(found, wanted, share=0.995):
    """Whether quantized numbers are those of the float64 ones, but for a few that lie between two steps."""
    found, wanted = numpy.asarray(found, numpy.float64), numpy.asarray(wanted, numpy.float64)
    error = numpy.abs(found - wanted)
    small = 2e-3 * numpy.abs(wanted).max(-1, keepdims=True) + 1e-30  # Scales are rounded as numbers are.
    return bool((error <= small).mean() >= share)
