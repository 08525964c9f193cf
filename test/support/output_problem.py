# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Problems for tests of what kernels do to their outputs (gates, scales of e4m3): small descriptions of every store, and of
features that meet those of outputs."""

import attn

STREAMS = attn.causal() & (attn.sink(3) | attn.recent(9))
STORES = {
    "dense": attn.Dense(),
    "packed": attn.Packed(),
    "paged": attn.Paged(),
    "pages of 4": attn.Paged(page_size=4),
    "ragged": attn.Paged(ragged=True),
    "int8, int4": attn.Paged(key="int8", value="int4"),
    "fp8": attn.Paged(key="fp8_e4m3", value="fp8_e4m3"),
    "mxfp4": attn.Paged(key="mxfp4", value="mxfp4"),
    "unified": attn.Unified(key="int8", value="int8"),
}
FEATURES = [
    {"see": attn.window(20)},
    {"see": STREAMS, "sink_logits": True},
    {"see": attn.all_tokens(), "score": lambda s, h, qi, ki: 30 * attn.math.tanh(s / 30)},
    {"heads": attn.heads(full=attn.all_tokens(), streaming=attn.sink(3) | attn.recent(9))},
    {
        "kv": [
            attn.Dense(name="a", see=attn.all_tokens(), dims=("shared", "context")),
            attn.Paged(name="b", see=attn.causal()),
        ]
    },
    {"return_lse": False},
    {"device_plan": True},
]


def described(**given):
    sizes = {"q_heads": 6, "kv_heads": 2, "head_dim": 64, "dtype": "bfloat16", "see": attn.causal()}
    given.setdefault("kv", [attn.Paged()])
    if any(store.see is not None for store in given["kv"]):
        sizes.pop("see")
    return attn.Spec(**{**sizes, **given})


def assert_right(report):
    assert report.right and not report.findings
    assert report.races == report.uninitialized == report.out_of_bounds == 0


def assert_right_beside(feature, rows, **of_output):
    """Check a description with one of FEATURES."""
    sizes = {"shared": 1, "context": 60} if "kv" in feature else {}
    spec = described(**of_output, **feature)
    assert_right(attn.check(spec, batch=3, q_len=rows, kv_len=(50, 170), blocks=6, **sizes))
