# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators of PyTorch: traces of torch.compile, torch.export and fake tensors, and refusals."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
import attn.torch_ops  # noqa: E402


def tensors(batch=2, rows=20, tokens=30, heads=4, kv_heads=2, dim=64, value_dim=64):
    random = torch.Generator().manual_seed(0)

    def make(*shape):
        return torch.randn(shape, generator=random).to(torch.bfloat16)

    return (
        make(batch, rows, heads, dim),
        make(batch, tokens, kv_heads, dim),
        make(batch, tokens, kv_heads, value_dim),
    )


@pytest.fixture
def planned():
    """Return a kernel with every option of a run, its plan, and tensors for it."""
    spec = attn.Spec(
        q_heads=4,
        kv_heads=2,
        head_dim=64,
        dtype="bfloat16",
        kv=[attn.Packed()],
        see=attn.causal(),
        heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.recent(3)),
        score=lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi),
        tensors={"slopes": (4,)},
        sink_logits=True,
    )
    kernel = attn.compile(spec, device="host")
    q, k, v = (tensor.flatten(0, 1) for tensor in tensors(batch=1))
    extra = {"slopes": torch.rand(4), "sink_logits": torch.zeros(4)}
    plan = kernel.plan(
        {"q": q, "kv.k": k, "kv.v": v, "q_start": [0, 20], "kv.start": [0, 30], "classes": [0, 1], **extra}
    )
    return kernel, plan, q, (k, v), extra


# --- attend --------------------------------------------------------------------------------------------------

OPTIONS = [
    {},
    {"causal": True, "softcap": 20.0},
    {"causal": True, "window": 7, "scale": 0.2, "layout": "bshd"},
    {"causal": True, "sink": 2, "window": 5},
    {"kv_lengths": torch.tensor([30, 21], dtype=torch.int32), "causal": True},
    {"sink_logits": torch.tensor([0.0, 1.0, -2.0, 0.5])},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attend_is_an_operator(options):
    torch.library.opcheck(torch.ops.attn.attend.default, (*tensors(value_dim=32), []), options)


def test_attend_of_packed_sequences_is_an_operator():
    q, k, v = (tensor.flatten(0, 1) for tensor in tensors())
    cu_q, cu_k = (torch.tensor(offsets, dtype=torch.int32) for offsets in ([0, 13, 40], [0, 33, 60]))
    options = {"causal": True, "cu_seqlens": cu_q, "cu_seqlens_k": cu_k}
    torch.library.opcheck(torch.ops.attn.attend.default, (q, k, v, []), options)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_attend_compiles_to_the_same_bits(layout):
    q, k, v = tensors()
    if layout == "bhsd":
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in (q, k, v))

    def layer(q, k, v):
        out, lse = attn.attend(q, k, v, causal=True, window=9, layout=layout, return_lse=True)
        return out * 2, lse, attn.attend(q, k, v, layout=layout)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for ours, theirs in zip(compiled(q, k, v), layer(q, k, v), strict=True):
        assert torch.equal(ours, theirs)


def test_attend_is_exported():
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return attn.attend(q, k, v, causal=True)

    q, k, v = tensors()
    batch, rows = torch.export.Dim("batch", max=8), torch.export.Dim("rows", min=2, max=30)
    program = torch.export.export(
        Layer(), (q, k, v), dynamic_shapes={"q": {0: batch, 1: rows}, "k": {0: batch}, "v": {0: batch}}
    )
    assert any(node.target is torch.ops.attn.attend.default for node in program.graph.nodes)
    smaller = q[:1, :11].contiguous(), k[:1], v[:1]
    assert torch.equal(program.module()(*smaller), attn.attend(*smaller, causal=True))


def test_attend_of_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        q, k, v = (mode.from_tensor(tensor) for tensor in tensors(value_dim=128))
        out, lse = attn.attend(q, k, v, causal=True, return_lse=True)
    assert (out.shape, out.dtype) == ((2, 20, 4, 128), torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((2, 20, 4), torch.float32)


class Cap:
    size = 20.0


def capped(s, h, qi, ki):
    return attn.math.softcap(s, Cap.size)


def alibi(s, h, qi, ki, slopes):
    return s + slopes[h] * (ki - qi)


SEEN = attn.causal() & (attn.sink(3) | attn.recent(5))
# Calls of attend over q, k, v and slopes.
DESCRIBED = {
    "a function of the module": lambda *t: attn.attend(*t[:3], causal=True, score=capped),
    "a function in the code": lambda *t: attn.attend(*t[:3], causal=True, score=lambda s, h, qi, ki: s * 0.5),
    "one of FlexAttention": lambda *t: attn.attend(*t[:3], score=lambda s, b, h, q, k: s - 0.1 * (q - k)),
    "tables": lambda *t: attn.attend(*t[:3], causal=True, score=alibi, tensors={"slopes": t[3]}),
    "a visibility": lambda *t: attn.attend(*t[:3], see=SEEN),
    "a visibility in the code": lambda *t: attn.attend(
        *t[:3], see=attn.causal() & (attn.window(4) | attn.sink(1))
    ),
    "an order": lambda *t: attn.attend(*t[:3], causal=True, ordered=True, return_lse=True)[0],
    "all of it": lambda *t: attn.attend(
        *t[:3], see=SEEN, score=alibi, tensors={"slopes": t[3]}, ordered=True
    ),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_descriptions_compile_to_the_same_bits(name):
    """Compiled calls give the bits of eager calls, forward and backward, in one graph each."""
    given = [*tensors(rows=30), torch.rand(4, generator=torch.Generator().manual_seed(3))]
    torch._dynamo.reset()
    found = []
    for layer in (torch.compile(DESCRIBED[name], fullgraph=True, backend="aot_eager"), DESCRIBED[name]):
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        out = layer(*inputs)
        (out.float() * torch.arange(64)).sum().backward()
        found.append([out.detach(), *(tensor.grad for tensor in inputs)])
    for ours, theirs in zip(*found, strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)
    assert (found[0][-1] is not None) == (name in ("tables", "all of it"))


def test_what_a_compiled_score_reads_from_outside_is_read_again(monkeypatch):
    q, k, v = tensors()

    def layer(q, k, v):
        return attn.attend(q, k, v, causal=True, score=capped)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    before = compiled(q, k, v)
    monkeypatch.setattr(Cap, "size", 0.5)
    assert not torch.equal(before, layer(q, k, v))
    assert torch.equal(compiled(q, k, v), layer(q, k, v))


def test_a_described_attend_is_an_operator():
    from attn.run.torch_attend import keep

    options = {"see": repr(SEEN), "score": keep(alibi), "names": "slopes", "ordered": True}
    torch.library.opcheck(torch.ops.attn.attend.default, (*tensors(), [torch.rand(4)]), options)
    with pytest.raises(attn.TensorError, match="score: 'alibi 1' was traced in another process"):
        torch.ops.attn.attend(*tensors(), [], score="alibi 1")


def test_what_an_operator_cannot_take():
    q, k, v = tensors()
    for options in ({"significance": "sum"}, {"out": torch.empty_like(q)}):
        with pytest.raises(attn.TensorError, match=f"{next(iter(options))}: not an argument of the operator"):
            attn.torch_ops.attend(q, k, v, **options)


# --- A planned kernel ----------------------------------------------------------------------------------------


def test_run_is_an_operator(planned):
    kernel, plan, q, (k, v), extra = planned
    number = plan.handle
    torch.library.opcheck(torch.ops.attn.run.default, (q, [k, v], number, list(extra.values()), [1, 0]))


def test_run_compiles_to_the_same_bits(planned):
    kernel, plan, q, operand, extra = planned

    def layer(q, k, v):
        out, lse = kernel.run(q, (k, v), plan, return_lse=True, classes=(1, 0), **extra)
        return out + 1, lse

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for ours, theirs in zip(compiled(q, *operand), layer(q, *operand), strict=True):
        assert torch.equal(ours, theirs)


def test_run_of_a_cache_compiles():
    spec = attn.Spec(
        q_heads=4, kv_heads=2, head_dim=64, dtype="bfloat16", kv=[attn.Paged()], see=attn.causal()
    )
    kernel = attn.compile(spec, device="host")
    cache = attn.PagedCache(layers=2, pages=8, kv_heads=2, head_dim=64, device="host")
    node = cache.add()
    cache.append(node, 30).write_all(*torch.randn(2, 2, 30, 2, 64).to(torch.bfloat16))
    plan = kernel.plan(cache.batch([node]))
    q = tensors(batch=1, rows=1)[0][0]

    def layers(q):
        return kernel.run(kernel.run(q, cache.layer(0), plan), cache.layer(1), plan)

    assert torch.equal(torch.compile(layers, fullgraph=True, backend="aot_eager")(q), layers(q))


def test_a_handle_that_stands_for_nothing():
    q = tensors()[0]
    with pytest.raises(attn.PlanError, match="expected the handle of a living plan"):
        torch.ops.attn.run(q, [q, q], 10**9, [], [])


# --- Gradients -----------------------------------------------------------------------------------------------


def test_gradients_are_refused_where_there_are_none(planned):
    kernel, plan, q, operand, extra = planned
    with pytest.raises(attn.TensorError, match="classes: head classes have no gradients"):
        kernel.run(q.requires_grad_(), operand, plan, **extra)
    with torch.no_grad():
        kernel.run(q, operand, plan, **extra)
    kernel, plan, q, operand, extra = planned
    values = [extra[name] for name in kernel.extras]
    with pytest.raises(attn.TensorError, match=r"requires a gradient.*no_grad.*detach"):
        torch.ops.attn.run(q, list(operand), plan.handle, values, [])


GRADIENT_OPTIONS = [
    *OPTIONS,
    {"reference": True, "causal": True, "layout": "bhsd"},
    {"kv_lengths": [30, 21], "causal": True, "softcap": 5.0},
]


@pytest.mark.parametrize("options", GRADIENT_OPTIONS, ids=str)
def test_compiled_gradients_are_those_of_eager_code(options):
    """Gradients have the bits of eager ones: of the operator in compiled code, of the operator called by name, and of
    attn.attend."""
    given = tensors()
    if options.get("layout") == "bhsd":
        given = [tensor.transpose(1, 2).contiguous() for tensor in given]
    names = [*"qkv"] + (["sink_logits"] if "sink_logits" in options else [])

    def of(function, options=options):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        options = dict(options)
        if "sink_logits" in options:
            options["sink_logits"] = options["sink_logits"].clone().requires_grad_()
            leaves.append(options["sink_logits"])
        out, lse = function(*leaves[:3], **options)
        ((out.float() * 3).sin().sum() + lse.sin().sum()).backward()
        return out, lse, [leaf.grad for leaf in leaves]

    eager = of(lambda *given, **options: attn.attend(*given, **options, return_lse=True))
    assert len(eager[2]) == len(names) and all(gradient.abs().sum() > 0 for gradient in eager[2])
    compiled = torch.compile(
        lambda *given, **options: attn.attend(*given, **options, return_lse=True),
        backend="aot_eager",
        fullgraph=True,
    )
    tables = {
        name: torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value
        for name, value in options.items()
    }
    by_name = of(lambda q, k, v, **named: torch.ops.attn.attend(q, k, v, [], **named), tables)
    for found in (of(compiled), by_name):
        assert torch.equal(found[0], eager[0]) and torch.equal(found[1], eager[1])
        for name, gradient, wanted in zip(names, found[2], eager[2], strict=True):
            assert torch.equal(gradient, wanted), name


def test_a_forest_in_compiled_code_is_data():
    """Other forests of as many nodes recompile nothing."""
    forests = [
        attn.Forest([0, 8, 12, 20], [-1, 0, 0]),
        attn.Forest([0, 3, 9, 20], [-1, 0, 1]),
        attn.Forest([0, 0, 19, 20], [-1, -1, 1]),
    ]
    from torch._dynamo.testing import CompileCounterWithBackend  # `import torch` may not import this module

    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v, forest: attn.attend(q, k, v, causal=True, forest=forest), backend=counted
    )
    given = [tensor[0, :20] for tensor in tensors()]
    for forest in forests:
        found = []
        for function in (compiled, lambda q, k, v, forest: attn.attend(q, k, v, causal=True, forest=forest)):
            leaves = [tensor.clone().requires_grad_() for tensor in given]
            function(*leaves, forest).float().square().sum().backward()
            found.append([leaf.grad for leaf in leaves])
        assert all(map(torch.equal, *found))
    assert counted.frame_count == 1


def test_importing_attn_does_not_import_torch_ops():
    import subprocess
    import sys

    code = "import attn, numpy, sys; attn.Spec; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["attend", "attend_spans", "sequences", "spans"])
def test_what_plans_is_kept_out_of_cuda_graphs(name):
    """Operators that plan carry the tag that keeps them out of CUDA graphs, since they read lengths on the CPU. A run
    of an existing plan may be captured."""
    if not hasattr(torch.Tag, "cudagraph_unsafe"):
        pytest.skip("this PyTorch has no tag for it")
    assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.attn, name).default.tags
    assert torch.Tag.cudagraph_unsafe not in torch.ops.attn.run.default.tags
