# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The definition of attention in a few lines of NumPy, for tests of the code around kernels."""

import numpy


def attend(q, k, v, score=None):
    """Return o and lse in float64. q is [heads, dim], k and v are [tokens, kv_heads, dim] of all visible tokens in
    order, the row's own last. `score(s, h, qi, ki)` changes scores, as arrays that broadcast."""
    heads, kv_heads = q.shape[0], k.shape[1]
    k, v = (numpy.repeat(x.astype(numpy.float64), heads // kv_heads, axis=1) for x in (k, v))
    scores = numpy.einsum("hd,thd->ht", q.astype(numpy.float64), k) / numpy.sqrt(q.shape[1])
    if score is not None:
        scores = score(scores, numpy.arange(heads)[:, None], len(k) - 1, numpy.arange(len(k)))
    lse = numpy.logaddexp.reduce(scores, axis=1)
    return numpy.einsum("ht,thd->hd", numpy.exp(scores - lse[:, None]), v), lse


def error(o, expected):
    """Return the largest relative error of a row and head."""
    o, expected = o.astype(numpy.float64), expected.astype(numpy.float64)
    return numpy.max(numpy.linalg.norm(o - expected, axis=-1) / numpy.linalg.norm(expected, axis=-1))
