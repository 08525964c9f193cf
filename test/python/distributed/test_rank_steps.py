# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a batch on kernels that the host device watches: the tables of a rank's rows over a part of the tokens."""

import re

import attn
import numpy
import pytest
import torch
from attn.distributed import sequences
from attnlab import attn_run

STREAMING = attn.causal() & (attn.sink(3) | attn.recent(21))
DOCUMENTS = sequences.sequences_of([0, 70, 71, 71, 160, 195])
FOREST = sequences.sequences_of(attn.Forest([0, 40, 65, 75, 105, 150], [-1, 0, 1, 0, -1]))
# Rows and keys of a rank, in two or three ranges that begin anywhere; keys also in the order of two ranks.
ROWS = [(5, 60), (66, 100), (131, 150)]
KEYS = [(31, 90), (0, 31), (120, 150)]
HEADS, KV_HEADS, DIM = 4, 2, 64


def described(see, dtype="float16"):
    sizes = dict(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=dtype)
    return attn.Spec(**sizes, kv=[attn.Packed()], see=see, return_lse=True)


def tensors(whole, cut=0):
    """Return the tensors of a part, by the names of kernels."""
    generator = torch.Generator().manual_seed(1)
    rows, keys = (sum(b - a for a, b in runs) for runs in (ROWS, KEYS))

    def made(count, heads):
        return torch.randn(count, heads, DIM, generator=generator).half().numpy()

    data = {"q": made(rows, HEADS), "kv.k": made(keys, KV_HEADS), "kv.v": made(keys, KV_HEADS)}
    return data | whole.tables(ROWS, KEYS, cut)


@pytest.mark.parametrize(
    ("whole", "see", "target", "strategy"),
    [
        (DOCUMENTS, STREAMING, "sm_90a", "flatten"),
        (DOCUMENTS, attn.window(9, 5), "sm_80", "flatten"),
        (FOREST, attn.causal(), "sm_90a", "by-node"),
        (FOREST, STREAMING, "sm_80", "flatten"),
    ],
    ids=["documents", "documents-mma", "forest", "forest-mma"],
)
def test_results_of_a_part(whole, see, target, strategy):
    report = attn.check(
        described(see), tensors(whole), target=target, strategy=strategy, shuffle=True, seed=3
    )
    assert report.right and report.races == report.uninitialized == report.out_of_bounds == 0


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "fused"])
@pytest.mark.parametrize(("whole", "cut"), [(DOCUMENTS, 0), (FOREST, 16)], ids=["documents", "forest"])
def test_gradients_of_a_part(whole, cut, ordered, tmp_path):
    """The LSE is that of more tokens than the part's, as after a merge."""
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    text = described(attn.causal()).mlir()
    asked = "attn.backward, attn.ordered" if ordered else "attn.backward, attn.ordered = false"
    text, count = re.subn(r"(-> \([^{]*\)) \{\n", rf"\1 attributes {{{asked}}} {{\n", text, count=1)
    assert count == 1, text
    (tmp_path / "part.mlir").write_text(text)
    data = tensors(whole, cut)
    generator = numpy.random.default_rng(2)
    rows = len(data["q"])
    for name in ("o", "do"):
        data[name] = generator.standard_normal((rows, HEADS, DIM)).astype(numpy.float16)
    data["lse"] = (8 + generator.random((rows, HEADS))).astype(numpy.float32)
    data["dlse"] = generator.standard_normal((rows, HEADS)).astype(numpy.float32)
    safetensors.save_file(data, tmp_path / "in.safetensors")
    files = ["--inputs", tmp_path / "in.safetensors", "--outputs", tmp_path / "out.safetensors"]
    status, report, errors = attn_run(tmp_path / "part.mlir", "--device=host", *files, "--shuffle")
    assert status == 0, errors
    assert report["races"] == report["uninitialized"] == report["out_of_bounds"] == 0
    found = safetensors.load_file(tmp_path / "out.safetensors")
    for name, want in expected(data).items():
        got = found[name].astype(numpy.float64)
        assert numpy.linalg.norm(got - want) < 4e-3 * numpy.linalg.norm(want), name


def expected(data):
    """Compute the gradients from the definition, in float64: P = exp(S - lse), dS = P (dO V' - delta)."""
    q, k, v, o, d_o = (data[name].astype(numpy.float64) for name in ("q", "kv.k", "kv.v", "o", "do"))
    delta = (o * d_o).sum(-1) - data["dlse"]
    d_q, d_k, d_v = (numpy.zeros_like(each) for each in (q, k, v))
    columns = (data[f"kv.{name}"] for name in ("lengths", "pos0", "rows"))
    for start, length, pos0, (first, last) in zip(data["kv.start"][:-1], *columns, strict=True):
        tokens, rows = slice(start, start + length), slice(first, last)
        seen = pos0 + numpy.arange(length)[None] <= data["q_pos"][rows][:, None]
        for head in range(HEADS):
            kv = head * KV_HEADS // HEADS
            scores = q[rows, head] @ k[tokens, kv].T / DIM**0.5
            weights = numpy.where(seen, numpy.exp(scores - data["lse"][rows, head][:, None]), 0)
            d_scores = weights * (d_o[rows, head] @ v[tokens, kv].T - delta[rows, head][:, None]) / DIM**0.5
            d_q[rows, head] += d_scores @ k[tokens, kv]
            d_k[tokens, kv] += d_scores.T @ q[rows, head]
            d_v[tokens, kv] += weights.T @ d_o[rows, head]
    return {"dq": d_q, "kv.dk": d_k, "kv.dv": d_v}
