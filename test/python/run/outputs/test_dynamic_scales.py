# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs in e4m3 under scales that kernels make, one for each row and head: float64 agrees in every store, plan and form
of kernel, scales and codes follow from the largest output to the bit, and results go where a caller says."""

import itertools
import os

import attn
import numpy
import pytest
from attn.memory.tensors import from_e4m3_bits
from meaning import attention, normal, numbers, qkv, swap

pytest.importorskip("attn._attn", reason="the extension is not built")
torch = pytest.importorskip("torch")

import output_problem  # noqa: E402
from kernel_problem import LENGTHS, Problem  # noqa: E402
from kernel_problem import spec as decoding  # noqa: E402
from output_problem import FEATURES, STORES, assert_right, assert_right_beside  # noqa: E402
from test_output_scales import F8, codes_of, rounded  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
OUTPUT = {"output": "fp8_e4m3", "output_scales": "head"}
LEAST = numpy.float32(1e-10)
SCHEDULES = [
    ("wgmma", "sm_90a"),
    ("mma", "sm_90a"),
    ("mma", "sm_80"),
    ("mma", "sm_89"),
    ("mma", "sm_120a"),
]


def described(**given):
    return output_problem.described(**(OUTPUT | given))


def scales_of(values):
    """Return the scales that follow from outputs [..., features], in float32."""
    largest = numpy.abs(numpy.asarray(values, numpy.float32)).max(-1)
    return numpy.maximum(largest, LEAST) / numpy.float32(448)


def assert_exact(out, scales, values):
    """Assert that scales and codes follow from outputs that are known to the bit."""
    wanted = scales_of(values)
    assert numpy.array_equal(numpy.asarray(scales), wanted)
    assert numpy.array_equal(codes_of(out), rounded(values, wanted[..., None]))


def assert_near(out, scales, wanted, tolerance=8e-3):
    """Compare scales with float64, and codes within a half of e4m3's last place, by the norm of a row and head."""
    scales = numpy.asarray(scales, numpy.float64)
    exact = numpy.maximum(numpy.abs(wanted).max(-1), 1e-10) / 448
    assert numpy.abs(scales / exact - 1).max(initial=0) <= 2 * tolerance
    found = from_e4m3_bits(codes_of(out)) * scales[..., None]
    norm = numpy.linalg.norm(wanted, axis=-1)
    assert (numpy.linalg.norm(found - wanted, axis=-1) <= 6e-2 * norm).all()


# --- Kernels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("rows", [1, 40])
def test_stores(store, rows):
    spec = described(kv=[STORES[store]])
    lengths = 100 if spec.operands[0].ragged else [rows, 77, 130 + rows]
    assert_right(attn.check(spec, batch=3, q_len=rows, kv_len=lengths, blocks=5))


@pytest.mark.parametrize("schedule,target", SCHEDULES)
@pytest.mark.parametrize("dim", [32, 64, 80, 96, 128, 192, 256])
def test_head_dims(dim, schedule, target):
    spec = described(head_dim=dim, kv=[attn.Packed()], dtype="float16")
    assert_right(attn.check(spec, target=target, schedule=schedule, batch=2, q_len=(1, 70), kv_len=(70, 150)))


@pytest.mark.parametrize("dims", [(192, 128), (64, 32), (64, 8), (40, 24), (72, 72), (576, 128), (512, 256)])
@pytest.mark.parametrize("rows", [1, 66])
@pytest.mark.parametrize("format", [None, "int8", "fp8_e4m3"])
def test_values_of_other_dims(dims, rows, format):
    if format is not None and (dims[0] > 256 or dims[1] % 16):
        pytest.skip("no such format")
    stored = {} if format is None else {"key": format, "value": format}
    spec = described(head_dim=dims[0], value_dim=dims[1], q_heads=4, kv_heads=1, kv=[attn.Paged(**stored)])
    assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(66, 140)))


@pytest.mark.parametrize("group", [1, 3, 5, 7, 8, 16])
@pytest.mark.parametrize("numerics", [None, "row"])
def test_groups(group, numerics):
    for rows in (1, 2, 37):
        spec = described(q_heads=2 * group, numerics=numerics)
        assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(40, 90), blocks=3))


@pytest.mark.parametrize("gate", [None, "elementwise", "headwise"] if FULL else [None, "elementwise"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"] if FULL else ["bfloat16"])
@pytest.mark.parametrize("rows,dim", [(1, 64), (3, 80), (1, 128), (2, 256)])
@pytest.mark.parametrize("numerics", [None, "row"])
def test_scales_are_made_where_parts_are_merged(gate, dtype, rows, dim, numerics):
    spec = described(
        q_heads=7,
        kv_heads=1,
        head_dim=dim,
        dtype=dtype,
        sink_logits=True,
        gate=gate,
        numerics=numerics,
        return_lse=dim != 80,
    )
    tokens = 1500 if numerics is None else 5000
    report = attn.check(spec, batch=1, q_len=rows, kv_len=tokens, blocks=16)
    assert_right(report)
    assert report.plan["merge_rows"] > 0


@pytest.mark.parametrize("given", FEATURES)
@pytest.mark.parametrize("gate", [None, "elementwise"])
@pytest.mark.parametrize("rows", [1, 50])
def test_meets_other_features(given, gate, rows):
    assert_right_beside(given, rows, gate=gate, **OUTPUT)


@pytest.mark.parametrize("amplitude", [1e-6, 1e-3, 30.0, 1e4])
@pytest.mark.parametrize("rows", [1, 30])
def test_amplitudes(amplitude, rows):
    """The size of values does not matter to codes."""
    spec = described()
    tensors = attn.sample(spec, batch=2, q_len=rows, kv_len=(30, 200))
    large = attn.sample(spec, batch=2, q_len=rows, kv_len=(30, 200), amplitude=amplitude)
    assert_right(attn.check(spec, tensors | {"kv.v_pages": large["kv.v_pages"]}))


GRID = [
    {"store": store, "schedule": schedule, "gate": gate, "return_lse": lse, "numerics": numerics, "dim": dim}
    for i, (store, schedule, gate, lse, numerics, dim) in enumerate(
        itertools.product(
            ("dense", "packed", "paged"),
            ("mma", "wgmma"),
            (None, "elementwise", "headwise"),
            (False, True),
            (None, "row"),
            (64, 80, 96, 128, 256),
        )
    )
    if i % 7 == 0  # Each pair of values occurs.
]


@pytest.mark.parametrize("place", range(0, len(GRID), 1 if FULL else 3))
def test_products(place):
    given = dict(GRID[place])
    heads = (7, 1) if place % 2 else (6, 2)
    schedule, dim = given.pop("schedule"), given.pop("dim")
    store = STORES[given.pop("store")]
    spec = described(q_heads=heads[0], kv_heads=heads[1], head_dim=dim, kv=[store], **given)
    for rows, tokens, blocks in ((1, 700, 9), (19, 83, 4), (70, 129, 5)):
        report = attn.check(spec, schedule=schedule, batch=1, q_len=rows, kv_len=tokens, blocks=blocks)
        assert_right(report)


# --- Rounding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule,target", [("wgmma", "sm_90a"), ("mma", "sm_90a"), ("mma", "sm_80")])
@pytest.mark.parametrize("dim", [40, 64, 80, 128, 256])
@pytest.mark.parametrize("rows", [1, 3, 2048])
def test_scales_and_codes_follow_to_the_bit(dim, rows, schedule, target):
    """A row that sees one token has its value for an output. Values are of every size that float16 has; the largest is in
    another place of each row."""
    random = numpy.random.default_rng(dim + rows)
    sizes = 2.0 ** random.integers(-24, 10, (rows, 1, 1))
    v = (random.standard_normal((rows, 1, dim)) * sizes).astype(numpy.float16) + numpy.float16(0)
    places = (numpy.arange(rows) * 7) % dim
    v[numpy.arange(rows), 0, places] *= numpy.float16(9)
    q = k = numpy.zeros((rows, 1, dim), numpy.float16)
    spec = described(
        q_heads=1, kv_heads=1, head_dim=dim, dtype="float16", kv=[attn.Packed()], see=attn.window(1)
    )
    kernel = attn.compile(spec, device="host", target=target, schedule=schedule)
    starts = numpy.array([0, rows], numpy.int32)
    plan = kernel.plan({"q": q, "q_start": starts, "kv.k": k, "kv.v": v, "kv.start": starts})
    out, scales = kernel.run(q, (k, v), plan)
    assert out.dtype == numpy.uint8 and scales.dtype == numpy.float32 and scales.shape == (rows, 1)
    assert_exact(out, scales, v)


@pytest.mark.parametrize("dim", [64, 80])
@pytest.mark.parametrize("rows,blocks", [(1, 8), (1, 32), (70, 3)])
def test_each_feature_may_be_the_largest(dim, rows, blocks):
    """All tokens of a head have one value, so the output is that value, also of parts that are merged."""
    random, heads = numpy.random.default_rng(0), 8
    spec = described(q_heads=heads, kv_heads=heads, head_dim=dim, kv=[attn.Dense()], dtype="float16")
    kernel = attn.compile(spec, device="host")
    k, q = numpy.zeros((1, 1500, heads, dim), numpy.float16), numpy.zeros((rows, heads, dim), numpy.float16)
    plan = kernel.plan(
        {"q": q, "q_start": [0, rows], "kv.k": k, "kv.v": k, "kv.lengths": [1500]}, blocks=blocks
    )
    assert blocks != 32 or plan.stats["merge_rows"] > 0
    for place in numpy.arange(dim).reshape(-1, heads):
        v = random.uniform(-1, 1, (heads, dim)).astype(numpy.float16)
        v[range(heads), place] = numpy.where(place % 3, 3, -3)
        out, lse, scales = kernel.run(q, (k, numpy.tile(v, (1, 1500, 1, 1))), plan, return_lse=True)
        assert numpy.allclose(scales, 3 / 448, rtol=1e-5) and lse.shape == scales.shape
        assert (numpy.abs(from_e4m3_bits(out)[:, range(heads), place]) == 448).all()
        assert_near(out, scales, numpy.tile(v.astype(numpy.float64), (rows, 1, 1)), 1e-4)


@pytest.mark.parametrize("numerics", [None, "row"])
def test_rows_that_see_nothing(numerics):
    spec = described(kv=[attn.Packed()], numerics=numerics)
    assert_right(attn.check(spec, batch=4, q_len=[0, 5, 0, 1], kv_len=[0, 9, 3, 1]))
    tensors = attn.sample(spec, batch=2, q_len=[3, 1], kv_len=[5, 4])
    tensors["kv.pos0"] = numpy.array([1000, 0], numpy.int32)
    kernel = attn.compile(spec, device="host")
    operand = tensors["kv.k"], tensors["kv.v"]
    out, scales = kernel.run(tensors["q"], operand, kernel.plan(tensors))
    assert not out[:3].any() and out[3].any()
    assert (scales[:3] == LEAST / numpy.float32(448)).all() and (scales[3] > 1e-6).all()


@pytest.mark.parametrize("rows", [1, 33])
def test_a_nan_has_no_size(rows):
    spec = described(kv=[attn.Packed()], see=attn.window(1), dtype="float16")
    tensors = attn.sample(spec, batch=1, q_len=rows, kv_len=rows)
    tensors["kv.v"][0, 1, 5] = numpy.nan
    kernel = attn.compile(spec, device="host")
    o, scales = kernel.run(tensors["q"], (tensors["kv.k"], tensors["kv.v"]), kernel.plan(tensors))
    is_nan = o & 0x7F == 0x7F
    assert is_nan[0, 3:, 5].all() and is_nan[:, :, :5].sum() == is_nan[:, :3].sum() == 0
    values = numpy.where(is_nan, 0, numpy.repeat(tensors["kv.v"], 3, 1).astype(numpy.float32))
    assert numpy.allclose(scales, scales_of(values), rtol=2e-3)


def test_an_infinite_output_has_an_infinite_scale():
    spec = described(kv=[attn.Packed()], dtype="float16")
    tensors = attn.sample(spec, batch=1, q_len=1, kv_len=1)
    tensors["kv.v"][0, 1, 5] = -numpy.inf
    kernel = attn.compile(spec, device="host")
    o, scales = kernel.run(tensors["q"], (tensors["kv.k"], tensors["kv.v"]), kernel.plan(tensors))
    assert numpy.isfinite(scales[0, :3]).all() and numpy.isinf(scales[0, 3:]).all()
    assert (o[0, 3:, 5] & 0x7F == 0x7F).all() and not (numpy.delete(o[0, 3:], 5, -1) & 0x7F).any()


@pytest.mark.parametrize("tokens", [5000, 9000])
def test_a_row_has_its_bits_in_prompts_and_in_steps(tokens):
    """Parts of 4,096 tokens are merged by another kernel in steps, and folded in memory in prompts."""
    spec = described(q_heads=4, numerics="row", kv=[attn.Packed()], dtype="float16", gate="headwise")
    kernel = attn.compile(spec, device="host")
    assert kernel.manifest["numerics"]["output_scales"] is True
    tensors = attn.sample(spec, batch=1, q_len=40, kv_len=tokens)
    keys, gate = (tensors["kv.k"], tensors["kv.v"]), tensors["gate"]
    prompt = kernel.run(tensors["q"], keys, kernel.plan(tensors), return_lse=True, gate=gate)
    for first in (0, 17, 39):
        step = {name: tensors[name] for name in ("kv.k", "kv.v", "kv.start", "kv.pos0")}
        step |= {"q": tensors["q"][first : first + 1], "q_start": [0, 1], "q_pos": [tokens - 40 + first]}
        step["kv.lengths"] = [tokens]
        row = kernel.run(step["q"], keys, kernel.plan(step), return_lse=True, gate=gate[first : first + 1])
        for of_row, of_prompt in zip(row, prompt, strict=True):
            assert numpy.array_equal(of_row[0], of_prompt[first])


# --- Kernel.run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", [None, "row"])
def test_device_plans(numerics):
    spec = decoding(device_plan=True, output="fp8_e4m3", output_scales="head", numerics=numerics)
    kernel = attn.compile(spec, device="host")
    problem = Problem()
    planner = kernel.device_planner(problem.batch)
    for lengths in (LENGTHS, [1, 20, 64]):
        problem.lengths = lengths
        pages = problem.k, problem.v
        out = kernel.run(problem.q, pages, planner.plan(problem.tables))
        assert_near(*out, problem.expected()[0])
        host = kernel.run(problem.q, pages, kernel.plan(problem.batch))
        assert numerics is None or all(map(numpy.array_equal, out, host))


@pytest.fixture(params=[True, False], ids=["lse", "no lse"])
def small(request):
    """A kernel, its plan, and the tensors of its runs, of PyTorch."""
    torch.manual_seed(0)
    spec = described(q_heads=4, kv=[attn.Packed()], return_lse=request.param)
    kernel = attn.compile(spec, device="host")
    q = torch.randn(6, 4, 64, dtype=torch.bfloat16)
    k, v = torch.randn(2, 50, 2, 64, dtype=torch.bfloat16)
    tables = {"kv.lengths": [50], "kv.start": [0, 50], "q_start": [0, 6]}
    return kernel, kernel.plan({"q": q, "kv.k": k, "kv.v": v} | tables), q, (k, v)


def test_results_go_where_the_caller_says(small):
    kernel, plan, q, kv = small
    out, scales = kernel.run(q, kv, plan)
    assert out.dtype == F8 and out.shape == (6, 4, 64) and scales.shape == (6, 4)
    wanted, wanted_lse = attention(q[None], kv[0][None], kv[1][None], see=attn.causal())
    assert_near(out, scales, wanted[0])
    if kernel._has_lse:
        _, lse, same = kernel.run(q, kv, plan, return_lse=True)
        assert numpy.abs(lse.numpy() - wanted_lse[0]).max() < 2e-3 and torch.equal(same, scales)
    for given in (torch.empty(6, 4, 64, dtype=F8), torch.empty(6, 8, 64, dtype=F8)[:, 2:6], None):
        for of_scales in (torch.empty(6, 4), None):
            for _ in range(3):  # The later ones are prepared launches.
                found = kernel.run(q, kv, plan, out=given, output_scales=of_scales)
                assert given is None or found[0] is given
                assert of_scales is None or found[1] is of_scales
                assert torch.equal(found[0].view(torch.uint8), out.view(torch.uint8))
                assert torch.equal(found[1], scales)
    for size in (0.01, 4.0, 1.0):  # of a prepared launch
        found = kernel.run(q, (kv[0], kv[1] * size), plan)
        assert torch.allclose(found[1], scales * size, rtol=1e-2)


@pytest.mark.parametrize(
    "named,message",
    [
        ({"output_scale": torch.ones(1)}, "argument: expected no further tensor, got 'output_scale'"),
        ({"output_scales": torch.empty(6, 2)}, r"output_scales: expected .*float32 \[6, 4\], got"),
        (
            {"output_scales": torch.empty(6, 4, dtype=torch.bfloat16)},
            r"output_scales: expected .*float32 \[6, 4\], got",
        ),
        ({"output_scales": torch.empty(6, 8)[:, ::2]}, "output_scales: expected"),
        ({"out": torch.empty(6, 4, 64, dtype=torch.bfloat16)}, "out: expected float8_e4m3fn"),
    ],
)
def test_wrong_tensors_are_refused(small, named, message):
    kernel, plan, q, kv = small
    with pytest.raises(attn.TensorError, match=message):
        kernel.run(q, kv, plan, **named)


def test_scales_overlap_nothing(small):
    kernel, plan, q, kv = small
    memory = torch.empty(6 * 4 * 64 // 4)
    out = memory.view(F8).view(6, 4, 64)
    with pytest.raises(attn.TensorError, match="overlaps"):
        kernel.run(q, kv, plan, out=out, output_scales=memory[:24].view(6, 4))


def test_other_descriptions_return_no_scales():
    kernel = attn.compile(described(output=None, output_scales="tensor", kv=[attn.Packed()]), device="host")
    q, k = torch.randn(3, 6, 64, dtype=torch.bfloat16), torch.randn(3, 2, 64, dtype=torch.bfloat16)
    plan = kernel.plan({"q": q, "kv.k": k, "kv.v": k, "kv.start": [0, 3], "q_start": [0, 3]})
    message = (
        r"output_scales: this description returns none; write Spec\(output='fp8_e4m3', output_scales='head'\)"
    )
    with pytest.raises(attn.TensorError, match=message):
        kernel.run(q, (k, k), plan, output_scales=torch.empty(3, 6))


def test_gradients_are_refused(small):
    kernel, plan, q, kv = small
    with pytest.raises(attn.TensorError, match="output_scales: outputs in float8_e4m3fn have no gradients"):
        kernel.run(q.clone().requires_grad_(), kv, plan)


@pytest.mark.parametrize("into", [False, True])
def test_compiled_code_of_a_kernel(small, into):
    kernel, plan, q, kv = small

    def call(q, k, v):
        scales = torch.empty(6, 4) if into else None
        out, *rest = kernel.run(q, (k, v), plan, output_scales=scales, return_lse=kernel._has_lse)
        return out.view(torch.uint8), *rest

    torch._dynamo.reset()  # A plan is a constant of the graph.
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(compiled(q, *kv), call(q, *kv), strict=True):
        assert torch.equal(found, wanted)
    with pytest.raises(attn.TensorError, match="nearest: torch.ops.attn.run_with_scales"):
        torch.ops.attn.run(q, list(kv), plan.handle, [], [])


# --- Descriptions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,message",
    [
        ({"output_scales": "row"}, "output_scales: expected 'tensor', .* or 'head', .*got 'row'"),
        ({"output_scales": None}, "output_scales: expected 'tensor'"),
        ({"output": None}, "output_scales: expected output='fp8_e4m3' beside 'head', got None"),
        (
            {"head_dim": 512, "q_heads": 2},
            "output_scales: expected 'tensor' for values of 512 features, whose rows several warps share, got 'head'",
        ),
        ({"kv": [attn.Paged(name="output_scales")]}, "kv: expected another name than 'output_scales'"),
        ({"significance": "max"}, "output: expected None beside significance"),
    ],
)
def test_wrong_descriptions_are_refused(given, message):
    with pytest.raises(attn.SpecError, match=message):
        described(**given)


def test_a_description_is_printed():
    spec = described(value_dim=32, gate="headwise")
    assert "output_scales='head'" in repr(spec) and eval(repr(spec), vars(attn)) == spec
    assert spec != described(value_dim=32, gate="headwise", output_scales="tensor")
    assert "output_scales tensor<?x6xf32>" in spec.mlir() and "output_scale %" not in spec.mlir()
    assert described(kv=[attn.Paged(name="output_scale")]).operands[0].name == "output_scale"


# --- attend --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "uint16"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("rows", [1, 70])
def test_attend(dtype, layout, rows):
    q, k, v = qkv(rows=rows, value_dim=32, dtype=dtype)
    gate = normal(*q.shape[:3], dtype=dtype)
    wanted, wanted_lse = attention(q, k, v, see=attn.causal())
    wanted /= 1 + numpy.exp(-numbers(gate))[..., None]
    turned = (lambda t: t) if layout == "bshd" else lambda t: numpy.ascontiguousarray(swap(t))
    q, k, v, gate = map(turned, (q, k, v, gate))
    options = {"causal": True, "layout": layout, "output_scales": "head", "gate": gate}
    out, lse, scales = attn.attend(q, k, v, return_lse=True, **options)
    back = numpy.swapaxes if layout == "bhsd" else lambda t, *_: t
    assert_near(turned(out), back(scales, 1, 2), wanted)
    assert numpy.abs(back(lse, 1, 2) - wanted_lse).max() < 2e-3
    given = numpy.empty_like(out)
    found, same = attn.attend(q, k, v, out=given, **options)
    assert found is given and numpy.array_equal(given, out) and numpy.array_equal(same, scales)


def test_repeated_calls_of_torch():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.float16)
    for size, return_lse in itertools.product((1.0, 0.01, 8.0), (False, True)):
        for _ in range(2):
            options = {"causal": True, "return_lse": return_lse}
            out, *lse, scales = attn.attend(q, k, v * size, output_scales="head", **options)
            plain = attn.attend(q, k, v * size, **options)
            plain, *same = plain if return_lse else (plain,)
            assert out.dtype == F8 and all(map(torch.equal, lse, same)) and len(lse) == return_lse
            assert_near(out, scales, plain.double().numpy(), 1e-3)
            static = attn.attend(q, k, v * size, output_scale=torch.ones(1), **options)
            assert isinstance(static, torch.Tensor) != return_lse


def test_attend_of_packed_sequences():
    q, k, v = (t[0] for t in qkv(batch=1, rows=60, tokens=60))
    out, scales = attn.attend(q, k, v, causal=True, cu_seqlens=[0, 25, 25, 60], output_scales="head")
    for begin, end in ((0, 25), (25, 60)):
        wanted, _ = attention(*(t[None, begin:end] for t in (q, k, v)), see=attn.causal())
        assert_near(out[begin:end], scales[begin:end], wanted[0])


def test_the_reference_makes_scales():
    q, k, v = torch.randn(3, 1, 5, 2, 16, dtype=torch.float64)
    gate = torch.randn(1, 5, 2, dtype=torch.float64)
    options = {"gate": gate, "reference": True, "return_lse": True}
    out, lse, scales = attn.attend(q, k, v, output_scales="head", **options)
    plain, same = attn.attend(q, k, v, **options)
    wanted = plain.abs().amax(-1) / 448
    assert torch.equal(scales, wanted.float()) and torch.equal(lse, same)
    assert torch.equal(out.view(torch.uint8), (plain / wanted[..., None]).to(F8).view(torch.uint8))


def test_attend_refuses_what_it_cannot_give():
    q, k, v = torch.randn(3, 1, 9, 2, 64, dtype=torch.float16)
    for named, message in (
        ({"output_scales": "row"}, "output_scales: expected 'head'"),
        ({"output_scales": torch.ones(1)}, "output_scales: expected 'head'"),
        ({"output_scales": "head", "output_scale": torch.ones(1)}, "expected None beside output_scale"),
        ({"output_scales": "head", "significance": "max"}, "expected None beside significance"),
    ):
        with pytest.raises(attn.TensorError, match=message):
            attn.attend(q, k, v, **named)
    message = "output_scales: expected None where autograd records, as outputs in float8_e4m3fn"
    with pytest.raises(attn.TensorError, match=message):
        attn.attend(q.requires_grad_(), k, v, output_scales="head")
    compiled = torch.compile(lambda *t: attn.attend(*t, output_scales="head"), backend="aot_eager")
    with pytest.raises(Exception, match="output_scales: expected None in compiled code"):
        compiled(q.detach(), k, v)
    wide = torch.randn(1, 9, 2, 512, dtype=torch.float16)
    for reference in (False, True):
        with pytest.raises(attn.SpecError, match="output_scales: expected 'tensor' for values of 512"):
            attn.attend(wide, wide, wide, output_scales="head", reference=reference)
