# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Significance of attn.attend and of kernels: against float64 weights of PyTorch, and the reference."""

import math

import attn
import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BATCH, ROWS, TOKENS, DIM, VALUES = 2, 37, 53, 64, 32


def problem(heads, kv_heads, dtype, seed=0, rows=ROWS, tokens=TOKENS):
    random = torch.Generator().manual_seed(seed)
    shapes = (BATCH, rows, heads, DIM), (BATCH, tokens, kv_heads, DIM), (BATCH, tokens, kv_heads, VALUES)
    return [torch.randn(shape, generator=random).to(dtype) for shape in shapes]


def weights(q, k, *, causal=True, window=None, sink=0, lengths=None, softcap=None, sinks=None):
    """Return weights [batch, q_heads, rows, tokens], float64."""
    batch, rows, heads, dim = q.shape
    k = k.double().repeat_interleave(heads // k.shape[2], 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k) / math.sqrt(dim)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    for b in range(batch):
        length = k.shape[1] if lengths is None else lengths[b]
        at, token = torch.arange(length - rows, length)[:, None], torch.arange(k.shape[1])
        seen = token < length
        if causal:
            seen = seen & (token <= at)
        if window:
            seen = seen & ((at - token < window) | (token < sink))
        scores[b].masked_fill_(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[None, :, None, None].expand(batch, heads, rows, 1)], -1)
    found = scores.softmax(-1).nan_to_num(0)
    return found if sinks is None else found[..., :-1]


def wanted(q, k, group, rows=None, **options):
    found = weights(q, k, **options)
    found = found[:, :, -rows:] if rows else found
    sums = found.sum(2).unflatten(1, (k.shape[2], -1))  # [batch, kv_heads, group, tokens]
    of_group = {"max": sums.amax(2), "mean": sums.mean(2), "sum": sums.sum(2)}[group]
    return of_group.transpose(1, 2)


def error(found, exact):
    """Return the largest relative error, with a floor of 1e-4 for the significance of a token."""
    found, exact = found.double(), exact.double()
    return float(((found - exact).abs() / exact.clamp(min=1e-4)).max())


OPTIONS = {
    "causal": {},
    "all": {"causal": False},
    "window": {"window": 9, "sink": 2},
    "softcap": {"softcap": 2.0},
    "lengths": {"lengths": [53, 40]},
}


def asked(options):
    options = dict({"causal": True}, **options)
    if "lengths" in options:
        options["kv_lengths"] = options.pop("lengths")
    return options


@pytest.mark.parametrize("rows", [None, 1, 16])
@pytest.mark.parametrize("name", OPTIONS)
def test_reference(name, rows):
    q, k, v = problem(6, 2, torch.float64)
    for group in ("max", "mean", "sum"):
        out, found = attn.attend(
            q, k, v, **asked(OPTIONS[name]), significance=group, significance_rows=rows, reference=True
        )
        assert found.dtype == torch.float64
        assert error(found, wanted(q, k, group, rows, **OPTIONS[name])) <= 1e-12
    assert torch.equal(out, attn.attend(q, k, v, **asked(OPTIONS[name]), reference=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads,kv_heads", [(2, 2), (8, 2), (40, 1)])
def test_kernels(heads, kv_heads, dtype):
    """The error is relative to significances of at least 1e-4 of a row. 40 heads are more than a value has features."""
    q, k, v = problem(heads, kv_heads, dtype)
    for rows in (None, 8):
        out, lse, found = attn.attend(
            q, k, v, causal=True, significance="max", significance_rows=rows, return_lse=True
        )
        assert found.dtype == torch.float32 and found.shape == (BATCH, TOKENS, kv_heads)
        assert error(found, wanted(q, k, "max", rows)) <= 1e-2
    plain, plain_lse = attn.attend(q, k, v, causal=True, return_lse=True)
    assert torch.equal(out, plain) and torch.equal(lse, plain_lse)


@pytest.mark.parametrize("name", OPTIONS)
def test_kernels_of_options(name):
    q, k, v = problem(4, 2, torch.bfloat16)
    for rows in (None, 5):
        _, found = attn.attend(q, k, v, **asked(OPTIONS[name]), significance="mean", significance_rows=rows)
        assert error(found, wanted(q, k, "mean", rows, **OPTIONS[name])) <= 1e-2


def test_sinks_take_their_part():
    q, k, v = problem(4, 2, torch.bfloat16)
    sinks = torch.tensor([0.5, 1.0, -1.0, 3.0])
    _, found = attn.attend(q, k, v, causal=True, sink_logits=sinks, significance="sum")
    assert error(found, wanted(q, k, "sum", sinks=sinks)) <= 1e-2


def test_heads_in_front():
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in problem(4, 2, torch.bfloat16))
    _, found = attn.attend(q, k, v, causal=True, layout="bhsd", significance="max", significance_rows=7)
    exact = wanted(q.transpose(1, 2), k.transpose(1, 2), "max", 7)
    assert found.shape == (BATCH, 2, TOKENS) and error(found.transpose(1, 2), exact) <= 1e-2


@pytest.mark.parametrize("rows", [None, 4, 100])
def test_packed_sequences(rows):
    """The last rows of each sequence count, or all of its rows where it has fewer."""
    lengths, random = [9, 0, 30, 2], torch.Generator().manual_seed(3)
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
    q, k, v = (torch.randn(41, heads, DIM, generator=random).bfloat16() for heads in (4, 2, 2))
    _, found = attn.attend(
        q, k, v, causal=True, cu_seqlens=starts, significance="max", significance_rows=rows
    )
    for first, end in zip(starts[:-1], starts[1:], strict=True):
        if first < end:
            exact = wanted(q[None, first:end], k[None, first:end], "max", rows)
            assert error(found[None, first:end], exact) <= 1e-2


def test_scores_that_read_tensors():
    """ALiBi's slopes are a tensor without a gradient, as significance needs none."""
    q, k, v = problem(4, 2, torch.bfloat16)
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0])
    options = dict(
        causal=True, score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi), tensors={"slopes": slopes}
    )
    _, found = attn.attend(q, k, v, **options, significance="max", significance_rows=6)
    _, exact = attn.attend(
        *(tensor.double() for tensor in (q, k, v)),
        **options,
        significance="max",
        significance_rows=6,
        reference=True,
    )
    assert error(found, exact) <= 1e-2
    plain = wanted(q, k, "max", 6)
    assert error(found, plain) > 0.1, "slopes change what tokens are worth"


def test_other_visibilities_and_strides():
    """Keys and values are the front part of a longer cache, and queries are between other columns."""
    q, k, v = problem(4, 2, torch.bfloat16)
    wide = torch.cat([q, q], -1)[..., :DIM]
    longer = [
        torch.cat([tensor, tensor.new_full((BATCH, 11, 2, tensor.shape[3]), 7)], 1) for tensor in (k, v)
    ]
    front = [tensor[:, :TOKENS] for tensor in longer]
    see = attn.causal() & (attn.sink(2) | attn.recent(9))
    _, found = attn.attend(wide, *front, see=see, significance="sum", significance_rows=5)
    assert error(found, wanted(q, k, "sum", 5, window=9, sink=2)) <= 1e-2


def test_nothing_to_attend():
    q, k, v = problem(4, 2, torch.bfloat16, rows=0)
    out, found = attn.attend(q, k, v, causal=True, significance="max")
    assert out.shape == (BATCH, 0, 4, VALUES) and not found.any() and found.shape == (BATCH, TOKENS, 2)


def test_gradients_pass_beside_it():
    q, k, v = (tensor.requires_grad_() for tensor in problem(4, 2, torch.bfloat16))
    out, found = attn.attend(q, k, v, causal=True, significance="max")
    assert not found.requires_grad
    (beside,) = torch.autograd.grad(out.float().sum(), q)
    (plain,) = torch.autograd.grad(attn.attend(q, k, v, causal=True).float().sum(), q)
    assert torch.equal(beside, plain)


def test_forests():
    """All rows of a forest count: two trajectories after a shared prompt, and a tree of one node."""
    forest = attn.Forest([0, 20, 33, 50, 61], [-1, 0, 0, -1], [0, 20, 20, 0])
    random = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(61, heads, DIM, generator=random).bfloat16() for heads in (6, 2, 2))
    _, found = attn.attend(q, k, v, forest=forest, causal=True, significance="max")
    exact = torch.zeros(61, 6, dtype=torch.float64)
    for nodes in (((0, 20), (20, 33)), ((0, 20), (33, 50)), ((50, 61),)):
        index = torch.cat([torch.arange(*node) for node in nodes])
        p = weights(q[None, index], k[None, index])[0]  # [heads, rows, tokens]
        own = torch.arange(len(index)) >= (0 if nodes[-1] in ((20, 33), (50, 61)) else 20)  # each row once
        exact[index] += p[:, own].sum(1).T
    assert error(found, exact.unflatten(1, (2, 3)).amax(2)) <= 1e-2


def test_numpy():
    q, k, v = (tensor.view(torch.uint16).numpy() for tensor in problem(4, 2, torch.bfloat16))
    _, found = attn.attend(q, k, v, causal=True, significance="sum", significance_rows=9)
    q, k, _ = problem(4, 2, torch.bfloat16)
    assert isinstance(found, numpy.ndarray)
    assert error(torch.from_numpy(found), wanted(q, k, "sum", 9)) <= 1e-2


@pytest.mark.parametrize("dim", [8, 40, 72, 128, 256])
def test_dims(dim):
    """Tensors have exactly their size, so that the detectors find any stray access."""
    random = torch.Generator().manual_seed(dim)
    q, k, v = (torch.randn(1, n, h, dim, generator=random).bfloat16() for n, h in ((5, 6), (70, 2), (70, 2)))
    _, found = attn.attend(q, k, v, causal=True, softcap=20.0, significance="max", significance_rows=3)
    assert error(found, wanted(q, k, "max", 3, softcap=20.0)) <= 1e-2


FORMATS = {
    "bf16": {},
    "K8V4": {"key": "int8", "value": "int4"},
    "K4V2": {"key": "int4", "value": "int2"},
    "K4 in groups": {"key": "int4", "key_group": 32, "value": "int8"},
    "e4m3": {"key": "fp8_e4m3", "value": "fp8_e4m3"},
}


@pytest.mark.parametrize("group,rows", [(1, 1), (3, 1), (4, 2), (8, 1), (12, 1)])
@pytest.mark.parametrize("name", FORMATS)
def test_pages(name, group, rows):
    """Decode over pages, under all detectors, with lists that end within a page and at its end."""
    spec = attn.Spec(
        q_heads=2 * group,
        kv_heads=2,
        head_dim=64,
        dtype="bfloat16",
        kv=[attn.Paged(page_size=16, **FORMATS[name])],
        see=attn.causal() & (attn.sink(3) | attn.recent(100)),
        score=lambda s, h, qi, ki: attn.math.softcap(s, 15.0),
        significance="max",
    )
    attn.check(spec, batch=3, q_len=rows, kv_len=[3, 37, 160])


def test_nodes_of_a_cache():
    """Significance of a shared prompt adds up over rows of two requests, and follows the changes of a step."""
    cache = attn.PagedCache(layers=1, pages=16, kv_heads=2, head_dim=DIM, dtype="bfloat16", device="host")
    random, held = torch.Generator().manual_seed(6), {}

    def append(nodes, counts):
        step, new = cache.append(nodes, counts), [torch.randn(sum(counts), 2, DIM, generator=random)] * 2
        step.write(0, *(tensor.bfloat16() for tensor in new))
        for node, rows in zip(nodes, new[0].split(counts), strict=True):
            held[node] = torch.cat([held.get(node, rows[:0]), rows])

    root = cache.add()
    append([root], [37])
    leaves = cache.branch(root, 2)
    append(leaves, [5, 20])
    spec = attn.Spec(
        q_heads=8,
        kv_heads=2,
        head_dim=DIM,
        dtype="bfloat16",
        kv=[attn.Paged(page_size=16)],
        see=attn.causal(),
        significance="max",
    )
    kernel = attn.compile(spec, device="host")
    batch = cache.batch([leaves[1], leaves[0]])
    plan = kernel.plan(batch)
    for _ in range(2):
        q = 2 * torch.randn(2, 8, DIM, generator=random).bfloat16()
        out, lse, found = kernel.run(q, cache.layer(0), plan, return_lse=True)
        assert torch.equal(out, kernel.run(q, cache.layer(0), plan)[0]) and lse.shape == (2, 8)
        exact = {node: 0 for node in (root, *leaves)}
        for row, leaf in enumerate((leaves[1], leaves[0])):
            keys = torch.cat([held[root], held[leaf]])
            p = weights(q[row][None, None], keys[None].bfloat16())[0, :, 0]
            exact[root], exact[leaf] = exact[root] + p[:, :37], exact[leaf] + p[:, 37:]
        (nodes,) = batch.instances(kernel)
        assert set(nodes) == set(exact)
        for node, of_node in zip(nodes, found.flatten(2), strict=True):
            want = exact[node].unflatten(0, (2, 4)).amax(1)
            assert error(of_node[:, : want.shape[1]], want) <= 1e-2
        append(leaves, [1, 1])
        batch.update()
        plan.update()


@pytest.mark.parametrize("ragged", [False, True])
def test_two_operands(ragged):
    """Two operands, as DiffKV keeps them, have a launch each."""
    spec = attn.Spec(
        q_heads=8,
        kv_heads=2,
        head_dim=128,
        dtype="float16",
        kv=[
            attn.Paged(name="high", page_size=32, ragged=ragged, key="int8", value="int4"),
            attn.Paged(
                name="low", page_size=64, ragged=ragged, key="int4", value="int2", dims=("batch", "low_len")
            ),
        ],
        see=attn.all_tokens(),
        significance="mean",
    )
    attn.check(spec, batch=2, kv_len=(20, 90), low_len=(0, 150))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_layouts_under_detectors(target):
    """Dense operands with capacity after their tokens, and packed ones beside a prefix that all rows see."""
    common = dict(q_heads=6, kv_heads=2, head_dim=64, dtype="bfloat16", significance="max")
    dense = attn.Spec(kv=[attn.Dense()], see=attn.window(20), significance_rows=7, **common)
    attn.check(dense, target=target, batch=2, q_len=(3, 30), kv_len=(40, 90))
    two = attn.Spec(
        kv=[
            attn.Dense(name="prompt", see=attn.all_tokens(), dims=("prompts", "prompt_len")),
            attn.Packed(name="own", see=attn.causal()),
        ],
        sink_logits=True,
        **common,
    )
    attn.check(two, target=target, batch=2, prompts=1, prompt_len=33, q_len=11, kv_len=(11, 40), shuffle=True)


def test_refusals():
    q, k, v = problem(4, 2, torch.bfloat16, rows=4, tokens=4)
    cases = {
        "significance: expected max, mean or sum, got 'avg'": dict(significance="avg"),
        "significance: expected max, mean or sum, got None": dict(significance_rows=4),
        "significance_rows: expected .* got 0; nearest legal: 1": dict(
            significance="max", significance_rows=0
        ),
    }
    for message, options in cases.items():
        with pytest.raises(attn.TensorError, match=message):
            attn.attend(q, k, v, causal=True, **options)
    packed, forest = [tensor.flatten(0, 1) for tensor in (q, k, v)], attn.Forest([0, 8], [-1], [0])
    with pytest.raises(attn.TensorError, match="significance_rows: expected None beside forest"):
        attn.attend(*packed, causal=True, forest=forest, significance="max", significance_rows=2)
    with pytest.raises(attn.TensorError, match="significance: expected None in compiled code"):
        torch.compile(lambda *given: attn.attend(*given, significance="max"), backend="eager")(q, k, v)


def test_refusals_of_descriptions():
    common = dict(
        q_heads=4, kv_heads=2, head_dim=DIM, dtype="bfloat16", kv=[attn.Packed()], see=attn.causal()
    )
    cases = {
        "significance: expected max, mean or sum, got 'most'": dict(significance="most"),
        "significance_rows: expected None without significance": dict(significance_rows=4),
        "significance_rows: expected an integer from 1": dict(significance="max", significance_rows=0),
        "return_lse: expected True beside significance": dict(significance="max", return_lse=False),
        "heads: expected None beside significance": dict(
            significance="max", heads=attn.heads(a=attn.all_tokens(), b=attn.sink(4))
        ),
    }
    for message, changes in cases.items():
        with pytest.raises(attn.SpecError, match=message):
            attn.Spec(**common, **changes)
    wide = dict(common, q_heads=40, kv=[attn.Packed(key="int8", value="int8")])
    with pytest.raises(
        attn.CompileError, match="groups of 20 query heads .* of up to 16 with quantized keys or values"
    ):
        attn.compile(attn.Spec(**wide, significance="max"), device="host")
    attn.check(attn.Spec(**wide, significance="sum"), batch=1, q_len=3, kv_len=20)
    attn.check(attn.Spec(**wide, significance="mean"), batch=1, q_len=1, kv_len=20)


def test_refusals_of_runs():
    q, k, v = (tensor.flatten(0, 1) for tensor in problem(4, 2, torch.bfloat16, rows=5, tokens=5))
    starts = numpy.array([0, 5, 10], numpy.int32)
    common = dict(q_heads=4, kv_heads=2, head_dim=DIM, value_dim=VALUES, dtype="bfloat16", see=attn.causal())
    batch = {"q": q, "kv.k": k, "kv.v": v, "q_start": starts, "kv.start": starts}
    silent = attn.compile(attn.Spec(**common, kv=[attn.Packed()]), device="host")
    with pytest.raises(attn.TensorError, match="significance: this description gives none"):
        silent.run(q, (k, v), silent.plan(batch), significance=torch.zeros(10, 2))
    kernel = attn.compile(attn.Spec(**common, kv=[attn.Packed()], significance="max"), device="host")
    plan = kernel.plan(batch)
    given = torch.full((10, 2), 7.0)
    out, found = kernel.run(q, (k, v), plan, significance=given)
    assert found is given and error(given[:5][None], wanted(q[None, :5], k[None, :5], "max")) <= 1e-2
    with pytest.raises(attn.TensorError, match="kv.significance: expected float32"):
        kernel.run(q, (k, v), plan, significance=torch.zeros(10, 2, dtype=torch.float64))
    with pytest.raises(attn.TensorError, match="significance: expected a description without it where a"):
        kernel.run(q.clone().requires_grad_(), (k, v), plan)
