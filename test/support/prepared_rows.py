# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms and rotations in float64, and the error that one rounding at the end may have."""

import numpy

ULPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def angles(positions, rotary_dim, theta=10000.0):
    """Cosines and sines [positions, rotary_dim / 2], float64."""
    turns = numpy.arange(positions)[:, None] * theta ** -(numpy.arange(0, rotary_dim, 2) / rotary_dim)
    return numpy.cos(turns), numpy.sin(turns)


def prepared(x, *, weight=None, epsilon=1e-6, cos=None, sin=None, positions=None, interleaved=False, start=0):
    """Heads [rows, heads, dim] in float64: the features that have weights normalized, those from `start` on rotated."""
    x = numpy.array(x, numpy.float64)
    if weight is not None:
        normal = x[..., : len(weight)]
        root = numpy.sqrt((normal**2).mean(-1, keepdims=True) + epsilon)
        x[..., : len(weight)] = normal / root * numpy.asarray(weight, numpy.float64)
    if cos is None:
        return x
    n = cos.shape[1]
    c, s = (numpy.asarray(table, numpy.float64)[positions][:, None] for table in (cos, sin))
    out = x.copy()
    end = start + 2 * n
    pairs = (slice(start, end, 2), slice(start + 1, end, 2))
    first, second = pairs if interleaved else (slice(start, start + n), slice(start + n, end))
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
