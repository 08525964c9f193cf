# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples' attention functions, written in Python, and attn-opt as a function."""

import subprocess

import attn
from attn import Dense, Packed, Paged, causal, recent, sink, window
from attnlab import ROOT, program

LLAMA = {"q_heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16"}
STREAMING = attn.heads(retrieval=attn.all_tokens(), streaming=sink(64) | recent(256))

EXAMPLES = {
    "01_paged_decode/decode": lambda: attn.Spec(
        name="decode", **LLAMA, kv=[Paged(page_size=16)], see=causal(), scale=0.08838835
    ),
    "02_prefill/prefill": lambda: attn.Spec(name="prefill", **LLAMA, kv=[Packed()], see=causal()),
    "03_softcap/softcap": lambda: attn.Spec(
        name="softcap",
        q_heads=16,
        kv_heads=8,
        head_dim=256,
        dtype="bfloat16",
        kv=[Paged(page_size=16)],
        see=window(4096),
        score=lambda s, h, qi, ki: attn.math.tanh(s / 50.0) * 50.0,
        return_lse=False,
    ),
    "04_composition/composition": lambda: attn.Spec(
        name="composition",
        q_heads=28,
        kv_heads=4,
        head_dim=128,
        dtype="float16",
        kv=[Paged(page_size=64)],
        see=causal() & (sink(64) | recent(256)),
        sink_logits=True,
        score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi),
        tensors={"slopes": (28,)},
    ),
    "05_shared_prefix/shared_prefix": lambda: attn.Spec(
        name="shared_prefix",
        **LLAMA,
        kv=[
            Dense(name="context", see=attn.all_tokens(), dims=("contexts", "context_len")),
            Paged(name="response", see=causal()),
        ],
    ),
    "06_head_classes/head_classes": lambda: attn.Spec(
        name="head_classes", **LLAMA, kv=[Paged()], see=causal(), heads=STREAMING
    ),
    "06_head_classes/class_stores": lambda: attn.Spec(
        name="class_stores",
        **LLAMA,
        kv=[
            Paged(name="full", head_class="retrieval"),
            Paged(name="recent", head_class="streaming", dims=("batch", "recent_len")),
        ],
        see=causal(),
        heads=STREAMING,
    ),
    "06_head_classes/ragged": lambda: attn.Spec(
        name="ragged",
        **LLAMA,
        kv=[
            Paged(name="kept", ragged=True, see=attn.all_tokens()),
            Paged(name="recent", see=causal(), dims=("batch", "recent_len")),
        ],
    ),
    "08_composed/composed": lambda: attn.Spec(
        name="composed",
        q_heads=16,
        kv_heads=4,
        head_dim=128,
        dtype="bfloat16",
        kv=[
            Paged(name="nodes", dims=("node_count", "node_len")),
            Paged(name="drafts", page_size=1, dims=("draft_count", "draft_len")),
        ],
        see=causal(),
        heads=attn.heads(retrieval=attn.all_tokens(), streaming=sink(16) | recent(64)),
    ),
    "09_quantized/quantized": lambda: attn.Spec(
        name="quantized", **LLAMA, kv=[Paged(key="int8", value="int4")], see=causal()
    ),
    "12_diffkv/diffkv": lambda: attn.Spec(
        name="diffkv",
        **LLAMA,
        kv=[
            Paged(name="high", page_size=32, ragged=True, key="int8", value="int4"),
            Paged(name="low", page_size=64, ragged=True, key="int4", value="int2", dims=("batch", "low_len")),
        ],
        see=attn.all_tokens(),
    ),
    "14_latent/latent": lambda: attn.Spec(
        name="latent",
        q_heads=128,
        kv_heads=1,
        head_dim=576,
        dtype="bfloat16",
        kv=[Paged(page_size=64, value=attn.first(512))],
        see=causal(),
        scale=0.07216878,
    ),
}


def example_text(name):
    return (ROOT / "examples" / f"{name}.mlir").read_text()


def opt(text, *options):
    """Return the output of attn-opt, or raise AssertionError with its messages."""
    result = subprocess.run(
        [program("attn-opt"), "-", *options], input=text, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr + text
    return result.stdout


# Sizes that reach every region of the examples quickly, in the form of attn.sample and attn-run's --dim.
SIZES = {
    "01_paged_decode/decode": {"batch": 3, "kv_len": (30, 200)},
    "02_prefill/prefill": {"batch": 2, "q_len": 70, "kv_len": (70, 130)},
    "03_softcap/softcap": {"batch": 2, "kv_len": (30, 200)},
    "04_composition/composition": {"batch": 3, "q_len": 2, "kv_len": (2, 500)},
    "05_shared_prefix/shared_prefix": {"batch": 4, "contexts": 2, "context_len": 90, "kv_len": (1, 60)},
    "06_head_classes/head_classes": {"batch": 2, "kv_len": (300, 500), "streaming": 6},
    "06_head_classes/class_stores": {"batch": 2, "kv_len": (300, 500), "recent_len": 280, "streaming": 3},
    "06_head_classes/ragged": {"batch": 2, "kv_len": (3, 150), "recent_len": 40},
    "08_composed/composed": {"batch": 2, "q_len": 3, "node_len": 90, "draft_len": 8},
    "09_quantized/quantized": {"batch": 2, "kv_len": (30, 200)},
    "12_diffkv/diffkv": {"batch": 2, "kv_len": (9, 150), "low_len": (0, 200)},
    "14_latent/latent": {"batch": 2, "kv_len": (9, 70)},
}


def save(path, tensors):
    """Write safetensors; arrays of uint16 are bfloat16 by their bits."""
    from safetensors import serialize_file

    names = {"uint16": "bfloat16"}
    serialize_file(
        {
            name: {"dtype": names.get(str(t.dtype), str(t.dtype)), "shape": t.shape, "data": t.tobytes()}
            for name, t in tensors.items()
        },
        str(path),
        None,
    )


def load(path):
    import numpy
    from safetensors import deserialize

    dtypes = {"BF16": "uint16", "F16": "float16", "F32": "float32", "I32": "int32"}
    return {
        name: numpy.frombuffer(bytes(found["data"]), dtypes[found["dtype"]]).reshape(found["shape"])
        for name, found in deserialize(path.read_bytes())
    }
