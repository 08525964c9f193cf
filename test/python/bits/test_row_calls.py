# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""numerics="row" where it is said: the same bits of a row in each of these calls. (test/grid/test_row_pairs.py compares
random batches.)"""

import attn
import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
import attn.dualkv  # noqa: E402
from attn.serving import DevicePlans, Layer, Plans  # noqa: E402

TOKENS, HEADS, KV_HEADS, DIM = 150, 4, 2, 64


@pytest.fixture(scope="module")
def qkv():
    torch.manual_seed(0)
    return [torch.randn(1, TOKENS, heads, DIM, dtype=torch.bfloat16) for heads in (HEADS, KV_HEADS, KV_HEADS)]


@pytest.fixture(scope="module")
def wanted(qkv):
    return attn.attend(*qkv, causal=True, numerics="row", return_lse=True)


def same(found, wanted):
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_forward_that_autograd_records(qkv, wanted):
    leaves = [tensor.clone().requires_grad_() for tensor in qkv]
    for _ in range(2):  # The second call is prepared.
        found = attn.attend(*leaves, causal=True, numerics="row", return_lse=True)
        assert same(found, wanted)
    found[0].sum().backward()
    gradients = [leaf.grad.clone() for leaf in leaves]
    again = [tensor.clone().requires_grad_() for tensor in qkv]
    attn.attend(*again, causal=True, numerics="row").sum().backward()
    assert same([leaf.grad for leaf in again], gradients)


def test_compiled_code(qkv, wanted):
    call = torch.compile(
        lambda *each: attn.attend(*each, causal=True, numerics="row", return_lse=True), backend="eager"
    )
    assert same(call(*qkv), wanted)


def test_other_calls_keep_their_bits(qkv, wanted):
    """Prepared launches of calls without it are not taken for calls with it."""
    plain = attn.attend(*qkv, causal=True, return_lse=True)
    assert same(attn.attend(*qkv, causal=True, numerics="row", return_lse=True), wanted)
    assert same(attn.attend(*qkv, causal=True, return_lse=True), plain)


def test_kernels_of_gradients_are_ordered(qkv):
    sizes = dict(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="bfloat16", see=attn.causal())
    kernel = attn.compile(attn.Spec(**sizes, kv=[attn.Dense()], numerics="row"), device="host")
    assert kernel.numerics == "row"
    found = kernel._backward((), {"q_pos": numpy.arange(5000)})
    assert found._request.asks.ordered is True


def test_branches_of_a_forest_do_not_matter(qkv):
    q, k, v = (tensor[0] for tensor in qkv)
    whole = attn.attend(
        q, k, v, forest=attn.Forest([0, 70, 100, 150], [-1, 0, 0]), causal=True, numerics="row"
    )
    few = [torch.cat([x[:70], x[100:]]) for x in (q, k, v)]
    part = attn.attend(*few, forest=attn.Forest([0, 70, 120], [-1, 0]), causal=True, numerics="row")
    assert torch.equal(part, torch.cat([whole[:70], whole[100:]]))


def test_responses_of_dualkv_do_not_matter(qkv):
    q, k, v = (tensor[0] for tensor in qkv)

    def run(rows, starts):
        longest = int(numpy.diff(starts).max())
        return attn.dualkv.flash_attn_dualkv_varlen_func(
            *(q[rows], k[:60], v[:60], k[rows], v[rows]),
            *(torch.tensor(starts, dtype=torch.int32), torch.tensor(starts, dtype=torch.int32)),
            *(longest, 60, longest),
            causal=True,
            numerics="row",
        )

    whole = run(numpy.arange(60, 150), [0, 30, 90])
    assert torch.equal(whole[:30], run(numpy.arange(60, 90), [0, 30]))
    assert torch.equal(whole[30:], run(numpy.arange(90, 150), [0, 60]))


def test_an_engine_in_its_own_pages(qkv, wanted):
    """Plans of the host and of the device, a chunk beside decoding."""
    _, k, v = (tensor[0] for tensor in qkv)
    pages = [torch.zeros(12, 16, KV_HEADS, DIM, dtype=torch.bfloat16) for _ in range(2)]
    order = torch.tensor([7, 3, 11, 0, 5, 1, 9, 2, 8, 4])
    for pool, tokens in zip(pages, (k, v), strict=True):
        padded = torch.cat([tokens, tokens.new_zeros(10, KV_HEADS, DIM)]).view(10, 16, KV_HEADS, DIM)
        pool[order] = padded
    starts, lengths, table = [0, 40, 41], [120, 150], torch.stack([order, order]).int()
    q = torch.cat([qkv[0][0, 80:120], qkv[0][0, 149:]])
    found = torch.cat([wanted[0][0, 80:120], wanted[0][0, 149:]])
    for device_plan, plans in ((False, Plans()), (True, DevicePlans(2, 10, "cpu"))):
        sizes = dict(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=torch.bfloat16, page_size=16)
        layer = Layer(**sizes, device_plan=device_plan, numerics="row")
        step = plans.step(starts, lengths, table)
        assert torch.equal(step.run(layer.compile("cpu"), q, pages), found), device_plan


def test_wrong_ones_are_refused(qkv):
    for call in (
        lambda: attn.attend(*qkv, causal=True, numerics="rows"),
        lambda: Layer(q_heads=1, kv_heads=1, head_dim=64, dtype="float16", page_size=16, numerics="batch"),
    ):
        with pytest.raises(attn.SpecError, match="numerics: expected 'row'"):
            call()


def test_layers_of_both_kinds_share_a_mask():
    """Calls that a mask remembers are of one kind of numerics."""
    pytest.importorskip("transformers")
    from attn.adapters.transformers_mask import make_mask
    from attn.transformers import attention_forward, row_attention_forward

    layer = torch.nn.Module()
    layer.is_causal, layer.layer_idx = True, 0
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, rows, DIM, generator=generator).bfloat16()
        for heads, rows in ((HEADS, 3), (KV_HEADS, 2500), (KV_HEADS, 2500))
    )
    sinks = torch.randn(HEADS, generator=generator)
    mask, other = (make_mask(1, 3, 2500, q_offset=2497) for _ in range(2))
    with torch.no_grad():
        default = attention_forward(layer, q, k, v, mask, s_aux=sinks)[0]
        by_row = row_attention_forward(layer, q, k, v, mask, s_aux=sinks)[0]
        wanted = row_attention_forward(layer, q, k, v, other, s_aux=sinks)[0]
    assert torch.equal(by_row, wanted) and not torch.equal(by_row, default)


def test_soft_caps(qkv):
    """Large scores of other rows and of tokens that a row does not see change none of its bits."""
    q, k, v = qkv
    options = dict(causal=True, softcap=20.0, numerics="row", return_lse=True)
    wanted = attn.attend(q, k, v, **options)
    rows, tokens = q.clone(), k.clone()
    rows[:, 40] *= 30
    tokens[:, 90] *= 30
    others = torch.arange(TOKENS) != 40
    assert same([x[:, others] for x in attn.attend(rows, k, v, **options)], [x[:, others] for x in wanted])
    assert same([x[:, :90] for x in attn.attend(q, tokens, v, **options)], [x[:, :90] for x in wanted])
    some = attn.attend(rows[:, 60:], k, v, see=attn.causal(), **options | {"causal": False})
    assert same(some, [x[:, 60:] for x in wanted])
