# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Significance in steps of decoding: the kernel that attends stores scores, and a later launch weighs them."""

import math
import re
import subprocess

import attn
import numpy
import pytest
from attnlab import Problem, attn_run, program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import test_significance  # noqa: E402
from test_significance import error  # noqa: E402

TOKENS = 150


def problem(heads, kv_heads, dtype=torch.bfloat16, scale=1.0, tokens=TOKENS):
    torch.manual_seed(3)
    shape = lambda rows, count: torch.randn(2, rows, count, 64)  # noqa: E731
    q, k, v = shape(1, heads) * scale, shape(tokens, kv_heads), shape(tokens, kv_heads)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def wanted(q, k, group, lengths=None, sinks=None):
    heads, kv_heads, dim = q.shape[2], k.shape[2], q.shape[3]
    q, k = (x.double() for x in (q, k))
    scores = torch.einsum("brhd,bthd->bht", q, k.repeat_interleave(heads // kv_heads, 2)) / math.sqrt(dim)
    for i, length in enumerate(lengths or ()):
        scores[i, :, length:] = -math.inf
    every = scores if sinks is None else torch.cat([scores, sinks.double().expand(2, 1, heads).mT], -1)
    weights = torch.exp(scores - every.logsumexp(-1, keepdim=True)).unflatten(1, (kv_heads, -1))
    found = {"max": weights.amax(2), "mean": weights.mean(2), "sum": weights.sum(2)}[group]
    return found.transpose(1, 2)


@pytest.mark.parametrize("group", ["max", "mean", "sum"])
@pytest.mark.parametrize(
    "heads,kv_heads", [(2, 2), (4, 2), (6, 2), (8, 2), (12, 2), (14, 2), (16, 2), (16, 1)]
)
def test_heads_of_a_group(heads, kv_heads, group):
    q, k, v = problem(heads, kv_heads)
    out, found = attn.attend(q, k, v, causal=True, significance=group)
    assert error(found, wanted(q, k, group)) <= 1e-2
    assert torch.equal(out, attn.attend(q, k, v, causal=True))


@pytest.mark.parametrize("heads,kv_heads", [(2, 2), (8, 2), (40, 1)])
@pytest.mark.parametrize("name", test_significance.OPTIONS)
def test_last_rows(name, heads, kv_heads):
    """Masks and scores that other steps have too; some of these steps store no scores."""
    options = test_significance.OPTIONS[name]
    q, k, v = test_significance.problem(heads, kv_heads, torch.bfloat16)
    _, found = attn.attend(q[:, -1:], k, v, **test_significance.asked(options), significance="max")
    assert error(found, test_significance.wanted(q, k, "max", 1, **options)) <= 1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lengths_and_sinks(dtype):
    q, k, v = problem(8, 2, dtype)
    sinks = torch.linspace(-2.0, 3.0, 8)
    _, found = attn.attend(q, k, v, kv_lengths=[150, 9], sink_logits=sinks, significance="max")
    assert error(found, wanted(q, k, "max", [150, 9], sinks)) <= 1e-2
    assert not found[1, 9:].any()


def test_scores_as_large_as_codes_reach():
    """Scores up to 300 are right; beyond 355, tokens with some significance are NaN, and never a wrong number."""
    q, k, v = problem(4, 2)
    for size in (100.0, 300.0):
        k[:, 7] = q[:, 0, ::2] / q[:, 0, ::2].float().square().sum(-1, keepdim=True) * size * 8
        _, found = attn.attend(q, k, v, causal=True, significance="max")
        assert error(found, wanted(q, k, "max")) <= 1e-2
    k[:, 7] *= 2
    _, found = attn.attend(q, k, v, causal=True, significance="max")
    assert found[:, 7].isnan().all()
    exact = wanted(q, k, "max")
    known = ~found.isnan()
    assert error(found[known], exact[known]) <= 1e-2
    _, found = attn.attend(q, -k.abs() * 0 - 1e3 * q[:, :, ::2].sign(), v, causal=True, significance="max")
    assert found.isnan().all()


@pytest.mark.parametrize("see,rows", [("causal", 1), ("all", 1), ("window", 1), ("wide", 1), ("causal", 2)])
def test_who_stores(tmp_path, see, rows):
    """A step of one row that sees all of its tokens, for any number of them, stores scores. For other steps a launch
    reads keys again."""
    seen = {"causal": attn.causal(), "all": attn.all_tokens()}
    seen |= {name: attn.causal() & attn.recent(n) for name, n in (("window", 64), ("wide", 4096))}
    spec = attn.Spec(
        q_heads=4,
        kv_heads=1,
        head_dim=64,
        dtype="bfloat16",
        kv=[attn.Paged(page_size=16)],
        see=seen[see],
        significance="sum",
    )
    file = tmp_path / "spec.mlir"
    file.write_text(spec.mlir())
    status, report, err = attn_run(
        file, "--dim=batch=2", f"--dim=q_len={rows}", "--dim=kv_len=512", "--check"
    )
    assert status == 0, err
    stored = 2 * 512 * 4 * 2  # of a row's four heads
    assert (report["bytes_partials"] >= 2 * stored) == (rows == 1 and see in ("causal", "all"))


@pytest.mark.parametrize("store", ["paged", "dense", "packed"])
@pytest.mark.parametrize("ragged", [False, True])
def test_stores_of_several_regions(store, ragged):
    if ragged and store != "paged":
        pytest.skip("only pages are ragged")
    second = {
        "paged": lambda: attn.Paged(name="b", page_size=16, ragged=ragged, dims=("batch", "b_len")),
        "dense": lambda: attn.Dense(name="b", dims=("batch", "b_len")),
        "packed": lambda: attn.Packed(name="b", dims=("batch", "b_len")),
    }[store]()
    spec = attn.Spec(
        q_heads=6,
        kv_heads=2,
        head_dim=64,
        dtype="float16",
        kv=[attn.Paged(name="a", page_size=32, ragged=ragged, key="int8", value="int4"), second],
        see=attn.all_tokens(),
        significance="mean",
    )
    attn.check(spec, batch=3, kv_len=(20, 90), b_len=(0, 1300))


@pytest.mark.parametrize("store", ["paged", "dense", "packed"])
@pytest.mark.parametrize("group", [2, 4, 8])
def test_scores_that_are_discarded(store, group):
    """Lines of 128 bytes that a warp has read are discarded, except the line of the last token where a head's tokens
    are contiguous. The host device then fills them with other numbers, and knows who reads them."""
    kinds = {"paged": lambda: attn.Paged(page_size=16), "dense": attn.Dense, "packed": attn.Packed}
    sizes = dict(q_heads=2 * group, kv_heads=2, head_dim=64, dtype="float16")
    spec = attn.Spec(**sizes, kv=[kinds[store]()], see=attn.causal(), significance="max")
    for seed in range(3):
        attn.check(spec, batch=3, kv_len=(30, 300), seed=seed, shuffle=True)


def test_numbers_in_float64_of_numpy():
    """The weights of a step sum to 1 for each head."""
    q, k, v = problem(4, 1, tokens=1500)
    _, found = attn.attend(q, k, v, causal=True, significance="sum")
    assert numpy.allclose(found.double().sum(1), 4.0, rtol=1e-2)


@pytest.mark.parametrize("store", ["paged<16>", "dense"])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_halves_are_no_floats(group, store):
    """No 16-bit store takes a 32-bit register that float operations wrote: ptxas may store other bits of it, and results
    on the GPU would differ."""
    for coded in ({}, {"key": "!attn.quantized<i8, per = 128>", "value": "!attn.quantized<i4, per = 128>"}):
        text = Problem(2 * group, 2, store=store, significance="max", **coded).text()
        command = [program("attn-opt"), "-", "--emit=ptx", "-o", "-"]
        ptx = subprocess.run(command, capture_output=True, text=True, input=text, check=True).stdout
        assert "_weigh" in ptx
        wide = set(re.findall(r"st\.global(?:\.L2::cache_hint)?\.b(?:8|16)\s+\[[^\]]*\], (%r\d+)[,;]", ptx))
        floats = set(re.findall(r"\.f32\s+(%r\d+),", ptx))
        assert wide & floats == set()


def fixed_step(see):
    """Return a kernel, its q, k and v, a fixed plan, and the tables that it was made from."""
    spec = attn.Spec(
        q_heads=4,
        kv_heads=1,
        head_dim=64,
        dtype="bfloat16",
        kv=[attn.Dense()],
        see=see,
        significance="max",
    )
    kernel = attn.compile(spec, device="host")
    q, k, v = problem(4, 1)
    given = {"q": q[:, 0], "q_start": [0, 1, 2], "kv.k": k, "kv.v": v, "kv.lengths": [TOKENS] * 2}
    plan = kernel.plan(given)
    plan.fix()
    return kernel, (q, k, v), plan, given


@pytest.mark.parametrize("see", [attn.causal(), attn.causal() & attn.recent(512)], ids=["causal", "window"])
def test_steps_that_are_recorded(see):
    """A fixed plan launches the kernels that its tasks need, of either kind."""
    kernel, (q, k, v), plan, _ = fixed_step(see)
    _, found = kernel.run(q[:, 0], (k, v), plan)
    assert error(found, wanted(q, k, "max")) <= 1e-2


def test_steps_of_another_kind_are_refused():
    """A fixed plan reads stored scores or does not, and refuses steps of the other kind."""
    kernel, (q, k, v), plan, given = fixed_step(attn.causal())
    with pytest.raises(attn.PlanError, match="fixed for steps of one row that sees its whole sequence"):
        plan.update(given | {"q_start": [0, 2, 2]})
    plan.update(given)
    _, found = kernel.run(q[:, 0], (k, v), plan)
    assert error(found, wanted(q, k, "max")) <= 1e-2
