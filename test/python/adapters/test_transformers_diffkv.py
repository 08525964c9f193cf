# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache of two precisions under Transformers' models: against the policy on separate lists, and refusals."""

import io
import os
import sys

import pictures
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.adapters.diffkv_loss  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn import kv_policy  # noqa: E402
from attn.adapters.transformers_cache import PagedKeys  # noqa: E402
from attn.kv_policy import HIGH, LOW, PRUNED  # noqa: E402

PROMPT, TOKENS, WINDOW = 40, 6, 8


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def build(name="Llama", implementation="attn", dtype=torch.float16, **changes):
    changes = {"head_dim": 64, "sliding_window": None} | changes
    return model_zoo.build(getattr(transformers, f"{name}ForCausalLM"), implementation, dtype, **changes)


def prompt(padding=(0, 0)):
    ids = torch.randint(3, 90, (2, PROMPT), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    return ids, mask


def policy(**changes):
    return kv_policy.DiffKV(
        **({"alpha_high": 1.2, "alpha_low": 0.6, "window": WINDOW, "like": "release"} | changes)
    )


def cache_of(model, of=None, **options):
    options = {"pages": 200} | options
    return attn.transformers.DiffKVCache(model.config, of or policy(), **options)


def logits(model, cache, padding=(0, 0), steps=3):
    """Return logits of the prompt, and of tokens that come one at a time."""
    ids, mask = prompt(padding)
    random, found = torch.Generator().manual_seed(5), []
    for _ in range(steps + 1):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(ids, attention_mask=mask, past_key_values=cache, position_ids=positions)
        found.append(out.logits.float())
        ids = torch.randint(3, 90, (2, 1), generator=random)
        mask = torch.cat([mask, torch.ones_like(ids)], 1)
    return torch.cat(found, 1)


@pytest.mark.parametrize("name,padding", [("Llama", (0, 0)), ("Qwen3", (7, 0)), ("Mistral", (0, 5))])
def test_what_keeps_everything_is_the_model(name, padding):
    """A cache that keeps all tokens in 16 bits gives the model's logits."""
    model, all_high = build(name), policy(alpha_high=0, alpha_low=0)
    ours = logits(model, cache_of(model, all_high, high={}), padding)
    paged = logits(model, attn.transformers.PagedCache(model.config, pages=64), padding)
    shown = prompt(padding)[1].bool()
    shown = torch.cat([shown, torch.ones(2, 3, dtype=torch.bool)], 1)
    error = ((ours - paged).norm(dim=-1) / paged.norm(dim=-1))[shown]
    assert error.max() <= 5e-3


class Recorded:
    """A layer of a cache that gets random tensors, and a copy of these tensors."""

    def __init__(self, of, batch=2, heads=2, group=3, dim=64, **options):
        config = transformers.LlamaConfig(
            num_hidden_layers=1,
            num_key_value_heads=heads,
            num_attention_heads=heads * group,
            head_dim=dim,
            hidden_size=heads * group * dim,
        )
        self.cache = attn.transformers.DiffKVCache(config, of, pages=120, **options)
        self.sizes, self.random = (batch, heads, group, dim), torch.Generator().manual_seed(1)
        self.keys = self.values = torch.zeros(batch, heads, 0, dim)

    def step(self, rows):
        from attn.adapters.diffkv_steps import attend_precisions

        batch, heads, group, dim = self.sizes
        q, k, v = (
            torch.randn(batch, n, rows, dim, generator=self.random).half()
            for n in (heads * group, heads, heads)
        )
        q *= 3  # so that tokens differ in significance
        end = self.keys.shape[2] + rows
        self.keys, self.values = (
            torch.cat(pair, 2) for pair in ((self.keys, k.float()), (self.values, v.float()))
        )
        spans = torch.tensor([[0, end, 0, 0]] * batch, dtype=torch.int32)
        layer = self.cache.layers[0]
        out = attend_precisions(
            *(layer, q, PagedKeys(k, layer), v, spans),
            scale=0.125,
            see=repr(attn.causal() if rows > 1 else attn.all_tokens()),
            softcap=0.0,
            sinks=None,
            gates=None,
        )
        return q, out


STORED = {HIGH: ("int8", "int4"), LOW: ("int4", "int2")}


def rounded(numbers, format):
    """Return the numbers after quantization to a format and back."""
    rows = numbers.float().reshape(-1, 1, numbers.shape[-1]).contiguous()
    return attn.dequantize(*attn.quantize(rows, format), format).reshape(numbers.shape)


def kept_positions(cache, layer, end):
    """Return the positions of each list's HIGH, or LOW, tokens in ascending order."""
    rows = cache.lists.positions(layer, end, cache.most)
    return [sorted(position for position in row if position >= 0) for row in rows.tolist()]


def weights(q, keys, level, scale=0.125):
    """Return weights [lists, group, tokens] of one row over the tokens that are kept."""
    scores = torch.einsum("lgd,ltd->lgt", q.double(), keys.double()) * scale
    return scores.masked_fill((level == PRUNED)[:, None], -torch.inf).softmax(-1)


@pytest.mark.parametrize("like,group", [("paper", "max"), ("release", "mean")])
def test_layers_follow_the_policy(like, group):
    """The cache matches the policy on separate lists, over a copy of all tokens as they are stored."""
    of = policy(like=like, group=group)
    record = Recorded(of, page_size=4)
    record.step(PROMPT)
    cache, lists, steps = record.cache, 4, 16
    own = cache.kept[0]
    low_at_once = own.level == LOW
    mine = kv_policy.Kept(
        own.score.clone(), own.queries.clone(), own.level.clone(), own.lengths.clone(), own.limits
    )
    assert set(own.level.flatten().tolist()) == {HIGH, LOW, PRUNED}
    downgraded = pruned = 0
    for _ in range(steps):
        before = own.level.clone()
        q, out = record.step(1)
        keys, values = (x.flatten(0, 1) for x in (record.keys, record.values))
        level = torch.cat([before, torch.zeros(lists, keys.shape[1], dtype=torch.int8)], 1)[
            :, : keys.shape[1]
        ]
        level[:, -1] = HIGH
        first = torch.nn.functional.pad(low_at_once, (0, keys.shape[1] - PROMPT)) & (level == LOW)
        stored = []
        for part, numbers in enumerate((keys, values)):
            high = rounded(numbers, STORED[HIGH][part])
            low = rounded(high, STORED[LOW][part])  # requantized from HIGH numbers;
            at_once = rounded(numbers, STORED[LOW][part])  # a prompt's LOW tokens are quantized directly
            found = torch.where((level == LOW)[..., None], low, high)
            stored.append(torch.where(first[..., None], at_once, found))
        p = weights(q.reshape(lists, 3, 64), stored[0], level)
        wanted = torch.einsum("lgt,ltd->lgd", p, stored[1].double())
        assert (out.reshape(lists, 3, 64) - wanted).norm() <= 5e-3 * wanted.norm()
        changes = of.step(mine, (p.amax(1) if group == "max" else p.mean(1)).float())
        downgraded += int((changes.downgraded >= 0).sum())
        pruned += int((changes.pruned >= 0).sum())
        own = cache.kept[0]
        tokens = keys.shape[1]
        differing = own.level[:, :tokens] != mine.level[:, :tokens]
        assert differing.float().mean() <= 0.02, "but for tokens near a threshold"
        for end, kind in enumerate((HIGH, LOW)):
            positions = [(row == kind).nonzero()[:, 0].tolist() for row in own.level]
            assert kept_positions(cache, 0, end) == positions
    assert downgraded > 10 and pruned > 2


GENERATED = [("Llama", "paper"), ("Qwen3", "release"), ("Mistral", "release")]


@pytest.mark.parametrize("name,like", GENERATED if os.environ.get("ATTN_FULL") else GENERATED[:1])
def test_generate(name, like):
    """Generation works, and its statistics add up. Qwen3 normalizes queries and keys: with random weights its tokens
    have nearly equal significance."""
    alphas = {"alpha_high": 1.5, "alpha_low": 1.1} if name == "Qwen3" else {}
    model, (ids, mask) = build(name), prompt((3, 0))
    made = []
    for _ in range(2 if name == "Llama" else 1):
        cache = cache_of(model, policy(like=like, **alphas))
        made.append(
            model.generate(
                ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, past_key_values=cache
            )
        )
    assert made[0].shape == (2, PROMPT + TOKENS) and torch.equal(made[0], made[-1])
    stats = cache.stats()
    tokens = stats["high"] + stats["low"] + stats["pruned"]
    assert (
        tokens.shape == (2, 2, 2) and (tokens == [[PROMPT + TOKENS - 4] * 2, [PROMPT + TOKENS - 1] * 2]).all()
    )
    assert min(stats[name].sum() for name in ("high", "low", "pruned")) > 0
    assert stats["plain_bytes"] == 256 * tokens.sum() and stats["bytes"] < stats["page_bytes"]
    assert stats["bytes"] == sum(
        end.token_bytes * stats[name].sum()
        for end, name in zip(cache.lists.ends, ("high", "low"), strict=True)
    )
    assert stats["compression"] > 2
    levels = cache.levels(1)
    assert levels.shape == (2, 2, PROMPT + TOKENS - 1) and (levels[..., -WINDOW:] == HIGH).all()
    pictures.check(cache.svg(1), numbers=6)
    assert cache.svg(1).count("<rect") > 8 and "compression" not in cache.svg(1)
    cache.reset()
    assert model.generate(ids[:1], max_new_tokens=2, past_key_values=cache).shape == (1, PROMPT + 2)


@pytest.mark.parametrize("name", ["Mistral", "Gemma2"])
def test_windows_and_soft_caps(name):
    """A cache that keeps every visible token gives the model's logits, also with soft caps and alternating windows
    (Gemma2)."""
    model, all_high = build(name, sliding_window=12), policy(alpha_high=0, alpha_low=0)
    cache = cache_of(model, all_high, high={})
    ours = logits(model, cache, (5, 0), steps=4)
    paged = logits(model, attn.transformers.PagedCache(model.config, pages=64), (5, 0), steps=4)
    shown = torch.cat([prompt((5, 0))[1].bool(), torch.ones(2, 4, dtype=torch.bool)], 1)
    assert ((ours - paged).norm(dim=-1) / paged.norm(dim=-1))[shown].max() <= 5e-3
    high = cache.stats()["high"]
    windows = [12] if name == "Mistral" else [12, PROMPT + 4 - 5]
    assert set(high[:, 0].flatten().tolist()) == set(windows)
    squeezed = cache_of(model)
    logits(model, squeezed)
    stats = squeezed.stats()
    assert stats["low"].sum() > 0 and (stats["high"] + stats["low"])[0].max() <= (
        12 if name == "Mistral" else PROMPT + 3
    )


@pytest.mark.parametrize("like,window", [("release", None), ("paper", 20)])
def test_rows_are_taken_back(like, window):
    """Rows that assisted generation takes back leave no trace: later decisions are those of a cache that never had
    them."""
    model = build("Mistral", sliding_window=window)
    ids, _ = prompt()
    steps = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(8))
    taken, plain = cache_of(model, policy(like=like)), cache_of(model, policy(like=like))
    for cache in (taken, plain):
        model(ids, past_key_values=cache)
        model(steps[:, :2], past_key_values=cache)
    model(torch.flip(steps, (0,)), past_key_values=taken)
    taken.crop(PROMPT + 2)
    assert taken.get_seq_length() == PROMPT + 2 and (taken.levels(1) == plain.levels(1)).all()
    for layer in range(2):
        for end in range(2):
            assert kept_positions(taken, layer, end) == kept_positions(plain, layer, end)
    model(steps[:, 2:], past_key_values=taken)
    taken.crop(-3)  # the last three of five rows are taken back
    model(steps[:, 2:4], past_key_values=plain)
    assert (taken.levels() == plain.levels()).all()
    ours, wanted = (model(steps[:, 4:6], past_key_values=cache).logits for cache in (taken, plain))
    assert (ours - wanted).norm() <= 5e-3 * wanted.norm()
    with pytest.raises(attn.PlanError, match=f"crop: expected at least {PROMPT + 4}, .* got {PROMPT + 3}"):
        taken.crop(PROMPT + 3)


def test_calibration():
    """The alphas of a model with random weights: with a large allowed loss they are the largest, with none 0."""
    model = build(num_hidden_layers=1)
    data = [torch.randint(3, 90, (2, 36), generator=torch.Generator().manual_seed(i)) for i in range(2)]
    options = dict(answers=6, steps=3, window=WINDOW, like="release")
    runs = []
    free = kv_policy.DiffKV.calibrate(model, data, 100.0, most=4.0, **options, progress=runs.append)
    assert [(run.run, run.alpha_high, run.alpha_low) for run in runs] == [(2, 0, 0), (3, 4, 0), (4, 4, 4)]
    assert runs[0].most_runs == 2 * 3 + 4 and all(run.growth <= 100 for run in runs)
    assert str(runs[1]).startswith("run 3 of at most 10: alpha_high 4, alpha_low 0, loss grows by ")
    assert (free.alpha_high, free.alpha_low, free.window) == (4.0, 4.0, WINDOW)
    assert model.training is False
    loss = attn.adapters.diffkv_loss.Loss(model, data, 6)
    worst = loss(kv_policy.DiffKV(4.0, 4.0, window=WINDOW, like="release"))
    plain = loss(kv_policy.DiffKV(0, 0, window=WINDOW), high={})
    assert worst != plain
    codes = dict(low={"key": "int4", "value": "int4"})
    target = max(loss(kv_policy.DiffKV(0, 0, window=WINDOW, like="release")) - plain, 0) + 1e-3
    found = kv_policy.DiffKV.calibrate(model, data, target, most=4.0, **codes, **options)
    assert loss(found, **codes) - plain <= target
    short = build(num_hidden_layers=1, head_dim=32)
    with pytest.raises(attn.TensorError, match="low: value: expected a dim of whole 16 bytes, .* got 32"):
        kv_policy.DiffKV.calibrate(short, data, 1.0, **options)
    assert kv_policy.DiffKV.calibrate(short, data, 100.0, **codes, **options).alpha_low == 8.0
    cases = [
        (dict(target=-1.0), r"calibrate\(target\): expected nats from 0 on, got -1.0"),
        (dict(answers=36), "answers: expected from 1 to 35, .* got 36; nearest legal: 35"),
        (dict(steps=0), r"calibrate\(steps\): expected a number from 1 on"),
        (dict(window=0), r"DiffKV\(window\)"),
        (dict(data=[]), "data: expected token ids"),
        (dict(model=build(implementation="eager")), "model: expected a decoder .* got 'eager'"),
    ]
    for changes, message in cases:
        given = dict(model=model, data=data, target=1.0) | options | changes
        with pytest.raises(attn.Error, match=message):
            kv_policy.DiffKV.calibrate(**given)


def test_a_terminal_shows_the_calibration(monkeypatch):
    """By default, in one line that is gone afterwards; `progress=False` and other outputs show nothing."""
    model = build(num_hidden_layers=1)
    data, shown = torch.randint(3, 90, (1, 36), generator=torch.Generator().manual_seed(0)), []
    for stream, options in ((Terminal(), {}), (Terminal(), {"progress": False}), (io.StringIO(), {})):
        monkeypatch.setattr(sys, "stderr", stream)
        kv_policy.DiffKV.calibrate(model, data, 100.0, answers=4, steps=1, window=WINDOW, **options)
        shown.append(stream.getvalue())
    assert shown[1:] == ["", ""]
    assert "\r\033[Kattn: calibrate: run 2 of at most 6: alpha_high 0" in shown[0]
    assert shown[0].endswith("\r\033[K") and "\n" not in shown[0]


def test_a_set_of_the_prompt():
    model, (ids, _) = build(), prompt()
    cache = cache_of(model, kv_policy.SnapKV(16, 4))
    model.generate(ids, max_new_tokens=5, do_sample=False, past_key_values=cache)
    stats = cache.stats()
    assert (stats["high"] == 16 + 4).all() and not stats["low"].any()


def test_heads_that_differ():
    model, (ids, _) = build(), prompt()
    cache = cache_of(model, policy(alpha_high=1e9, alpha_low=1e9, like="paper", overrides={(1, 0): (0, 0)}))
    model.generate(ids, max_new_tokens=5, do_sample=False, past_key_values=cache)
    stats = cache.stats()
    assert (stats["high"][1, :, 0] == PROMPT + 4).all() and (stats["pruned"][0] == PROMPT + 4 - WINDOW).all()


def test_streaming_heads_beside():
    """With all other tokens HIGH in 16 bits, logits are those of the model with the same head gates."""
    model, everything = build(), policy(alpha_high=0, alpha_low=0)
    streaming = kv_policy.Streaming(everything, [(0, 1), (1, 0)], sink=3, recent=7)
    cache = cache_of(model, streaming, high={})
    ours = logits(model, cache, (5, 0))
    gates = attn.heads.Gates([[1, 0], [0, 1]], sink=3, recent=7)
    attn.transformers.apply_head_gates(model, gates.select(threshold=0.5))
    gated = logits(model, attn.transformers.PagedCache(model.config, pages=64), (5, 0))
    shown = torch.cat([prompt((5, 0))[1].bool(), torch.ones(2, 3, dtype=torch.bool)], 1)
    assert ((ours - gated).norm(dim=-1) / gated.norm(dim=-1))[shown].max() <= 5e-3
    kept = cache.stats()["high"]
    assert (kept[0, :, 1] == 9).all() and (kept[1, :, 0] == 9).all()
    assert (kept[0, :, 0] == [PROMPT - 5 + 3, PROMPT + 3]).all()


def test_streaming_heads_and_two_precisions():
    model, (ids, _) = build(), prompt()
    cache = cache_of(model, kv_policy.Streaming(policy(), [(1, 1)], sink=2, recent=5))
    model.generate(ids, max_new_tokens=4, do_sample=False, past_key_values=cache)
    stats = cache.stats()
    assert (stats["high"][1, :, 1] == 6).all() and not stats["low"][1, :, 1].any() and stats["low"].any()
    for count, name in zip(cache.lists.counts, ("high", "low"), strict=True):
        assert count.sum() == stats[name].sum()


def test_pages_run_out():
    """When pages run out in a prompt the cache is empty again; in a step it is as before the step."""
    model, (ids, _) = build(), prompt()
    cache = cache_of(model, policy(alpha_high=0, alpha_low=0), pages=20)
    with pytest.raises(attn.OutOfPages, match="expected 12 free ones, got 8 of 20; the cache is empty again"):
        model(ids, past_key_values=cache)
    assert cache.get_seq_length() == 0
    cache = cache_of(model, policy(alpha_high=0, alpha_low=0), pages=32)
    model(ids, past_key_values=cache)
    with pytest.raises(attn.OutOfPages, match="expected 8 free ones, got 0 of 32; nothing was changed"):
        for _ in range(20):
            levels = cache.levels()
            model(ids[:, :1], past_key_values=cache)
    assert (cache.levels() == levels).all() and cache.get_seq_length() == 48


def test_refusals():
    model, (ids, mask) = build(), prompt()
    with pytest.raises(attn.PlanError, match="policy: expected one of attn.kv_policy, .* got 'release'"):
        attn.transformers.DiffKVCache(model.config, "release", pages=64)
    with pytest.raises(
        attn.PlanError, match="pages: expected at least 4: windows of 8 .* got 3; nearest legal: 4"
    ):
        cache_of(model, pages=3)
    with pytest.raises(attn.PlanError, match="tokens: expected a number of tokens from 1 on, got 0"):
        cache_of(model, tokens=0)
    with pytest.raises(attn.SpecError, match="page_size"):
        cache_of(model, page_size=12)
    with pytest.raises(
        attn.PlanError, match=r"policy: expected .* 2 layers of 2 KV heads, got .*nearest legal: \(1, 1\)"
    ):
        cache_of(model, policy(overrides={(5, 1): (1, 0)}))
    cache = cache_of(model)
    with pytest.raises(attn.PlanError, match="expected a prompt before stats"):
        cache.stats()
    model(ids, past_key_values=cache)
    with pytest.raises(attn.PlanError, match="beams: DiffKVCache does not serve it"):
        cache.reorder_cache(torch.tensor([1, 0]))
    with pytest.raises(attn.PlanError, match="crop: expected at least 40, .* got 10; nearest legal: 40"):
        cache.crop(10)
    with pytest.raises(attn.TensorError, match="attention_mask: expected a token of every sequence"):
        model(
            ids[:, :1], attention_mask=torch.cat([mask, torch.tensor([[1], [0]])], 1), past_key_values=cache
        )
    with pytest.raises(
        attn.PlanError, match="DiffKVCache: expected one of key, .* got 'keys'; nearest legal: 'key'"
    ):
        cache_of(model, high={"keys": "int8"})
    windowed = build("Mistral", sliding_window=8)
    with pytest.raises(attn.PlanError, match="policy: expected a window below .* 8: .* nearest legal: 7"):
        windowed(ids, past_key_values=cache_of(windowed))
    sinks = build("GptOss", sliding_window=16) if hasattr(transformers, "GptOssForCausalLM") else None
    if sinks is not None:
        with pytest.raises(attn.PlanError, match="learned sinks: DiffKVCache does not serve it"):
            sinks(ids, past_key_values=cache_of(sinks))
