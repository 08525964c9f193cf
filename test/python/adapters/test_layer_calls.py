# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A layer whose tensors look like those of the step before is attended without a new inspection; any other layer is
inspected."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn.transformers  # noqa: E402
from attn.adapters import head_gates, layer_calls, transformers_mask  # noqa: E402
from attn.adapters.rows import spans  # noqa: E402
from attn.adapters.rows.padded_calls import PaddedCall  # noqa: E402

TOKENS = 20


@pytest.fixture(autouse=True)
def nothing_is_recorded():
    before = attn.transformers.set_fallback(False)
    layer_calls._local.__dict__.clear()
    with torch.no_grad():
        yield
    attn.transformers.set_fallback(before)


@pytest.fixture
def looks(monkeypatch):
    """Return a list that gets one entry for each inspection of a layer."""
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


@pytest.fixture(params=["guards", "attributes"], autouse=True)
def how_tensors_are_compared(request, monkeypatch):
    if request.param == "attributes":
        monkeypatch.setattr(layer_calls, "TensorGuards", None)


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
    """A layer that differs is inspected, and the layers after it that are as before give right results."""
    mask, given = mask_of(), tensors(1)
    attend(mask, given)
    other, options = change(*given)
    close(attend(mask, other, **options), other, scale=options.get("scaling"))
    assert len(looks) == 2
    close(attend(mask, given), given)


def test_gates_and_sinks_are_of_a_layer(looks):
    """A layer with gates or sinks is not taken for the plain layer before it, nor the plain layer after it for one of
    those."""
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
    """Tensors stay bound from step to step until their layout in memory changes."""
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
    for tokens in (46, 47):  # keys and values of the second look as bound; its queries do not
        q, k, v = tensors(tokens, 1, tokens, (6, 3))
        q = q if tokens == 46 else torch.randn(3, 1, 12, 32).bfloat16()[:, :, 3:9].transpose(1, 2)
        given = q, k, v
        close(attend(mask_of(1, tokens), given), given)
    assert len(bound) == 4


@pytest.fixture
def grown(monkeypatch):
    """Return a list that gets the number of tokens of each growth of a plan."""
    seen, grow = [], attn.run.plan.Plan._grow

    def counted(self, tokens, *args):
        seen.append(tokens)
        return grow(self, tokens, *args)

    monkeypatch.setattr(attn.run.plan.Plan, "_grow", counted)
    return seen


@pytest.mark.parametrize("rows", [1, 7])
def test_steps_alike(rows, looks, grown):
    """A step's first layer is recognized from the step before, whether its plan is extended or made anew."""
    for step, tokens in enumerate((40, 41, 44, 44, 3000)):
        mask = mask_of(rows, tokens)
        for layer in range(2):
            given = tensors(2 * step + layer, rows, tokens, (6, 3))
            close(attend(mask, given), given)
    # With one row, the plan grows one token ahead after the second step.
    assert len(looks) == 1 and grown == ([1, 1, 2, 2956] if rows == 1 else [1, 3, 2956])


def test_a_step_is_planned_behind_the_one_before(looks, grown):
    """After the last layer of a step the next step is planned, as the first steps show. Results are right also where
    the next step is a different one."""

    def step(tokens, layers=3, rows=1):
        mask = mask_of(rows, tokens)
        for layer in range(layers):
            given = tensors(9 * tokens + layer, rows, tokens, (6, 3))
            close(attend(mask, given), given)
        return mask, given

    step(40)
    step(41)
    assert grown == [1, 1]  # by the first layer of the second step, and after its last layer
    step(42)
    assert grown == [1, 1, 1] and len(looks) == 1
    mask, given = step(43, 2)  # one layer fewer
    assert grown == [1, 1, 1]
    step(44, 4)  # more layers: the plan has grown after the second layer
    assert grown == [1, 1, 1, 1, 1]
    before = len(looks)
    close(attend(mask, given), given)
    assert len(looks) == before + 1
    for tokens in (45, 46, 60, 61, 30, 31, 32, 33):
        mask, given = step(tokens)
    close(attend(mask, given), given)  # one layer more than before
    step(33)
    step(34, rows=2)
    step(35)
    step(36)


def test_a_step_that_cannot_be_planned_ahead(monkeypatch):
    grow = attn.run.plan.Plan._grow

    def failing(*_):
        raise attn.errors.PlanError("no room")

    for step, tokens in enumerate(range(40, 46)):
        mask = mask_of(1, tokens)
        for layer in range(2):
            if step == 2 and layer == 1:
                monkeypatch.setattr(attn.run.plan.Plan, "_grow", failing)
            given = tensors(2 * step + layer, 1, tokens, (6, 3))
            close(attend(mask, given), given)
        monkeypatch.setattr(attn.run.plan.Plan, "_grow", grow)


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Named.Config()

    class Config:
        def __eq__(self, other):
            return True  # the configuration of another model compares equal

        __hash__ = object.__hash__


@pytest.mark.parametrize(
    "change",
    [
        lambda given: (1, given, {"module": Named()}),  # a layer of another model
        lambda given: (1, given, {"scaling": 0.5}),
        lambda given: (1, tensors(1, 1, 21, (8, 2)), {}),
        lambda given: (1, tensors(1, 1, 21, (4, 4)), {}),
        lambda given: (1, tensors(1, 1, 21, dtype=torch.float16), {}),
        lambda given: (2, tensors(1, 2, 21), {}),
        lambda given: (
            1,
            (given[0], *(k.transpose(1, 2).contiguous().transpose(1, 2) for k in given[1:])),
            {},
        ),
        lambda given: (1, (given[0], given[1], torch.randn(3, 2, 30, 32).bfloat16()[:, :, 9:]), {}),
        lambda given: (1, (given[0][:, :, :, :16], *(k[..., :16].contiguous() for k in given[1:])), {}),
    ],
)
def test_a_step_that_differs(change, looks, grown):
    """A step that differs is inspected, and so is the step after it that is like the first, where both share one plan."""
    model = Named()
    attend(mask_of(), tensors(1), model)
    rows, given, options = change(tensors(2, 1, TOKENS + 1))
    found = attend(mask_of(rows, TOKENS + 1), given, **{"module": model} | options)
    close(found, given, scale=options.get("scaling"))
    assert len(looks) == 2 and not grown
    given = tensors(3, 1, TOKENS + 2)
    close(attend(mask_of(1, TOKENS + 2), given, model), given)


def test_a_step_that_has_gates_or_sinks_is_looked_into(looks, grown):
    attend(mask_of(), tensors(1))
    given, gated = tensors(2, 1, TOKENS + 1), torch.nn.Module()
    gated.__dict__["attn_head_gates"] = head_gates.LayerGates((0, 1), 1, 2)
    for options in ({"module": gated}, {"s_aux": torch.full((4,), 3.0)}):
        attend(mask_of(1, TOKENS + 1), given, **options)
    assert len(looks) == 3 and not grown


def test_a_shorter_step_is_planned_anew(looks, grown):
    """A shorter prompt of the same model gets a new plan."""
    for tokens in (40, 30, 31):
        given = tensors(tokens, 1, tokens)
        close(attend(mask_of(1, tokens), given), given)
    assert len(looks) == 2 and grown == [1]


def test_a_call_of_the_step_before_is_not_run():
    """A call of the step before, whose plan has grown, gets another plan for its mask's layers."""
    before, given = mask_of(), tensors(1)
    close(attend(before, given), given)
    later, more = mask_of(1, TOKENS + 1), tensors(2, 1, TOKENS + 1)
    close(attend(later, more), more)
    close(attend(before, given), given)
    close(attend(later, more), more)


def test_a_plan_that_could_not_grow_is_made_anew(monkeypatch):
    given = tensors(1)
    close(attend(mask_of(), given), given)
    given = tensors(2, 1, TOKENS + 1)
    with monkeypatch.context() as broken:
        broken.setattr(attn.run.plan.Plan, "_grow", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            attend(mask_of(1, TOKENS + 1), given)
    for tokens in (TOKENS + 1, TOKENS + 2):
        given = tensors(3, 1, tokens)
        close(attend(mask_of(1, tokens), given), given)


def test_a_mask_that_hides_nothing_says_what_it_shows_when_asked():
    mask = mask_of(3, TOKENS)
    assert mask._spans is None and mask.spans.tolist() == [[0, TOKENS, 0, TOKENS - 3]] * 3
    assert torch.equal(mask.dense()[0, 0] == 0, torch.ones(3, TOKENS).tril(TOKENS - 3) > 0)


def test_a_plan_that_went_on_is_not_run():
    """A mask's last call is not repeated where another mask has moved their shared plan to its own batch."""
    mask, given = mask_of(), tensors(1)
    close(attend(mask, given), given)
    shown = torch.ones(3, TOKENS, dtype=torch.bool)
    shown[:, :5] = False
    padded = transformers_mask.make_mask(3, 1, TOKENS, TOKENS - 1, 0, attention_mask=shown)
    shorter = given[0], *(tensor[:, :, 5:] for tensor in given[1:])
    close(attend(padded, given), shorter)
    close(attend(mask, given), given)


def test_what_lies_behind_the_last_row_is_not_seen():
    """Rows do not see memory after the last token of a cache with spare capacity, whatever that memory holds."""
    q, k, v = tensors(1)
    room = [torch.cat([tensor, torch.full((3, 2, 4, 32), 50.0).bfloat16()], 2) for tensor in (k, v)]
    mask = transformers_mask.make_mask(3, 1, TOKENS + 4, TOKENS - 1, 0)
    close(attend(mask, (q, *room)), (q, k, v))


@pytest.mark.parametrize("rows", [1, 4])
def test_tables_of_all(rows):
    """tables_of_all gives the instances that spans without hidden tokens give, except for a first instance that no row
    sees."""
    seen = spans.make_spans(None, 9 - rows, 0, 2, rows, 12, True)
    said = spans.tables(seen, None, attn.causal(), 2, 3, rows, 12)
    found = spans.tables_of_all(6, rows, 12, 9)
    assert found["q_start"].tolist() == said["q_start"].tolist()
    assert found["q_pos"].tolist() == said["q_pos"].tolist()
    assert found["kv.start"].tolist() == said["kv.start"][1:].tolist()
    assert found["kv.lengths"].tolist() == said["kv.lengths"][1:].tolist() == [9] * 6
    assert not said["kv.pos0"].any() and said["kv.rows"][1:].tolist() == [
        [rows * i, rows * i + rows] for i in range(6)
    ]
