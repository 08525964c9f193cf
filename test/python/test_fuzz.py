# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Any arguments give a result or one of attn's errors, never both and never neither. The interpreter survives."""

import attn
import numpy
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-2, 300),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.just(object()),
    st.sampled_from(
        [
            int,
            attn.causal,
            attn.Paged,
            numpy.float16,
            numpy.int64(3),
            numpy.zeros(3),
            numpy.zeros((2, 3, 4, 5)),
        ]
    ),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(-3, 3), max_size=2),
    st.tuples(st.integers(-3, 3), st.text(max_size=3)),
)
LEGAL = {
    "q_heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "value_dim": 64,
    "dtype": "float16",
    "kv": [attn.Dense()],
    "see": attn.causal(),
    "heads": None,
    "score": None,
    "tensors": None,
    "sink_logits": False,
    "scale": None,
    "return_lse": True,
    "name": "attention",
}


def outcome(call, *kinds):
    """Return a call's result, or None and its error, which must have a message."""
    try:
        result = call()
    except kinds as error:
        assert str(error).strip(), f"{type(error).__name__} without a word"
        return None, error
    assert result is not None, "neither a result nor an error"
    return result, None


ONE_OR_TWO = st.lists(st.sampled_from(sorted(LEGAL)), min_size=1, max_size=2, unique=True)


@settings(max_examples=400)
@given(st.data(), ONE_OR_TWO)
def test_specs(data, names):
    given = LEGAL | {name: data.draw(JUNK) for name in names}
    described, error = outcome(lambda: attn.Spec(**given), attn.SpecError)
    if error is not None:
        assert any(str(error).startswith(name) for name in (*LEGAL, "Dense", "Paged")), str(error)
    else:
        assert described.mlir() and hash(described) == hash(described)


@settings(max_examples=300)
@given(st.data(), st.sampled_from([attn.Dense, attn.Packed, attn.Paged]))
def test_stores(data, store):
    names = ["name", "see", "dtype", "ragged", "head_class", "dims"] + ["page_size"] * (store is attn.Paged)
    given = {name: data.draw(JUNK) for name in data.draw(st.lists(st.sampled_from(names), max_size=2))}
    heads = attn.heads(a=attn.causal())
    described, error = outcome(
        lambda: attn.Spec(**LEGAL | {"kv": [store(**given)], "heads": heads}), attn.SpecError
    )
    if error is None:
        (operand,) = described.operands
        assert type(operand) is store and f'attn.name = "{operand.name}"' in described.mlir()


@settings(max_examples=300)
@given(JUNK, JUNK, st.sampled_from(["window", "recent", "sink"]))
def test_visibilities(n, other, make):
    for attempt in (
        lambda: getattr(attn, make)(n),
        lambda: attn.causal() & other,
        lambda: other | attn.causal(),
    ):
        see, error = outcome(attempt, attn.SpecError, TypeError)
        if isinstance(error, TypeError):
            assert isinstance(other, numpy.ndarray)  # it combines its elements itself
        elif error is None:
            assert isinstance(see, attn.Visibility) and see.mlir()


OPERATIONS = st.sampled_from(
    [
        "s + x",
        "x * s",
        "s / x",
        "qi // x",
        "qi % x",
        "s ** x",
        "x ** s",
        "qi << x",
        "s < x",
        "t[x]",
        "t[h, x]",
        "t[x, x]",
    ]
    + [
        "am.where(s > x, x, s)",
        "am.minimum(x, s)",
        "am.clip(s, x, x)",
        "am.fma(s, x, x)",
        "s[x]",
        "s @ x",
        "x & qi",
    ]
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(OPERATIONS, JUNK)
def test_scores(operation, x):
    score = eval(f"lambda s, h, qi, ki, t: {operation}", {"am": attn.math, "x": x})
    described, error = outcome(
        lambda: attn.Spec(**LEGAL | {"score": score, "tensors": {"t": (4, 7)}}), attn.SpecError
    )
    if error is not None:
        assert "score" in str(error) or "division" in str(error)
    else:
        assert described.mlir()


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["batch", "q_len", "kv_len", "seed"]), JUNK, max_size=2))
def test_samples(dims):
    # Sizes that fit into memory are allocated, which takes time.
    assume(not any(isinstance(n, int) and 2000 < n < 2**40 for n in dims.values()))
    spec = attn.Spec(**LEGAL)
    tensors, error = outcome(lambda: attn.sample(spec, **dims | {"batch": 2}), attn.SpecError)
    if error is None:
        assert {"q", "kv.k", "kv.v"} <= tensors.keys()
        assert all(isinstance(tensor, numpy.ndarray) for tensor in tensors.values())


Q, KV = numpy.zeros((2, 3, 4, 64), numpy.float16), numpy.zeros((2, 9, 2, 64), numpy.float16)
OPTIONS = [
    "causal",
    "window",
    "sink",
    "see",
    "softcap",
    "score",
    "tensors",
    "sink_logits",
    "scale",
    "kv_lengths",
]
OPTIONS += ["cu_seqlens", "cu_seqlens_k", "layout", "return_lse", "out", "q", "k", "v"]
ARRAYS = st.builds(
    lambda shape, dtype, step: numpy.zeros(shape, dtype)[::step] if shape else numpy.zeros(shape, dtype),
    st.lists(st.integers(0, 5), max_size=5).map(tuple),
    st.sampled_from(
        ["float16", "float32", "uint16", "int32", "float64", "bool", "U3", "object", "complex64"]
    ),
    st.sampled_from([1, 1, 2, -1]),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=2, unique=True))
def test_attend(data, names):
    pytest.importorskip("attn._attn", reason="the extension is not built")
    given = {name: data.draw(st.one_of(JUNK, ARRAYS)) for name in names}
    untouched = numpy.full(Q.shape, 7, Q.dtype)
    if data.draw(st.booleans()):
        given.setdefault("out", untouched)
    given = {"q": Q, "k": KV, "v": KV} | given
    result, error = outcome(lambda: attn.attend(**given), attn.TensorError, attn.SpecError, attn.PlanError)
    if error is not None:
        assert (untouched == 7).all(), "an error, and results as well"
        return
    o, lse = result if given.get("return_lse") else (result, None)
    assert o.shape == (*given["q"].shape[:-1], given["v"].shape[-1])
    assert o is given["out"] if given.get("out") is not None else o is not untouched
    assert lse is None or lse.shape == o.shape[:-1]
