# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs in e4m3 under a scale: float64 agrees in every store, plan and form of kernel, each output is rounded once, and
other libraries' forms of calls work."""

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

F8 = torch.float8_e4m3fn


def described(**given):
    return output_problem.described(**({"output": "fp8_e4m3"} | given))


def scale_of(number):
    return numpy.array([number], numpy.float32)


def rounded(values, scale):
    """Return the codes of values over a scale, by PyTorch."""
    quotients = torch.from_numpy(numpy.asarray(values, numpy.float32)) * torch.from_numpy(1 / scale)
    return quotients.clamp(-448, 448).to(F8).view(torch.uint8).numpy()


def codes_of(out):
    return out.view(torch.uint8).numpy() if isinstance(out, torch.Tensor) else out


def assert_rounds(out, plain, scale):
    """Assert that each code is the rounding of a number that also rounds to the output of the kernel without a scale, in
    float16."""
    plain = numbers(plain)
    codes = from_e4m3_bits(codes_of(out))
    half = numpy.maximum(numpy.abs(plain) * 2.0**-11, 2.0**-25) * 1.001
    low, high = (from_e4m3_bits(rounded(plain + sign * half, scale)) for sign in (-1, 1))
    assert (low <= codes).all() and (codes <= high).all()


def assert_near(out, wanted, scale, tolerance=6e-2):
    """Compare codes with float64: within a half of e4m3's last place, by the norm of a row and head."""
    exact = numpy.clip(wanted / float(scale[0]), -448, 448)
    error = numpy.linalg.norm(from_e4m3_bits(codes_of(out)) - exact, axis=-1)
    norm = numpy.maximum(numpy.linalg.norm(exact, axis=-1), 2.0**-6 * exact.shape[-1] ** 0.5)
    assert (error / norm).max(initial=0) <= tolerance


# --- Kernels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("rows", [1, 40])
def test_stores(store, rows):
    spec = described(kv=[STORES[store]])
    lengths = 100 if spec.operands[0].ragged else [rows, 77, 130 + rows]
    assert_right(attn.check(spec, batch=3, q_len=rows, kv_len=lengths, blocks=5))


@pytest.mark.parametrize(
    "schedule,target",
    [("wgmma", "sm_90a"), ("mma", "sm_90a"), ("mma", "sm_80"), ("mma", "sm_89"), ("mma", "sm_120a")],
)
@pytest.mark.parametrize("dim", [32, 64, 80, 96, 128, 192, 256])
def test_head_dims(dim, schedule, target):
    spec = described(head_dim=dim, kv=[attn.Packed()], dtype="float16")
    assert_right(attn.check(spec, target=target, schedule=schedule, batch=2, q_len=(1, 70), kv_len=(70, 150)))


@pytest.mark.parametrize("dims", [(192, 128), (64, 32), (64, 8), (40, 24), (72, 72), (576, 512), (512, 512)])
@pytest.mark.parametrize("rows", [1, 66])
def test_values_of_other_dims(dims, rows):
    spec = described(head_dim=dims[0], value_dim=dims[1], q_heads=4, kv_heads=1)
    assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(66, 140)))


@pytest.mark.parametrize("gate", [None, "headwise"])
@pytest.mark.parametrize("key", [None, "fp8_e4m3", "fp8_ds_mla"])
@pytest.mark.parametrize("rows", [1, 3, 66])
def test_latents(key, rows, gate):
    """Warps that share rows write a slice of the features each."""
    scales = {} if key is None else {"key": key}
    if key == "fp8_e4m3":
        scales["key_scales"] = "tensor"
    kv = [attn.Paged(value=attn.first(512), **scales)]
    spec = described(q_heads=16, kv_heads=1, head_dim=576, kv=kv, gate=gate)
    assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(66, 140), blocks=7))


@pytest.mark.parametrize("group", [1, 3, 5, 7, 8, 16])
@pytest.mark.parametrize("numerics", [None, "row"])
def test_groups(group, numerics):
    for rows in (1, 2, 37):
        spec = described(q_heads=2 * group, numerics=numerics)
        assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(40, 90), blocks=3))


@pytest.mark.parametrize("gate", [None, "elementwise", "headwise"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3])
def test_parts_are_divided_once_where_they_are_merged(gate, dtype, rows):
    spec = described(dtype=dtype, sink_logits=True, gate=gate)
    report = attn.check(spec, batch=1, q_len=rows, kv_len=1500, blocks=16)
    assert_right(report)
    assert report.plan["merge_rows"] > 0


@pytest.mark.parametrize("given", FEATURES)
@pytest.mark.parametrize("gate", [None, "elementwise"])
@pytest.mark.parametrize("rows", [1, 50])
def test_meets_other_features(given, gate, rows):
    assert_right_beside(given, rows, gate=gate, output="fp8_e4m3")


@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 2.0**8])
@pytest.mark.parametrize("amplitude", [1e-3, 1.0, 30.0])
def test_amplitudes(amplitude, scale):
    """Numbers that are clamped, subnormal ones and zeros count, too."""
    spec = described()
    tensors = attn.sample(spec, batch=2, q_len=(1, 30), kv_len=(30, 200), amplitude=amplitude)
    tensors["output_scale"] = scale_of(scale)
    assert_right(attn.check(spec, tensors))


def test_empty_sequences():
    spec = described(kv=[attn.Packed()])
    assert_right(attn.check(spec, batch=4, q_len=[0, 5, 0, 1], kv_len=[0, 9, 3, 1]))


# --- Rounding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule,target", [("wgmma", "sm_90a"), ("mma", "sm_90a"), ("mma", "sm_80")])
@pytest.mark.parametrize("scale", [1.0, 0.0371, 2.0**10])
@pytest.mark.parametrize("dim", [64, 80, 128])
def test_every_output_is_rounded_to_nearest_even(dim, scale, schedule, target):
    """A row that sees one token has its value for an output, without the sign of a zero. The values are all finite numbers
    of float16."""
    bits = numpy.arange(2**16, dtype=numpy.uint16).view(numpy.float16)
    finite = bits[numpy.isfinite(bits)]
    rows = -(-len(finite) // dim)
    v = numpy.resize(finite, (rows, 1, dim)) + numpy.float16(0)
    q = k = numpy.zeros((rows, 1, dim), numpy.float16)
    spec = described(
        q_heads=1, kv_heads=1, head_dim=dim, dtype="float16", kv=[attn.Packed()], see=attn.window(1)
    )
    kernel = attn.compile(spec, device="host", target=target, schedule=schedule)
    starts = numpy.array([0, rows], numpy.int32)
    plan = kernel.plan({"q": q, "q_start": starts, "kv.k": k, "kv.v": v, "kv.start": starts})
    out = kernel.run(q, (k, v), plan, output_scale=scale_of(scale))
    assert out.dtype == numpy.uint8 and numpy.array_equal(out, rounded(v, scale_of(scale)))


@pytest.mark.parametrize("rows,blocks", [(1, 1), (3, 16), (70, 3)])
@pytest.mark.parametrize("value", [None, "int8", "fp8_e4m3", "mxfp8"])
def test_codes_follow_from_unrounded_outputs(rows, blocks, value):
    stored = {} if value is None else {"key": value, "value": value}
    given = {"kv": [attn.Paged(**stored)], "dtype": "float16"}
    spec, plain = described(**given), described(output=None, **given)
    tensors = attn.sample(spec, batch=1, q_len=rows, kv_len=1500)
    scale = tensors.pop("output_scale")
    outs = []
    for each, more in ((spec, {"output_scale": scale}), (plain, {})):
        kernel = attn.compile(each, device="host")
        operand = {name[3:]: t for name, t in tensors.items() if name in kernel._own}
        plan = kernel.plan(tensors, blocks=blocks)
        assert blocks < 16 or plan.stats["merge_rows"] > 0
        outs.append(kernel.run(tensors["q"], operand, plan, **more))
    assert_rounds(*outs, scale)


@pytest.mark.parametrize("rows", [1, 33])
def test_only_features_of_a_nan_have_nans(rows):
    spec = described(kv=[attn.Packed()], see=attn.window(1), dtype="float16")
    tensors = attn.sample(spec, batch=1, q_len=rows, kv_len=rows)
    tensors["kv.v"][0, 1, 5] = numpy.nan
    kernel = attn.compile(spec, device="host")
    keys = tensors["kv.k"], tensors["kv.v"]
    scale = tensors["output_scale"]
    o, lse = kernel.run(tensors["q"], keys, kernel.plan(tensors), output_scale=scale, return_lse=True)
    is_nan = o & 0x7F == 0x7F
    assert is_nan[0, 3:, 5].all() and is_nan[:, :, :5].sum() == is_nan[:, :3].sum() == 0
    assert numpy.isfinite(lse).all()


@pytest.mark.parametrize("tokens", [5000, 9000])
def test_a_row_has_its_bits_in_prompts_and_in_steps(tokens):
    """Parts of 4,096 tokens are merged by another kernel in steps, and folded in memory in prompts."""
    spec = described(q_heads=4, numerics="row", kv=[attn.Packed()], dtype="float16", gate="headwise")
    kernel = attn.compile(spec, device="host")
    tensors = attn.sample(spec, batch=1, q_len=40, kv_len=tokens)
    keys = tensors["kv.k"], tensors["kv.v"]
    named = {"gate": tensors["gate"], "output_scale": tensors["output_scale"]}
    prompt, lse = kernel.run(tensors["q"], keys, kernel.plan(tensors), return_lse=True, **named)
    for first in (0, 17, 39):
        step = {name: tensors[name] for name in ("kv.k", "kv.v", "kv.start", "kv.pos0")}
        step |= {"q": tensors["q"][first : first + 1], "q_start": [0, 1], "q_pos": [tokens - 40 + first]}
        step["kv.lengths"] = [tokens]
        named["gate"] = tensors["gate"][first : first + 1]
        row, of_row = kernel.run(step["q"], keys, kernel.plan(step), return_lse=True, **named)
        assert numpy.array_equal(row[0], prompt[first]) and numpy.array_equal(of_row[0], lse[first])


# --- Kernel.run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", [None, "row"])
def test_device_plans(numerics):
    kernel = attn.compile(decoding(device_plan=True, output="fp8_e4m3", numerics=numerics), device="host")
    problem = Problem()
    planner = kernel.device_planner(problem.batch)
    scale = scale_of(2.0**-7)
    for lengths in (LENGTHS, [1, 20, 64]):
        problem.lengths = lengths
        pages = problem.k, problem.v
        out = kernel.run(problem.q, pages, planner.plan(problem.tables), output_scale=scale)
        assert_near(out, problem.expected()[0], scale)
        host = kernel.run(problem.q, pages, kernel.plan(problem.batch), output_scale=scale)
        assert numerics is None or numpy.array_equal(out, host)


@pytest.fixture
def small():
    """A kernel, its plan, and the tensors of its runs, of PyTorch."""
    torch.manual_seed(0)
    kernel = attn.compile(described(q_heads=4, kv=[attn.Packed()]), device="host")
    q = torch.randn(6, 4, 64, dtype=torch.bfloat16)
    k, v = torch.randn(2, 50, 2, 64, dtype=torch.bfloat16)
    tables = {"kv.lengths": [50], "kv.start": [0, 50], "q_start": [0, 6]}
    return kernel, kernel.plan({"q": q, "kv.k": k, "kv.v": v} | tables), q, (k, v)


def test_results_go_where_the_caller_says(small):
    kernel, plan, q, kv = small
    scale = torch.tensor([2.0**-7])
    out = kernel.run(q, kv, plan, output_scale=scale)
    assert out.dtype == F8 and out.shape == (6, 4, 64)
    assert_near(out, attention(q[None], kv[0][None], kv[1][None], see=attn.causal())[0][0], scale.numpy())
    for given in (
        torch.empty(6, 4, 64, dtype=F8),
        torch.empty(6, 4, 64, dtype=torch.uint8),
        torch.empty(6, 4, 128, dtype=F8)[..., :64],
        torch.empty(6, 8, 64, dtype=F8)[:, 2:6],
    ):
        for _ in range(2):
            assert kernel.run(q, kv, plan, output_scale=scale, out=given) is given
        assert torch.equal(given.view(torch.uint8), out.view(torch.uint8))
    for number in (2.0**-7, 2.0**-3, 0.3):  # of a prepared launch
        scale[0] = number
        found = kernel.run(q, kv, plan, output_scale=scale)
        assert torch.equal(found.view(torch.uint8), out.view(torch.uint8)) == (number == 2.0**-7)
        out_of = kernel.run(q, kv, plan, output_scale=scale.clone())
        assert torch.equal(found.view(torch.uint8), out_of.view(torch.uint8))


@pytest.mark.parametrize(
    "named,message",
    [
        ({}, "output_scale: the description takes this tensor; give it as output_scale="),
        ({"output_scale": torch.ones(4)}, r"output_scale: expected .*float32 \[1\], got"),
        (
            {"output_scale": torch.ones(1, dtype=torch.float64)},
            r"output_scale: expected .*float32 \[1\], got",
        ),
        (
            {"output_scale": torch.ones(1), "out": torch.empty(6, 4, 64, dtype=torch.bfloat16)},
            "out: expected float8_e4m3fn",
        ),
        (
            {"output_scale": torch.ones(1), "out": torch.empty(8 + 6 * 256, dtype=F8)[8:].view(6, 4, 64)},
            "out: expected an address that is a multiple of 16",
        ),
    ],
)
def test_wrong_tensors_are_refused(small, named, message):
    kernel, plan, q, kv = small
    with pytest.raises(attn.TensorError, match=message):
        kernel.run(q, kv, plan, **named)


def test_gradients_are_refused(small):
    kernel, plan, q, kv = small
    with pytest.raises(attn.TensorError, match="output_scale: outputs in float8_e4m3fn have no gradients"):
        kernel.run(q.clone().requires_grad_(), kv, plan, output_scale=torch.ones(1))


def test_compiled_code_of_a_kernel(small):
    kernel, plan, q, kv = small
    scale = torch.tensor([2.0**-7])

    def call(q, k, v, scale):
        return kernel.run(q, (k, v), plan, output_scale=scale).view(torch.uint8)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, *kv, scale), call(q, *kv, scale))


# --- Descriptions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,message",
    [
        ({"output": "fp8_e5m2"}, "output: expected 'fp8_e4m3', with a scale, or None .*got 'fp8_e5m2'"),
        ({"output": "fp8"}, "nearest legal: fp8_e4m3"),
        (
            {"significance": "max"},
            "output: expected None beside significance: quantize the output afterwards",
        ),
        (
            {"kv": [attn.Paged(name="output_scale")]},
            "kv: expected another name than 'output_scale' beside output=",
        ),
        (
            {
                "score": lambda s, h, qi, ki, output_scale: s + output_scale[h],
                "tensors": {"output_scale": (6,)},
            },
            "tensors: expected another name than 'output_scale' beside output=",
        ),
    ],
)
def test_wrong_descriptions_are_refused(given, message):
    with pytest.raises(attn.SpecError, match=message):
        described(**given)


def test_a_description_is_printed():
    spec = described(value_dim=32, gate="headwise")
    assert "output='fp8_e4m3'" in repr(spec) and eval(repr(spec), vars(attn)) == spec
    assert spec != described(value_dim=32, gate="headwise", output=None)
    assert 'attn.name = "output_scale"' in spec.mlir() and "tensor<?x6x32xf8E4M3FN>" in spec.mlir()


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
    scale = scale_of(2.0**-7)
    options = {"causal": True, "layout": layout, "output_scale": scale}
    out, lse = attn.attend(q, k, v, gate=gate, return_lse=True, **options)
    assert out.dtype == numpy.uint8
    assert_near(turned(out), wanted, scale)
    assert numpy.abs(turned(lse) - wanted_lse).max() < 2e-3
    given = numpy.empty_like(out)
    assert attn.attend(q, k, v, gate=gate, out=given, **options) is given and numpy.array_equal(given, out)


def test_attend_writes_where_the_caller_says():
    q, k, v = (torch.from_numpy(t) for t in qkv(rows=9))
    scale = torch.tensor([0.01])
    out = attn.attend(q, k, v, output_scale=scale)
    assert out.dtype == F8
    apart = torch.empty(2, 9, 8, 128, dtype=F8)[..., 32:96]
    assert attn.attend(q, k, v, output_scale=scale, out=apart) is apart
    assert torch.equal(apart.view(torch.uint8), out.view(torch.uint8))
    with pytest.raises(attn.TensorError, match=r"out: expected float8_e4m3fn \[2, 9, 8, 64\], got .*float16"):
        attn.attend(q, k, v, output_scale=scale, out=torch.empty_like(q))
    with pytest.raises(attn.TensorError, match="out: expected float16"):
        attn.attend(q, k, v, out=apart)


def test_repeated_calls_of_torch_read_the_scale_anew():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.float16)
    gate = torch.randn(2, 9, 4, dtype=torch.float16)
    for of_gate in (None, gate):
        plain = attn.attend(q, k, v, causal=True, gate=of_gate)
        for number in (0.01, 0.25, 2.0**-7, 3.0):
            scale = torch.tensor([number])
            out = attn.attend(q, k, v, causal=True, gate=of_gate, output_scale=scale)
            assert_rounds(out, plain, scale.numpy())
            assert torch.equal(plain, attn.attend(q, k, v, causal=True, gate=of_gate))


def test_attend_of_packed_sequences():
    q, k, v = (t[0] for t in qkv(batch=1, rows=60, tokens=60))
    scale = scale_of(2.0**-7)
    out = attn.attend(q, k, v, causal=True, cu_seqlens=[0, 25, 25, 60], output_scale=scale)
    for begin, end in ((0, 25), (25, 60)):
        wanted, _ = attention(*(t[None, begin:end] for t in (q, k, v)), see=attn.causal())
        assert_near(out[begin:end], wanted[0], scale)


def test_the_reference_takes_a_scale():
    q, k, v = torch.randn(3, 1, 5, 2, 16, dtype=torch.float64)
    gate, scale = torch.randn(1, 5, 2, dtype=torch.float64), torch.tensor([0.003])
    options = {"gate": gate, "reference": True, "return_lse": True}
    out, lse = attn.attend(q, k, v, output_scale=scale, **options)
    plain, same = attn.attend(q, k, v, **options)
    wanted = (plain / scale.double()).clamp(-448, 448).to(F8)
    assert torch.equal(out.view(torch.uint8), wanted.view(torch.uint8)) and torch.equal(lse, same)


@pytest.mark.parametrize("place", range(4))
def test_attend_refuses_gradients(place):
    q, k, v = torch.randn(3, 1, 9, 2, 64, dtype=torch.float16)
    given = [q, k, v, torch.ones(1)]
    given[place].requires_grad_()
    message = (
        "output_scale: expected None where autograd records, as outputs in float8_e4m3fn have no gradients"
    )
    for reference in (False, True):
        with pytest.raises(attn.TensorError, match=message):
            attn.attend(*given[:3], output_scale=given[3], reference=reference)
    with torch.no_grad():
        assert attn.attend(*given[:3], output_scale=given[3]).dtype == F8


def test_attend_refuses_what_it_cannot_give():
    q, k, v = torch.randn(3, 1, 9, 2, 64, dtype=torch.float16)
    scale = torch.ones(1)
    compiled = torch.compile(
        lambda *t: attn.attend(*t, output_scale=scale), backend="aot_eager", fullgraph=True
    )
    with pytest.raises(Exception, match="output_scale: expected None in compiled code"):
        compiled(q, k, v)
    with pytest.raises(attn.TensorError, match="output_scale: expected None beside significance"):
        attn.attend(q, k, v, output_scale=scale, significance="max")
    for wrong in (torch.ones(2), torch.ones(()), torch.ones(1, dtype=torch.float16), 0.5):
        with pytest.raises(attn.TensorError, match="output_scale"):
            attn.attend(q, k, v, output_scale=wrong)
        with pytest.raises(attn.TensorError, match="output_scale"):
            attn.attend(q, k, v, output_scale=wrong, reference=True)
    with pytest.raises(attn.SpecError, match="tensors: expected another name than 'output_scale'"):
        attn.attend(
            *(q, k, v),
            output_scale=scale,
            score=lambda s, h, qi, ki, output_scale: s,
            tensors={"output_scale": torch.ones(2)},
        )
