# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A gate on the output: float64 agrees in every store, plan and form of kernel, and other libraries' forms of calls work."""

import os

import attn
import numpy
import pytest
from meaning import assert_close, assert_close_lse, attention, normal, numbers, qkv, swap

pytest.importorskip("attn._attn", reason="the extension is not built")

from kernel_problem import LENGTHS, Problem  # noqa: E402
from kernel_problem import spec as decoding  # noqa: E402
from output_problem import FEATURES, STORES, assert_right, assert_right_beside, described  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
TOLERANCE = {"float16": 1e-3, "uint16": 8e-3, "bfloat16": 8e-3}
GATES = ("elementwise", "headwise")


def sigmoid(gate):
    with numpy.errstate(over="ignore"):
        return 1 / (1 + numpy.exp(-numbers(gate)))


# --- Kernels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("rows", [1, 40])
def test_stores(store, gate, rows):
    spec = described(kv=[STORES[store]], gate=gate)
    lengths = 100 if spec.operands[0].ragged else [rows, 77, 130 + rows]
    assert_right(attn.check(spec, batch=3, q_len=rows, kv_len=lengths, blocks=5))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "schedule,target", [("wgmma", "sm_90a"), ("mma", "sm_90a"), ("mma", "sm_80"), ("mma", "sm_120a")]
)
@pytest.mark.parametrize("dim", [32, 64, 80, 96, 128, 192, 256] if FULL else [64, 80, 256])
def test_head_dims(dim, gate, schedule, target):
    spec = described(head_dim=dim, kv=[attn.Packed()], gate=gate, dtype="float16")
    assert_right(attn.check(spec, target=target, schedule=schedule, batch=2, q_len=(1, 70), kv_len=(70, 150)))


@pytest.mark.parametrize("dims", [(192, 128), (64, 32), (64, 8), (40, 24), (576, 512), (512, 512)])
@pytest.mark.parametrize("rows", [1, 66])
def test_values_of_other_dims(dims, rows):
    spec = described(head_dim=dims[0], value_dim=dims[1], q_heads=4, kv_heads=1, gate="elementwise")
    assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(66, 140)))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rows", [1, 3, 66])
def test_latents(gate, rows):
    """Warps that share rows gate a slice of the features each."""
    spec = described(q_heads=16, kv_heads=1, head_dim=576, kv=[attn.Paged(value=attn.first(512))], gate=gate)
    assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(66, 140), blocks=7))


@pytest.mark.parametrize("group", [1, 3, 5, 7, 8, 16])
@pytest.mark.parametrize("numerics", [None, "row"])
def test_groups(group, numerics):
    for rows in (1, 2, 37):
        spec = described(q_heads=2 * group, gate="elementwise", numerics=numerics)
        assert_right(attn.check(spec, batch=2, q_len=rows, kv_len=(40, 90), blocks=3))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3])
def test_parts_are_gated_once_where_they_are_merged(gate, dtype, rows):
    spec = described(gate=gate, dtype=dtype, sink_logits=True)
    report = attn.check(spec, batch=1, q_len=rows, kv_len=1500, blocks=16)
    assert_right(report)
    assert report.plan["merge_rows"] > 0


@pytest.mark.parametrize("given", FEATURES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rows", [1, 50])
def test_meets_other_features(given, gate, rows):
    assert_right_beside(given, rows, gate=gate)


@pytest.mark.parametrize("amplitude", [1e-3, 1.0, 30.0])
def test_amplitudes(amplitude):
    assert_right(
        attn.check(
            described(gate="elementwise"), batch=2, q_len=(1, 30), kv_len=(30, 200), amplitude=amplitude
        )
    )


@pytest.mark.parametrize("gate", GATES)
def test_empty_sequences(gate):
    spec = described(gate=gate, kv=[attn.Packed()])
    assert_right(attn.check(spec, batch=4, q_len=[0, 5, 0, 1], kv_len=[0, 9, 3, 1]))


@pytest.mark.parametrize("rows,blocks", [(1, 1), (1, 12), (70, 3)])
def test_saturating_gates(rows, blocks):
    spec = described(gate="elementwise")
    tensors = attn.sample(spec, q_len=rows, kv_len=600)
    values = numpy.full(tensors["gate"].shape, 100, numpy.float32)
    values[..., 1::4], values[..., 2::4], values[..., 3::4] = -100, -numpy.inf, numpy.inf
    tensors["gate"] = attn.bfloat16_bits(values)
    assert_right(attn.check(spec, tensors, blocks=blocks))
    kernel = attn.compile(spec, device="host")
    keys = tensors["kv.k_pages"], tensors["kv.v_pages"]
    o = kernel.run(tensors["q"], keys, kernel.plan(tensors, blocks=blocks), gate=tensors["gate"])
    assert (numbers(o)[..., 2::4] == 0).all() and (numpy.abs(numbers(o)[..., 1::4]) < 1e-40).all()
    plain = attn.compile(described(), device="host")
    tables = {name: tensor for name, tensor in tensors.items() if name != "gate"}
    ungated = plain.run(tensors["q"], keys, plain.plan(tables, blocks=blocks))
    assert numpy.array_equal(o[..., 0::4], ungated[..., 0::4]) and numpy.array_equal(
        o[..., 3::4], ungated[..., 3::4]
    )


def test_only_rows_of_a_nan_have_nans():
    spec = described(gate="headwise", dtype="float16")
    tensors = attn.sample(spec, q_len=4, kv_len=50)
    tensors["gate"][2, 1] = numpy.nan
    kernel = attn.compile(spec, device="host")
    o, lse = kernel.run(
        tensors["q"],
        (tensors["kv.k_pages"], tensors["kv.v_pages"]),
        kernel.plan(tensors),
        gate=tensors["gate"],
        return_lse=True,
    )
    assert numpy.isnan(o[2, 1]).all() and numpy.isnan(o).sum() == 64 and numpy.isfinite(lse).all()


# --- Kernel.run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("numerics", [None, "row"])
def test_device_plans(gate, numerics):
    kernel = attn.compile(decoding(device_plan=True, gate=gate, numerics=numerics), device="host")
    problem = Problem()
    given = normal(*(problem.q.shape if gate == "elementwise" else problem.q.shape[:2]))
    planner = kernel.device_planner(problem.batch)
    for lengths in (LENGTHS, [1, 20, 64]):
        problem.lengths = lengths
        out, lse = kernel.run(
            problem.q, (problem.k, problem.v), planner.plan(problem.tables), gate=given, return_lse=True
        )
        expected, of_rows = problem.expected()
        factors = sigmoid(given) if gate == "elementwise" else sigmoid(given)[..., None]
        assert_close(out, expected * factors, 1e-3)
        assert_close_lse(lse, of_rows)
        host = kernel.run(problem.q, (problem.k, problem.v), kernel.plan(problem.batch), gate=given)
        assert numerics is None or numpy.array_equal(out, host)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("tokens", [5000, 9000])
def test_a_row_has_its_bits_in_prompts_and_in_steps(gate, tokens):
    """Parts of 4,096 tokens are merged by another kernel in steps, and folded in memory in prompts."""
    spec = described(q_heads=4, gate=gate, numerics="row", kv=[attn.Packed()], dtype="float16")
    kernel = attn.compile(spec, device="host")
    tensors = attn.sample(spec, batch=1, q_len=40, kv_len=tokens)
    keys = tensors["kv.k"], tensors["kv.v"]
    prompt, lse = kernel.run(tensors["q"], keys, kernel.plan(tensors), gate=tensors["gate"], return_lse=True)
    for first in (0, 17, 39):
        step = {name: tensors[name] for name in ("kv.k", "kv.v", "kv.start", "kv.pos0")}
        step |= {"q": tensors["q"][first : first + 1], "q_start": [0, 1], "q_pos": [tokens - 40 + first]}
        step["kv.lengths"] = [tokens]
        plan = kernel.plan(step)
        row, of_row = kernel.run(
            step["q"], keys, plan, gate=tensors["gate"][first : first + 1], return_lse=True
        )
        assert numpy.array_equal(row[0], prompt[first]) and numpy.array_equal(of_row[0], lse[first])


@pytest.mark.parametrize("heads,offset", [(8, 0), (8, 64)])
def test_strides_of_a_fused_projection(heads, offset):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    fused = torch.randn(6, heads, 128, dtype=torch.bfloat16)
    q, gate = fused[..., offset : offset + 64].contiguous(), fused[..., 64 - offset : 128 - offset]
    assert not gate.is_contiguous()
    spec = described(q_heads=heads, gate="elementwise", kv=[attn.Packed()])
    kernel = attn.compile(spec, device="host")
    k, v = torch.randn(2, 50, 2, 64, dtype=torch.bfloat16)
    plan = kernel.plan(
        {"q": q, "kv.k": k, "kv.v": v, "kv.lengths": [50], "kv.start": [0, 50], "q_start": [0, 6]}
    )
    out = kernel.run(q, (k, v), plan, gate=gate)
    assert torch.equal(out, kernel.run(q, (k, v), plan, gate=gate.contiguous()))
    wanted, _ = attention(q[None], k[None], v[None], see=attn.causal())
    assert_close(out, wanted[0] * sigmoid(gate), 8e-3)


# --- attend --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headwise", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "uint16"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("rows", [1, 70])
def test_attend(headwise, dtype, layout, rows):
    q, k, v = qkv(rows=rows, value_dim=32, dtype=dtype)
    gate = normal(*q.shape[:3], *([] if headwise else [32]), dtype=dtype)
    wanted, wanted_lse = attention(q, k, v, see=attn.causal())
    wanted *= sigmoid(gate)[..., None] if headwise else sigmoid(gate)
    given = (
        (q, k, v, gate) if layout == "bshd" else [numpy.ascontiguousarray(swap(t)) for t in (q, k, v, gate)]
    )
    out, lse = attn.attend(*given[:3], gate=given[3], causal=True, layout=layout, return_lse=True)
    turned = (lambda t: t) if layout == "bshd" else swap
    assert_close(turned(out), wanted, TOLERANCE[dtype])
    assert_close_lse(turned(lse), wanted_lse)


@pytest.mark.parametrize("headwise", [False, True])
def test_attend_of_packed_sequences_and_forests(headwise):
    q, k, v = (t[0] for t in qkv(batch=1, rows=60, tokens=60))
    gate = normal(*q.shape[:2], *([] if headwise else [64]))
    factors = sigmoid(gate)[..., None] if headwise else sigmoid(gate)
    out = attn.attend(q, k, v, gate=gate, causal=True, cu_seqlens=[0, 25, 25, 60])
    for begin, end in ((0, 25), (25, 60)):
        wanted, _ = attention(*(t[None, begin:end] for t in (q, k, v)), see=attn.causal())
        assert_close(out[begin:end], wanted[0] * factors[begin:end], 1e-3)


@pytest.mark.parametrize("headwise", [False, True])
def test_repeated_calls_of_torch_read_the_gate_anew(headwise):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.bfloat16)
    sinks = torch.randn(4)
    for sink_logits in (None, sinks):
        plain = attn.attend(q, k, v, causal=True, sink_logits=sink_logits)
        for seed in range(4):
            torch.manual_seed(seed)
            gate = torch.randn(2, 9, 4, *([] if headwise else [64]), dtype=torch.bfloat16)
            factors = torch.sigmoid(gate.double())
            out = attn.attend(q, k, v, causal=True, gate=gate, sink_logits=sink_logits)
            wanted = attention(q, k, v, see=attn.causal(), sink_logits=sink_logits)[0]
            assert_close(out, wanted * (factors[..., None] if headwise else factors).numpy(), 8e-3)
            assert torch.equal(plain, attn.attend(q, k, v, causal=True, sink_logits=sink_logits))


def test_gates_that_kernels_cannot_read_are_copied():
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.float16)
    gate = torch.randn(2, 9, 4, 64, dtype=torch.float16)
    out = attn.attend(q, k, v, gate=gate)
    odd = torch.empty(gate.numel() + 1, dtype=torch.float16)[1:].view(gate.shape).copy_(gate)
    turned = gate.transpose(1, 2).contiguous().transpose(1, 2)
    halves = torch.stack([gate, gate], -1)[..., 0]
    fused = torch.cat([q, gate], -1)[..., 64:]
    for each in (odd, turned, halves, fused):
        assert torch.equal(out, attn.attend(q, k, v, gate=each))
    wide = gate[:, :1].expand(2, 9, 4, 64)
    assert torch.equal(attn.attend(q, k, v, gate=wide), attn.attend(q, k, v, gate=wide.contiguous()))
    of_heads = gate[..., 0]
    assert torch.equal(attn.attend(q, k, v, gate=of_heads), attn.attend(q, k, v, gate=of_heads.contiguous()))


def test_numerics_keep_the_bits_beside_other_rows():
    q, k, v = qkv(batch=1, rows=30, tokens=30)
    gate = normal(*q.shape)
    prompt = attn.attend(q, k, v, gate=gate, causal=True, numerics="row")
    for row in (0, 13, 29):
        one = attn.attend(
            *(numpy.ascontiguousarray(t) for t in (q[:, row : row + 1], k[:, : row + 1], v[:, : row + 1])),
            gate=numpy.ascontiguousarray(gate[:, row : row + 1]),
            causal=True,
            numerics="row",
        )
        assert numpy.array_equal(one[:, 0], prompt[:, row])


@pytest.mark.parametrize("headwise", [False, True])
@pytest.mark.parametrize("needs", ["all", "gate"])
def test_gradients(headwise, needs):
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 40, 4, 64, dtype=torch.float16)
    gate = torch.randn(2, 40, 4, *([] if headwise else [64]), dtype=torch.float16)
    d_out = torch.randn(2, 40, 4, 64, dtype=torch.float16)
    given = [t.clone().requires_grad_(needs == "all" or t is gate) for t in (q, k, v, gate)]
    out = attn.attend(*given[:3], gate=given[3], causal=True)
    out.backward(d_out)

    exact = [t.double().requires_grad_() for t in (q, k, v, gate)]
    factors = torch.sigmoid(exact[3])[..., None] if headwise else torch.sigmoid(exact[3])
    heads_first = [t.transpose(1, 2) for t in exact[:3]]
    plain = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
    (plain * factors).backward(d_out.double())
    assert_close(out, (plain * factors).detach().numpy(), 2e-3)
    for found, wanted in zip(given, exact, strict=True):
        if found.requires_grad:
            error = (found.grad.double() - wanted.grad).norm() / wanted.grad.norm()
            assert error < 3e-3
    with torch.no_grad():
        assert_close(attn.attend(q, k, v, gate=gate, causal=True), (plain * factors).detach().numpy(), 1e-3)


@pytest.mark.parametrize("headwise", [False, True])
def test_numerics_keep_the_bits_where_gradients_are_recorded(headwise):
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    q, k, v = torch.randn(3, 1, 70, 4, 64, dtype=torch.bfloat16)
    gate = torch.randn(1, 70, 4, *([] if headwise else [64]), dtype=torch.bfloat16)
    sinks, d_out = torch.randn(4), torch.randn(1, 70, 4, 64, dtype=torch.bfloat16)
    options = {"causal": True, "sink_logits": sinks, "return_lse": True}
    gradients = []
    for numerics in ("row", None):
        given = [t.clone().requires_grad_() for t in (q, k, v, gate)]
        out, lse = attn.attend(*given[:3], gate=given[3], numerics=numerics, ordered=True, **options)
        if numerics:
            wanted, same = attn.attend(q, k, v, gate=gate, numerics="row", **options)
            assert torch.equal(out, wanted) and torch.equal(lse, same)
        out.backward(d_out)
        gradients.append([t.grad.double() for t in given])
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() <= 5e-3 * other.norm()


@pytest.mark.parametrize("headwise", [False, True])
def test_compiled_code(headwise):
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.bfloat16)
    gate = torch.randn(2, 9, 4, *([] if headwise else [64]), dtype=torch.bfloat16)

    def call(q, k, v, gate, numerics=None):
        return attn.attend(q, k, v, causal=True, gate=gate, numerics=numerics)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert_close(compiled(q, k, v, gate), numbers(call(q, k, v, gate)), 8e-3)
    with pytest.raises(Exception, match="numerics: expected None beside gate in compiled code"):
        compiled(q, k, v, gate, "row")


def test_autocast():
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 9, 4, 64)
    gate = torch.randn(2, 9, 4, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attn.attend(q, k, v, gate=gate)
    assert torch.equal(out, attn.attend(*(t.bfloat16() for t in (q, k, v)), gate=gate.bfloat16()))


def test_transforms_of_a_gate_are_refused():
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 9, 4, 64, dtype=torch.float16)
    gate = torch.randn(2, 9, 4, dtype=torch.float16)

    def call(gate):
        return attn.attend(q, k, v, gate=gate)

    with pytest.raises(attn.TensorError, match="gate: attn does not support torch.func.vmap"):
        torch.func.vmap(call)(gate[None])
    with pytest.raises(attn.TensorError, match="gate: attn does not support torch.func.grad"):
        torch.func.grad(lambda gate: call(gate).sum())(gate)
    with pytest.raises(attn.TensorError, match="attn does not support torch.func.jvp"):
        torch.func.jvp(call, (gate,), (gate,))


def test_the_reference_takes_a_gate():
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 1, 5, 2, 16, dtype=torch.float64)
    gate = torch.randn(1, 5, 2, dtype=torch.float64)
    out, lse = attn.attend(q, k, v, gate=gate, reference=True, return_lse=True)
    plain, same = attn.attend(q, k, v, reference=True, return_lse=True)
    assert torch.allclose(out, plain * torch.sigmoid(gate)[..., None]) and torch.equal(lse, same)
