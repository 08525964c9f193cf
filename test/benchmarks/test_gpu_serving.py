# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `bench gpu` that serves requests, as far as no GPU is needed: a tiny model, whose sides answer alike."""

import os
import types

import pytest
from benchlab import SESSION

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")
paged = pytest.importorskip("transformers.generation.continuous_batching.cache")

from catalogue import PARTS, bars  # noqa: E402
from measuring import report  # noqa: E402
from parts import serving, transformers  # noqa: E402
from parts.serving import ServingPoint, measure_serving, serving_line  # noqa: E402

TINY = transformers.Shape(layers=2, hidden=128, inner=128, q_heads=4, kv_heads=2, vocabulary=97)
POINT = ServingPoint(4, 2, 5, 20, 4, rows=16, shape=TINY, device="cpu")


@pytest.fixture
def bench(monkeypatch):
    report.import_attn()
    monkeypatch.setattr(serving, "ROUNDS", 1)
    monkeypatch.setattr(
        paged.PagedAttentionMemoryHandler, "get_available_memory", lambda *args, **named: 1 << 28
    )
    yield types.SimpleNamespace(
        contest=types.SimpleNamespace(torch=torch), results=types.SimpleNamespace(session=SESSION)
    )
    transformers._models.clear()


def test_points():
    first = PARTS["serving"](True)[0]
    lengths = [len(prompt) for prompt in first.prompts(torch)]
    assert len(lengths) == 16 and 64 <= min(lengths) < max(lengths) <= 512
    assert first.pages() * 16 >= 8 * (512 + 32)


def test_a_tiny_model(bench):
    row = measure_serving(POINT, bench)
    assert not row["declined"] and set(row["tokens_per_second"]) == set(serving.SIDES)
    assert row["new_tokens"] == 16 and row["name"] in serving_line(row)


def test_sides_answer_alike(bench):
    model = transformers.model_of(torch, TINY, "cpu", False)
    torch.manual_seed(3)
    for weight in model.model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.4)
    wanted = [decided(model.model, prompt) for prompt in POINT.prompts(torch)]
    assert sum(map(len, wanted)) >= 8
    for made in serving.SIDES.values():
        with torch.no_grad(), made(model, POINT) as answer:
            found = answer(POINT.prompts(torch))
        assert [list(tokens[: len(first)]) for tokens, first in zip(found, wanted, strict=True)] == wanted


def decided(model, prompt):
    """The tokens up to the first whose logit leads by so few units of bfloat16 that rounding may decide."""
    model.set_attn_implementation("sdpa")
    found = []
    while len(found) < POINT.answer:
        with torch.no_grad():
            logits, ids = model(torch.tensor([prompt + found])).logits[0, -1].float().topk(2)
        if logits[0] - logits[1] < 0.2:
            break
        found.append(int(ids[0]))
    return found


def test_bars():
    row = {"part": "serving", "tokens_per_second": {"engine": 5.0, "generate_batch": 4.0}}
    assert [met for _, met in bars(row, SESSION)] == [True]
    assert [met for _, met in bars({**row, "tokens_per_second": {"engine": 3.0, "x": 4.0}}, SESSION)] == [
        False
    ]
