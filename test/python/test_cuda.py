# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: the caller's tensors, on the caller's stream, without a wait; all else is tested on the host device."""

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

Q_HEADS, KV_HEADS, DIM = 8, 2, 128


def random(*shape, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def meaning(q, k, v, visible, softcap=None):
    """Return o, and the logarithm of each row's denominator [batch, seq, heads], in float64. Tensors are [batch, seq,
    heads, dim]; `visible` is a function of query and key positions, the queries being the last ones."""
    q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, tokens = scores.shape[2:]
    qi = torch.arange(tokens - rows, tokens, device="cuda")[:, None]
    scores = scores.masked_fill(~visible(qi, torch.arange(tokens, device="cuda")[None]), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1).transpose(1, 2)


def reference(*arguments, **named):
    return meaning(*arguments, **named)[0]


def assert_near(result, expected):
    error = (result.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error.max() < 8e-3


OPTIONS = {
    "causal": (dict(causal=True), lambda q, k: k <= q),
    "window": (dict(causal=True, window=70), lambda q, k: (k <= q) & (q - k < 70)),
    "window and sink": (
        dict(causal=True, window=70, sink=5),
        lambda q, k: (k <= q) & ((q - k < 70) | (k < 5)),
    ),
    "softcap": (dict(causal=True, softcap=5.0), lambda q, k: k <= q),
    "full": ({}, lambda q, k: (k >= 0) & (q >= 0)),
}


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("name", OPTIONS)
def test_attend(name, layout, rows):
    options, visible = OPTIONS[name]
    q, k, v = (
        random(2, rows, Q_HEADS, DIM),
        random(2, 300, KV_HEADS, DIM),
        random(2, 300, KV_HEADS, DIM, seed=1),
    )
    expected, expected_lse = meaning(q, k, v, visible, options.get("softcap"))
    if layout == "bhsd":
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    o, lse = attn.attend(q, k, v, layout=layout, return_lse=True, **options)
    assert o.is_cuda and lse.is_cuda
    if layout == "bhsd":
        o, lse = o.transpose(1, 2), lse.transpose(1, 2)
    assert_near(o, expected)
    assert (lse.double() - expected_lse).abs().max() < 2e-3


def test_packed_sequences():
    starts = torch.tensor([0, 40, 41, 300], dtype=torch.int32, device="cuda")
    q, k, v = random(300, Q_HEADS, DIM), random(300, KV_HEADS, DIM), random(300, KV_HEADS, DIM, seed=1)
    o = attn.attend(q, k, v, causal=True, softcap=20.0, cu_seqlens=starts)
    for first, last in ((0, 40), (40, 41), (41, 300)):
        part = (x[None, first:last] for x in (q, k, v))
        assert_near(o[None, first:last], reference(*part, lambda qi, ki: ki <= qi, softcap=20.0))


def test_a_call_like_one_before_can_be_captured():
    """A repeated call allocates nothing but the output, and does not wait."""
    q, k, v = random(2, 2, Q_HEADS, DIM), random(2, 70, KV_HEADS, DIM), random(2, 70, KV_HEADS, DIM, seed=1)
    out, stream, graph = torch.empty_like(q), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        attn.attend(q, k, v, causal=True, out=out)
        with torch.cuda.graph(graph, stream=stream):
            attn.attend(q, k, v, causal=True, out=out)
    torch.cuda.synchronize()
    for tensor in (q, k, v):
        tensor.mul_(0.5)
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    assert_near(out, reference(q, k, v, lambda qi, ki: ki <= qi))


def test_work_goes_to_the_stream_of_the_caller():
    """Attention runs after the computation of q on the caller's stream, while that computation is still running."""
    k, v = random(1, 2000, KV_HEADS, DIM), random(1, 2000, KV_HEADS, DIM, seed=1)
    given = random(1, 40, Q_HEADS, DIM)
    attn.attend(given, k, v, causal=True)  # compiles
    torch.cuda.synchronize()
    stream, q = torch.cuda.Stream(), torch.zeros_like(given)
    with torch.cuda.stream(stream):
        attn.attend(q, k, v, causal=True)  # plans
        torch.cuda._sleep(50_000_000)
        q.copy_(given)
        o = attn.attend(q, k, v, causal=True)
        assert not stream.query()  # no call has waited
        later = o.clone()
    stream.synchronize()
    assert_near(later, reference(given, k, v, lambda qi, ki: ki <= qi))


@pytest.fixture(scope="module")
def decode():
    return attn.compile(
        attn.Spec(
            q_heads=Q_HEADS,
            kv_heads=KV_HEADS,
            head_dim=DIM,
            dtype="bfloat16",
            kv=[attn.Paged(page_size=16)],
            see=attn.causal(),
        )
    )


def paged_problem(lengths):
    """Return pools, and a table that scatters the pages of every sequence."""
    columns = -(-max(lengths) // 16)
    pages = len(lengths) * columns
    k, v = random(pages, 16, KV_HEADS, DIM), random(pages, 16, KV_HEADS, DIM, seed=1)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(3))
    return k, v, order.int().reshape(len(lengths), columns)


def test_a_step_can_be_captured(decode):
    """A CUDA graph of one run is replayed over other queries."""
    lengths = [1, 700, 33, 2000]
    k, v, table = paged_problem(lengths)
    q = random(len(lengths), Q_HEADS, DIM)
    plan = decode.plan(
        {"q": q, "kv.k_pages": k, "kv.v_pages": v, "kv.block_table": table, "kv.lengths": lengths}
    )
    out = torch.empty_like(q)
    decode.run(q, (k, v), plan, out=out)
    with (
        pytest.raises(attn.PlanError, match=r"the stream is being captured.*plan\.fix\(\)"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        decode.run(q, (k, v), plan, out=out)
    plan.fix()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode.run(q, (k, v), plan, out=out)
    for seed in (5, 6):
        q.copy_(random(len(lengths), Q_HEADS, DIM, seed=seed))
        graph.replay()
        for i, length in enumerate(lengths):
            mine = table[i].long().cuda()
            keys, values = (x[mine].flatten(0, 1)[None, :length] for x in (k, v))
            assert_near(
                out[None, None, i], reference(q[None, None, i], keys, values, lambda qi, ki: ki <= qi)
            )


def test_a_paged_cache_lives_on_the_gpu(decode):
    """Prompts, decoding steps and a fork of a cache match attention over lists of tokens."""
    layers = 2
    cache = attn.PagedCache(layers=layers, pages=64, kv_heads=KV_HEADS, head_dim=DIM, dtype="bfloat16")
    tokens, seed = {}, iter(range(1000))

    def step(requests):
        """Append as many tokens to each node as it gets rows. Return the error of every layer."""
        change = cache.append([node for node, _ in requests], [rows for _, rows in requests])
        batch = cache.batch(requests)
        plan = decode.plan(batch)
        total = sum(rows for _, rows in requests)
        for layer in range(layers):
            k, v = (
                random(total, KV_HEADS, DIM, seed=next(seed)),
                random(total, KV_HEADS, DIM, seed=next(seed)),
            )
            change.write(layer, k, v)
            q, first = random(total, Q_HEADS, DIM, seed=next(seed)), 0
            out = decode.run(q, cache.layer(layer), plan)
            for node, rows in requests:
                mine = slice(first, first + rows)
                old = tokens.get((node, layer), (k[:0], v[:0]))
                keys, values = (torch.cat([x, y[mine]]) for x, y in zip(old, (k, v), strict=True))
                tokens[node, layer] = keys, values
                expected = reference(q[None, mine], keys[None], values[None], lambda qi, ki: ki <= qi)
                assert_near(out[None, mine], expected)
                first += rows

    a, b = cache.add(), cache.add()
    step([(a, 100), (b, 7)])
    step([(a, 1), (b, 1)])
    twin = cache.fork(a)
    for layer in range(layers):
        tokens[twin, layer] = tokens[a, layer]
    step([(twin, 1), (a, 1), (b, 1)])
    step([(b, 20), (twin, 1)])


def test_refusals_come_before_the_launch(decode):
    q, k, v = random(1, 4, Q_HEADS, DIM), random(1, 9, KV_HEADS, DIM), random(1, 9, KV_HEADS, DIM)
    with pytest.raises(attn.TensorError, match="expected memory of cuda:0"):
        attn.attend(q, k.cpu(), v, causal=True)
    with pytest.raises(attn.TensorError, match="k: expected memory of host, where q is, got cuda:0"):
        attn.attend(q.cpu(), k, v.cpu(), causal=True)
    bias = torch.ones(9, device="cuda", requires_grad=True)
    score = lambda s, h, qi, ki, bias: s + bias[qi - ki]  # noqa: E731
    with pytest.raises(attn.TensorError, match='gradients on cuda:0: .*elements of "bias" are indexed by'):
        attn.attend(q, k, v, causal=True, score=score, tensors={"bias": bias})
    # The GPU still works.
    assert sdpa(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=True).isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_the_definition(compiled):
    """Gradients are exact, also in a second backward pass, which finds the plan of the first."""
    shapes = ((2, 200, Q_HEADS, DIM), (2, 200, KV_HEADS, DIM), (2, 200, KV_HEADS, DIM))
    leaves = [random(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    exact = [leaf.detach().float().requires_grad_() for leaf in leaves]
    layer = lambda *given: attn.attend(*given, causal=True)  # noqa: E731
    layer = torch.compile(layer, fullgraph=True) if compiled else layer
    for seed in (7, 8):
        d_out = random(2, 200, Q_HEADS, DIM, seed=seed)
        q, k, v = (leaf.transpose(1, 2) for leaf in exact)
        expected = sdpa(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        expected = torch.autograd.grad(expected, exact, d_out.float())
        for found, wanted in zip(torch.autograd.grad(layer(*leaves), leaves, d_out), expected, strict=True):
            assert (found.float() - wanted).norm() < 5e-3 * wanted.norm()


def test_compiled_code_takes_it_as_an_operator():
    q, k, v = random(2, 64, Q_HEADS, DIM), random(2, 64, KV_HEADS, DIM), random(2, 64, KV_HEADS, DIM, seed=1)

    @torch.compile(fullgraph=True)
    def layer(q, k, v):
        return 2 * attn.attend(q * 1, k, v, causal=True)

    with torch.no_grad():
        assert_near(layer(q, k, v) / 2, reference(q, k, v, lambda qi, ki: ki <= qi))


@pytest.mark.parametrize("cache", ["dynamic", "static", "paged"])
def test_a_model_generates_the_same_tokens(cache):
    """A tiny Llama with random weights, in float16 and with clear greedy choices, generates the tokens of eager
    attention."""
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    import attn.transformers

    config = dict(hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    config |= dict(num_key_value_heads=2, head_dim=64, vocab_size=97, pad_token_id=0, eos_token_id=None)
    config |= dict(initializer_range=0.3)

    def tokens(implementation):
        torch.manual_seed(1)
        made = transformers.LlamaConfig(**config, attn_implementation=implementation)
        model = transformers.LlamaForCausalLM(made).to("cuda", torch.float16).eval()
        ids = torch.randint(2, 97, (2, 30), generator=torch.Generator().manual_seed(4)).cuda()
        named = {}
        if implementation == "attn" and cache == "static":
            named = {"cache_implementation": "static"}
        if implementation == "attn" and cache == "paged":
            named = {"past_key_values": attn.transformers.PagedCache(model.config, pages=32, device="cuda")}
        with torch.no_grad():
            return model.generate(ids, max_new_tokens=10, do_sample=False, **named)

    assert torch.equal(tokens("attn"), tokens("eager"))
