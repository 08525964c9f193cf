# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Visibilities of every kind, combined, for tests of functions that take them."""

import attn
from hypothesis import strategies as st

LEAVES = st.one_of(
    st.just(attn.all_tokens()),
    st.just(attn.causal()),
    st.integers(0, 12).map(attn.window),
    st.integers(0, 12).map(attn.recent),
    st.integers(0, 12).map(attn.sink),
    st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda sides: attn.window(*sides)),
    st.integers(1, 12).map(attn.chunk),
)
VISIBILITIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
    ),
    max_leaves=6,
)
