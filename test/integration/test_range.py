# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers at the ends of their ranges: the promises of `attn.attend` for large scores, and for numbers that
are not finite."""

import os

import numpy as np
import pytest
from attnlab import Problem, attn_run
from safetensors.numpy import load_file, save_file

DEVICE = os.environ.get("ATTN_DEVICE", "host")
SHAPES = [("mma", 1), ("mma", 40), ("wgmma", 40)]
BOUND = 9e7  # limit of a scaled score, in the description of attn.attend


@pytest.fixture
def problem(tmp_path):
    """Return an attention over a packed store, its generated tensors, and a function that runs it on
    others."""

    def make(rows, see="causal", dtype="f16", scale=1.0, lse=True):
        file, saved, out = (tmp_path / name for name in ("p.mlir", "in.safetensors", "out.safetensors"))
        text = Problem(4, 2, 64, 64, dtype, "packed", see).text()
        text = text.replace(f"see {see})", f"see {see}) scale {scale!r}")
        if not lse:
            text = text.replace("%o, %lse =", "%o =").replace("return %o, %lse", "return %o")
            text = text.replace(", tensor<?x4xf32>", "")
        file.write_text(text)
        sizes = ["--dim=batch=2", f"--dim=q_len={rows}", "--dim=kv_len=300..400"]
        status, _, errors = attn_run(file, f"--device={DEVICE}", *sizes, "--save-inputs", saved)
        assert status == 0, errors

        def run(tensors, *options):
            given = tmp_path / "given.safetensors"
            save_file(tensors, given)
            result = attn_run(file, f"--device={DEVICE}", "--inputs", given, "--outputs", out, *options)
            return *result, load_file(out) if out.exists() else None

        return load_file(saved), run

    return make


@pytest.mark.parametrize("schedule,rows", SHAPES)
@pytest.mark.parametrize("sign", (1, -1))
def test_scores_up_to_the_bound_are_right(problem, schedule, rows, sign):
    """Scores are products of one component, exact in f32: only the softmax can be inexact."""
    tensors, run = problem(rows, lse=False)
    random = np.random.default_rng(1)
    q, k = np.zeros_like(tensors["q"]), np.zeros_like(tensors["kv.k"])
    q[..., 0] = sign * random.uniform(7000, 9480, q.shape[:-1])
    k[..., 0] = random.uniform(7000, 9480, k.shape[:-1])
    assert BOUND * 0.95 < float(np.abs(q).max()) * float(np.abs(k).max()) < BOUND
    status, report, errors, _ = run(
        tensors | {"q": q, "kv.k": k}, "--check", f"--schedule={schedule}", "--blocks=5"
    )
    assert status == 0, errors
    assert report["rel_err"] <= 1e-3


@pytest.mark.parametrize("schedule,rows", SHAPES)
@pytest.mark.parametrize("value", (np.nan, np.inf))
def test_a_score_that_is_no_number_is_one_wherever_keys_are_cut(problem, schedule, rows, value):
    tensors, run = problem(rows, scale=0.125)
    length = int(tensors["kv.lengths"][0])
    tensors["kv.k"][length - 200, 0] = value
    tensors["q"][..., 0] = np.abs(tensors["q"][..., 0])
    spoilt = slice(0, 2)  # heads that read KV head 0, of the first sequence's rows
    results = []
    for blocks in (1, 9, 64):
        status, _, errors, out = run(tensors, f"--schedule={schedule}", f"--blocks={blocks}")
        assert status == 0, errors
        assert np.isnan(out["lse"][:rows, spoilt]).all(), blocks
        assert np.isnan(out["o"][:rows, spoilt]).all(), blocks
        assert np.isfinite(out["lse"][:rows, 2:]).all() and np.isfinite(out["lse"][rows:]).all()
        assert np.isfinite(out["o"][:rows, 2:]).all() and np.isfinite(out["o"][rows:]).all()
        results.append(out)


@pytest.mark.parametrize("schedule,rows", SHAPES)
def test_keys_that_are_not_seen_may_hold_anything(problem, schedule, rows):
    tensors, run = problem(rows, see="window(50)", scale=0.125)
    start, lengths = tensors["kv.start"], tensors["kv.lengths"]
    hidden = [start[s] + t for s in range(2) for t in range(int(lengths[s]) - rows - 49)]
    _, _, _, clean = run(tensors, f"--schedule={schedule}")
    tensors["kv.k"][hidden] = np.nan
    status, _, errors, out = run(tensors, f"--schedule={schedule}")
    assert status == 0, errors
    assert np.array_equal(out["o"], clean["o"]) and np.array_equal(out["lse"], clean["lse"])
