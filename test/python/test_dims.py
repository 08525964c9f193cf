# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Head dims that are not multiples of 16, from a cache to a result."""

import attn
import numpy
import pytest


@pytest.mark.parametrize(("head_dim", "value_dim"), [(8, 8), (40, 40), (72, 24)])
def test_a_cache_of_odd_heads_is_written_moved_and_attended(head_dim, value_dim):
    spec = attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=head_dim,
        value_dim=value_dim,
        dtype="float16",
        kv=[attn.Paged()],
        see=attn.causal(),
    )
    kernel = attn.compile(spec, device="host")
    cache = attn.PagedCache(
        layers=1, pages=16, kv_heads=2, head_dim=head_dim, value_dim=value_dim, dtype="float16", device="host"
    )
    random = numpy.random.default_rng(0)
    request, tokens = cache.add(), 37
    k, v, q = (
        random.standard_normal(shape).astype(numpy.float16)
        for shape in [(tokens, 2, head_dim), (tokens, 2, value_dim), (1, 4, head_dim)]
    )
    cache.append([request], [tokens]).write(0, k, v)
    out = numpy.asarray(kernel.run(q, cache.layer(0), kernel.plan(cache.batch([request]))))
    scores = numpy.einsum("hd,thd->ht", q[0].astype(float), k.repeat(2, axis=1).astype(float)) / head_dim**0.5
    weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    wanted = numpy.einsum("ht,thd->hd", weights, v.repeat(2, axis=1).astype(float))
    assert out.shape == (1, 4, value_dim)
    assert numpy.abs(out[0].astype(float) - wanted).max() < 2e-3


@pytest.mark.parametrize("head_dim", [8, 24, 88])
@pytest.mark.parametrize(
    "store", [attn.Dense(), attn.Packed(), attn.Paged()], ids=lambda store: type(store).__name__
)
def test_check_passes(head_dim, store):
    spec = attn.Spec(
        q_heads=4, kv_heads=2, head_dim=head_dim, dtype="bfloat16", kv=[store], see=attn.causal()
    )
    report = attn.check(spec, batch=2, q_len=20, kv_len=(20, 90))
    assert report.right and report.races == report.uninitialized == report.out_of_bounds == 0
