# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of a step that look like the one before are attended to without being looked into again; those that do not, are not."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn.transformers  # noqa: E402
from attn.adapters import head_gates, spans, transformers_mask  # noqa: E402
from attn.adapters.padded_calls import PaddedCall  # noqa: E402

TOKENS = 20


@pytest.fixture(autouse=True)
def nothing_is_recorded():
    before = attn.transformers.set_fallback(False)
    with torch.no_grad():
        yield
    attn.transformers.set_fallback(before)


@pytest.fixture
def looks(monkeypatch):
    """How often a layer was looked into."""
    seen, look = [], attn.transformers.signature_of

    def counted(*args):
        seen.append(args)
        return look(*args)

    monkeypatch.setattr(attn.transformers, "signature_of", counted)
    return seen


def mask_of(rows=1, tokens=TOKENS):
    return transformers_mask.make_mask(3, rows, tokens, tokens - rows, 0)


def tensors(seed, rows=1, tokens=TOKENS, heads=(4, 2), dtype=torch.bfloat16):
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(3, rows, heads[0], 32, generator=random).to(dtype).transpose(1, 2)
    return q, *(torch.randn(3, heads[1], tokens, 32, generator=random).to(dtype) for _ in range(2))


def attend(mask, given, module=None, **options):
    module = module or torch.nn.Module()
    return attn.transformers.attention_forward(module, *given, mask, **options)[0]


def exact(given, scale=None):
    q, k, v = (tensor.float() for tensor in given)
    rows = torch.arange(k.shape[2] - q.shape[2], k.shape[2])
    seen = torch.arange(k.shape[2]) <= rows[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True, scale=scale)
    return out.transpose(1, 2)


def close(found, given, **options):
    torch.testing.assert_close(found.float(), exact(given, **options), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("rows", [1, 7])
def test_layers_alike(rows, looks):
    mask = mask_of(rows)
    for seed in range(4):
        given = tensors(seed, rows)
        close(attend(mask, given), given)
    assert len(looks) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: ((q, k.transpose(1, 2).contiguous().transpose(1, 2), v), {}),  # other strides
        lambda q, k, v: ((q[:, :2], k, v), {}),
        lambda q, k, v: ((q.half(), k.half(), v.half()), {}),
        lambda q, k, v: ((q, k, v[..., :16].contiguous()), {}),
        lambda q, k, v: ((q, k, v), {"scaling": 0.5}),
    ],
)
def test_layers_that_differ(change, looks):
    """And those behind them that are as before."""
    mask, given = mask_of(), tensors(1)
    attend(mask, given)
    other, options = change(*given)
    close(attend(mask, other, **options), other, scale=options.get("scaling"))
    assert len(looks) == 2
    close(attend(mask, given), given)


def test_gates_and_sinks_are_of_a_layer(looks):
    """Neither is taken for the layer before, nor the layer behind it for one that has them."""
    mask, given, gated = mask_of(), tensors(1), torch.nn.Module()
    gated.__dict__["attn_head_gates"] = head_gates.LayerGates((0, 1), 1, 2)
    sinks = {"s_aux": torch.full((4,), 3.0)}
    for options in ({"module": gated}, sinks):
        first = attend(mask, given, **options)
        plain = attend(mask, given)
        assert not torch.equal(first, plain) and torch.equal(first, attend(mask, given, **options))
        close(plain, given)
    assert len(looks) == 5


def test_gradients_and_autocast_are_asked_for(looks):
    mask, given = mask_of(), tensors(1)
    attend(mask, given)
    with torch.autocast("cpu", torch.float16):
        assert attend(mask, given).dtype == torch.float16
    with torch.enable_grad():
        given = [tensor.requires_grad_() for tensor in given]
        assert attend(mask, given).requires_grad


def test_a_step_later_only_tokens_are_more(monkeypatch):
    """What is known of tensors is kept, until they lie otherwise."""
    bound, bind = [], PaddedCall._bind
    monkeypatch.setattr(PaddedCall, "_bind", lambda self, *args: (bound.append(1), bind(self, *args))[1])
    for tokens in range(40, 45):
        given = tensors(tokens, 1, tokens, (6, 3))
        close(attend(mask_of(1, tokens), given), given)
    assert len(bound) == 1
    q, k, v = tensors(0, 1, 45, (6, 3))
    given = q, k, torch.randn(3, 3, 50, 32).bfloat16()[:, :, 5:]
    close(attend(mask_of(1, 45), given), given)
    assert len(bound) == 2
    for tokens in (46, 47):  # the second is bound like the first, as far as keys and values say
        q, k, v = tensors(tokens, 1, tokens, (6, 3))
        q = q if tokens == 46 else torch.randn(3, 1, 12, 32).bfloat16()[:, :, 3:9].transpose(1, 2)
        given = q, k, v
        close(attend(mask_of(1, tokens), given), given)
    assert len(bound) == 4


def test_a_plan_that_went_on_is_not_run():
    """A mask's last call, where another mask has brought the plan that they share to a batch of its own."""
    mask, given = mask_of(), tensors(1)
    close(attend(mask, given), given)
    shown = torch.ones(3, TOKENS, dtype=torch.bool)
    shown[:, :5] = False
    padded = transformers_mask.make_mask(3, 1, TOKENS, TOKENS - 1, 0, attention_mask=shown)
    shorter = given[0], *(tensor[:, :, 5:] for tensor in given[1:])
    close(attend(padded, given), shorter)
    close(attend(mask, given), given)


def test_what_lies_behind_the_last_row_is_not_seen():
    """In a cache that has room for more, and holds what it held before."""
    q, k, v = tensors(1)
    room = [torch.cat([tensor, torch.full((3, 2, 4, 32), 50.0).bfloat16()], 2) for tensor in (k, v)]
    mask = transformers_mask.make_mask(3, 1, TOKENS + 4, TOKENS - 1, 0)
    close(attend(mask, (q, *room)), (q, k, v))


@pytest.mark.parametrize("rows", [1, 4])
def test_tables_of_all(rows):
    """The same instances as those of spans that hide nothing say, but for one in front of them that no row sees."""
    seen = spans.make_spans(None, 9 - rows, 0, 2, rows, 12, True)
    said = spans.tables(seen, None, True, 0, 2, 3, rows, 12)
    found = spans.tables_of_all(6, rows, 12, 9)
    assert found["q_start"].tolist() == said["q_start"].tolist()
    assert found["q_pos"].tolist() == said["q_pos"].tolist()
    assert found["kv.start"].tolist() == said["kv.start"][1:].tolist()
    assert found["kv.lengths"].tolist() == said["kv.lengths"][1:].tolist() == [9] * 6
    assert not said["kv.pos0"].any() and said["kv.rows"][1:].tolist() == [
        [rows * i, rows * i + rows] for i in range(6)
    ]
