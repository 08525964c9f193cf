# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of Transformers' models: attn's masks mean the same, and none can be misused."""

import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.adapters.transformers_fallback  # noqa: E402
import attn.transformers  # noqa: E402
from attn.adapters.span_mask import SpanMask  # noqa: E402
from attn.adapters.transformers_mask import make_mask  # noqa: E402
from attn.run.kernel import Kernel  # noqa: E402
from transformers import masking_utils as masking  # noqa: E402

BATCH, HEADS, DIM = 2, 4, 32


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(attn.adapters.transformers_fallback, "_warned", set())
    with torch.no_grad():
        yield


@pytest.fixture
def refuses():
    assert attn.transformers.set_fallback(False) is True
    yield
    attn.transformers.set_fallback(True)


def padding(*counts, tokens, behind=0):
    mask = torch.ones(len(counts), tokens, dtype=torch.bool)
    for i, count in enumerate(counts):
        mask[i, :count] = False
        mask[i, tokens - behind * i :] = False
    return mask


def packed(*lengths):
    return masking.packed_sequence_mask_function(
        torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).expand(BATCH, -1)
    )


def blocks(*ids):
    return masking.blockwise_overlay(torch.tensor(ids).expand(BATCH, -1))


def gemma_both_ways(size):
    """Return a mask function as Gemma3's encoders define it, which Transformers' own do not include."""
    return lambda b, h, q, k: (
        ((q - k >= 0) & (q - k < (size + 1) // 2)) | ((q - k < 0) & (k - q < size // 2 + 1))
    )


causal, whole = masking.causal_mask_function, masking.bidirectional_mask_function
holed = padding(0, 3, tokens=40)
holed[0, 12:17], holed[1, 30] = False, False
IMAGE = [-1] * 4 + [0] * 9 + [-1] * 3 + [1] * 12 + [-1] * 12
# Mask functions with options that a model adds; all have 40 tokens.
MASKS = {
    "causal": (causal, {}),
    "causal, padded": (causal, {"attention_mask": padding(0, 11, tokens=40)}),
    "causal, padded on the right": (causal, {"attention_mask": padding(0, 3, tokens=40, behind=9)}),
    "causal, holes": (causal, {"attention_mask": holed}),
    "window": (masking.sliding_window_causal_mask_function(7), {"attention_mask": padding(5, 0, tokens=40)}),
    "window, holes": (masking.sliding_window_causal_mask_function(7), {"attention_mask": holed}),
    "whole": (whole, {"attention_mask": padding(5, 0, tokens=40)}),
    "whole, holes": (whole, {"attention_mask": holed}),
    "both ways": (masking.sliding_window_bidirectional_mask_function(6), {}),
    "both ways, padded": (
        masking.sliding_window_bidirectional_mask_function(6),
        {"attention_mask": padding(0, 9, tokens=40)},
    ),
    "both ways, holes": (masking.sliding_window_bidirectional_mask_function(6), {"attention_mask": holed}),
    "chunks": (masking.chunked_causal_mask_function(8, torch.tensor([0, 0])), {}),
    "chunks, padded": (
        masking.chunked_causal_mask_function(8, torch.tensor([3, 11])),
        {"attention_mask": padding(3, 11, tokens=40)},
    ),
    "packed": (masking.and_masks(causal, packed(9, 1, 20, 10)), {}),
    "packed, window": (
        masking.and_masks(masking.sliding_window_causal_mask_function(6), packed(9, 1, 20, 10)),
        {},
    ),
    "packed, chunks": (
        masking.and_masks(masking.chunked_causal_mask_function(8, torch.tensor([0, 0])), packed(30, 10)),
        {},
    ),
    "images": (masking.or_masks(causal, blocks(*IMAGE)), {"attention_mask": padding(0, 2, tokens=40)}),
    "images, wide window": (
        masking.or_masks(masking.sliding_window_causal_mask_function(33), blocks(*IMAGE)),
        {},
    ),
    "a prefix": (masking.or_masks(causal, lambda b, h, q, k: k < 13), {}),
    "its own window": (masking.and_masks(whole, gemma_both_ways(9)), {}),
}
# Masks of rows over a cache.
STEPS = {
    "decoding": (causal, {"q_offset": 39, "q_length": 1, "attention_mask": padding(0, 11, tokens=40)}),
    "a chunk": (causal, {"q_offset": 25, "q_length": 15}),
    "a static cache": (causal, {"q_offset": 12, "q_length": 3, "attention_mask": padding(0, 4, tokens=15)}),
    "a sliding cache": (
        masking.sliding_window_causal_mask_function(16),
        {"q_offset": 60, "q_length": 2, "kv_offset": 22, "attention_mask": padding(0, 30, tokens=62)},
    ),
    "a chunked cache": (
        masking.chunked_causal_mask_function(8, torch.tensor([0, 3])),
        {"q_offset": 58, "q_length": 4, "kv_offset": 22, "attention_mask": padding(0, 3, tokens=62)},
    ),
}
ALL = MASKS | STEPS
# Scattered tokens, and a window that cuts images.
UNSERVED = {
    "scattered": (lambda b, h, q, k: (q + k) % 3 != 1, {}),
    "images, window": (masking.or_masks(masking.sliding_window_causal_mask_function(5), blocks(*IMAGE)), {}),
}


def ask(maker, function, options, **more):
    sizes = {"batch_size": BATCH, "q_length": 40, "kv_length": 40, "mask_function": function}
    return maker(**(sizes | options | more))


def both(name):
    """Return attn's mask, and Transformers' mask, bool."""
    function, options = (ALL | UNSERVED)[name]
    ours = ask(make_mask, function, options, dtype=torch.float16)
    return ours, ask(masking.sdpa_mask, function, options, allow_is_causal_skip=False)


def attend(mask, **options):
    random = torch.Generator().manual_seed(3)
    rows, tokens = mask.shape[2:]
    q, k, v = (
        torch.randn(BATCH, heads, length, DIM, generator=random).half()
        for heads, length in ((HEADS, rows), (HEADS // 2, tokens), (HEADS // 2, tokens))
    )
    out, _ = attn.transformers.attention_forward(torch.nn.Module(), q, k, v, mask, **options)
    return out, (q.float(), k.float().repeat_interleave(2, 1), v.float().repeat_interleave(2, 1))


@pytest.mark.parametrize("name", ALL)
def test_masks_mean_what_they_mean(name):
    ours, real = both(name)
    assert type(ours) is SpanMask and ours.shape == (*real.shape,)
    hidden = torch.finfo(torch.float16).min
    assert torch.equal(ours.dense(), torch.where(real, 0.0, hidden).half())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, (q, k, v) = attend(ours)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, real).transpose(1, 2)
    sees = real.any(3)[:, 0]
    assert (out - exact)[sees].abs().max() < 3e-3
    changed = real.clone()
    changed[sees[:, None, :, None] & (real.cumsum(3) == 1)] = False  # the first key of each row
    other = torch.nn.functional.scaled_dot_product_attention(q, k, v, changed).transpose(1, 2)
    assert (out - other)[sees].nan_to_num(1).abs().max() > 3e-2


@pytest.mark.parametrize("name", UNSERVED)
def test_other_masks_fall_back(name):
    with pytest.warns(attn.transformers.FallbackWarning, match="a mask that is not described"):
        ours, real = both(name)
    assert type(ours) is torch.Tensor and torch.equal(ours == 0, real)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out, (q, k, v) = attend(ours)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, real).transpose(1, 2)
    assert (out - exact).abs().max() < 3e-3


@pytest.mark.parametrize("name", UNSERVED)
def test_other_masks_are_refused(name, refuses):
    with pytest.raises(attn.TensorError, match="a mask that is not described .*set_fallback"):
        both(name)


def test_a_mask_is_the_real_one_for_all_else():
    mask, real = both("window")
    scores = torch.zeros(BATCH, HEADS, 40, 40, dtype=torch.float16)
    with pytest.warns(attn.transformers.FallbackWarning, match="computes with its mask .aten.add") as caught:
        assert torch.equal((scores + mask) == 0, real.expand_as(scores))
        assert torch.equal(
            (scores + mask[:, :, 3:7, :5].sum()) == 0, torch.zeros_like(scores, dtype=torch.bool)
        )
    assert len(caught) == 1
    assert mask.to(torch.float16) is mask and type(mask[:, :, :, :40]) is SpanMask
    assert type(mask.detach()) is SpanMask and type(mask.to("cpu")) is SpanMask


def test_a_mask_that_is_misused_is_refused(refuses):
    mask, _ = both("window")
    with pytest.raises(attn.TensorError, match="attn.transformers.set_fallback"):
        torch.zeros(BATCH, HEADS, 40, 40, dtype=torch.float16) + mask


@pytest.mark.parametrize(
    "change,cause",
    [
        ({"dropout": 0.1}, "dropout of 0.1"),
        ({"scaling": -1.0}, "scale: expected a positive, finite number"),
        ({"dim": 40 - 3}, "head_dim: expected"),
        ({"dtype": torch.float32}, "tensors of float32"),
        ({"mask": torch.zeros(BATCH, 1, 6, 6).half()}, "a mask with a value for each row and token"),
        ({"grad": True}, "a backward pass of heads of 32 and 32 features"),
    ],
)
def test_what_layers_ask_for_besides(change, cause, monkeypatch):
    """The fallback names its cause, and the result is PyTorch's. Heads of 256 have no gradients on a chip of less
    shared memory."""
    monkeypatch.setattr(Kernel, "_backward", lambda *given: "no schedule of a backward pass")
    given = {"mask": None, "dim": 32, "dtype": torch.float16, "grad": False, **change}
    q, k, v = (torch.randn(BATCH, HEADS, 6, given["dim"]).to(given["dtype"]) for _ in range(3))
    options = {name: given[name] for name in ("dropout", "scaling") if name in given}
    with torch.set_grad_enabled(given["grad"]):
        q.requires_grad_(given["grad"])
        with pytest.warns(attn.transformers.FallbackWarning, match=f"attn: Module: {cause}"):
            out, _ = attn.transformers.attention_forward(
                torch.nn.Module(), q, k, v, given["mask"], is_causal=False, **options
            )
        assert out.requires_grad == given["grad"]
    attn.transformers.set_fallback(False)
    try:
        with torch.enable_grad(), pytest.raises(attn.TensorError, match=cause):
            attn.transformers.attention_forward(torch.nn.Module(), q, k, v, given["mask"], **options)
    finally:
        attn.transformers.set_fallback(True)
    if "dropout" not in given:
        exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=given.get("scaling"))
        assert (out - exact.transpose(1, 2)).abs().max() < 3e-3


def test_soft_caps_and_sinks_fall_back_whole():
    """SDPA has neither soft caps nor sinks: to drop them would be a wrong result."""
    mask, _ = both("window")
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    served, _ = attend(mask, softcap=5.0, s_aux=sinks)
    with pytest.warns(attn.transformers.FallbackWarning):
        fallen, _ = attend(mask.dense(), softcap=5.0, s_aux=sinks)
    shown = both("window")[1].any(3)[:, 0]
    assert (served - fallen)[shown].abs().max() < 3e-3


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_outputs_are_contiguous(kv_heads):
    """Outputs are contiguous, since JetMoE and others view them."""
    q, k = torch.randn(2, 4, 9, DIM).half(), torch.randn(2, kv_heads, 9, DIM).half()
    out, _ = attn.transformers.attention_forward(torch.nn.Module(), q, k, k, None, is_causal=True)
    assert out.shape == (2, 9, 4, DIM) and out.is_contiguous()


def test_lists_of_tokens_are_refused():
    with pytest.raises(attn.TensorError, match="indices: attn takes no list of tokens for each row"):
        attend(both("causal")[0], indices=torch.zeros(1))


def test_models_with_attention_of_their_own():
    kinds = transformers.BloomConfig, transformers.BloomForCausalLM
    sizes = {"hidden_size": 64, "n_head": 2, "n_layer": 1, "vocab_size": 50}

    def build(implementation):
        torch.manual_seed(0)
        return kinds[1](kinds[0](**sizes, attn_implementation=implementation)).eval()

    with pytest.warns(attn.transformers.FallbackWarning, match="BloomForCausalLM: has attention of"):
        model = build("attn")
    assert model.config._attn_implementation == "eager"
    ids = torch.tensor([[3, 5, 7]])
    assert torch.equal(model(ids).logits, build("eager")(ids).logits)


@pytest.mark.parametrize("given", ["position_bias", "sinks"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_bias_and_sinks_of_rows_run_in_pytorch(given, masked):
    """A bias or sinks of rows, which T5 and others of Transformers 5.24 pass to attention, run in PyTorch: ignored,
    they would give silently wrong results."""
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 32, generator=random).to(torch.bfloat16) for _ in range(3))
    beside = {given: 4 * torch.randn(2, 3, 7, 7 if given == "position_bias" else 1, generator=random)}
    beside[given] = beside[given].to(torch.bfloat16)
    layer = torch.nn.Module()
    mask = make_mask(2, 7, 7, attention_mask=torch.arange(7) >= torch.tensor([[0], [3]])) if masked else None
    with pytest.warns(attn.transformers.FallbackWarning, match=given):
        found, _ = attn.transformers.attention_forward(layer, q, k, v, mask, is_causal=True, **beside)
    seen = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, 1, 7, 7)
    if masked:
        seen = seen & (torch.arange(7) >= torch.tensor([0, 3])[:, None, None, None])
    scores = (q.float() @ k.float().mT) / 32**0.5
    if given == "position_bias":
        scores = scores + beside[given].float()
    scores = scores.masked_fill(~seen, -torch.inf)
    if given == "sinks":
        scores = torch.cat([scores, beside[given].float()], -1)
    right = scores.softmax(-1).nan_to_num(0)[..., :7] @ v.float()
    rows = seen.any(-1)[..., None].expand_as(right)
    torch.testing.assert_close(found.transpose(1, 2).float()[rows], right[rows], atol=3e-2, rtol=3e-2)
    with pytest.raises(attn.TensorError, match=f"{given}.*does not serve"):
        attn.transformers.set_fallback(False)
        try:
            attn.transformers.attention_forward(layer, q, k, v, mask, is_causal=True, **beside)
        finally:
            attn.transformers.set_fallback(True)


def test_models_with_attention_of_their_own_are_refused(refuses):
    for kind in ("Bloom", "MPNet"):
        config = getattr(transformers, f"{kind}Config")(attn_implementation="attn")
        with torch.device("meta"), pytest.raises(attn.TensorError, match=f"{kind}Model: has .*attn does not"):
            getattr(transformers, f"{kind}Model")(config)


# --- Compiled ------------------------------------------------------------------------------------------------


class Attention(torch.nn.Module):
    """A layer, with the mask that Transformers makes for it."""

    def __init__(self, maker, own=False, **options):
        super().__init__()
        self.config = transformers.LlamaConfig(attn_implementation="attn", **options)
        self.maker, self.own = maker, own

    def forward(self, x, attention_mask=None, position_ids=None):
        asked = (
            {}
            if self.maker is masking.create_bidirectional_sliding_window_mask
            else {"position_ids": position_ids}
        )
        mask = self.maker(
            config=self.config, inputs_embeds=x, attention_mask=attention_mask, past_key_values=None, **asked
        )
        q = x.view(*x.shape[:2], HEADS, DIM).transpose(1, 2)
        if self.own:
            weights = torch.softmax((q @ q.transpose(2, 3)).float() + mask, -1).half()
            return (weights @ q).transpose(1, 2)
        return attn.transformers.attention_forward(self, q, q, q, mask)[0]


COMPILED = {
    "causal": (masking.create_causal_mask, {}, True),
    "window": (masking.create_sliding_window_causal_mask, {"sliding_window": 5}, True),
    "both ways": (masking.create_bidirectional_sliding_window_mask, {"sliding_window": 5}, True),
    "chunks": (masking.create_chunked_causal_mask, {"attention_chunk_size": 8}, True),
    "packed": (masking.create_causal_mask, {"packed": True}, False),
    "its own": (masking.create_causal_mask, {"own": True}, False),
}


def test_a_mask_goes_into_compiled_code():
    """Compiled code takes a mask as an input, as generate() passes it to a model with a static cache."""
    mask, _ = both("window")
    q = torch.randn(BATCH, HEADS, 40, DIM).half()

    def layer(mask):
        return attn.transformers.attention_forward(torch.nn.Identity(), q, q, q, mask)[0]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(mask), layer(mask))


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("starts", [(0,), (0, 12), (0, 1, 29)])
def test_code_that_is_compiled_without_a_mask(window, starts):
    """Transformers compares positions there, whether sequences are packed or not: an unpacked sequence gets no mask of
    its own."""
    maker = masking.create_sliding_window_causal_mask if window else masking.create_causal_mask
    model = Attention(maker, **({"sliding_window": window} if window else {}))
    x = torch.randn(BATCH, 30, HEADS * DIM, generator=torch.Generator().manual_seed(1)).half()
    positions = torch.cat([torch.arange(b - a) for a, b in zip(starts, (*starts[1:], 30), strict=True)])[None]
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", attn.transformers.FallbackWarning)
        ours, eager = compiled(x, position_ids=positions), model(x, position_ids=positions)
    assert (ours - eager).abs().max() < 3e-3
    for first, end in zip(starts, (*starts[1:], 30), strict=True):
        alone = model(x[:, first:end].contiguous(), position_ids=torch.arange(end - first)[None])
        assert (ours[:, first:end] - alone).abs().max() < 3e-3


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_masks(name):
    """A mask that compiled code cannot describe falls back, and no mask breaks the graph."""
    maker, options, is_served = COMPILED[name]
    packs = options.get("packed")
    model = Attention(maker, **{key: value for key, value in options.items() if key != "packed"})
    x = torch.randn(BATCH, 30, HEADS * DIM, generator=torch.Generator().manual_seed(1)).half()
    inputs = {"attention_mask": padding(0, 7, tokens=30)}
    if packs:
        inputs = {"position_ids": torch.cat([torch.arange(12), torch.arange(18)])[None]}
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_served else "ignore", attn.transformers.FallbackWarning)
        ours, eager = compiled(x, **inputs), model(x, **inputs)
    error = (ours - eager).abs()
    if not packs:
        error[1, :7] = 0  # rows of padding
    assert error.max() < 3e-3
