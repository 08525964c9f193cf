# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Heads of a model that somebody trained (examples/13_real_model/heads.py): texts with hidden numbers, and answers from pages
in which streaming heads keep few tokens. Without the model its tests skip by name."""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

LESSON = Path(__file__).resolve().parents[3] / "examples" / "13_real_model"
sys.path.append(str(LESSON))
import smollm2  # noqa: E402
from attn.heads import HeadChoice, Texts, recall  # noqa: E402

SIZES = {"sink": 4, "recent": 16}


@pytest.fixture(scope="module")
def tokens():
    if absent := smollm2.missing():
        pytest.skip(absent)
    return smollm2.tokenizer()


def test_texts_hide_numbers(tokens):
    from passkeys import first_question, passkeys

    texts = passkeys(tokens, 256, training=False)(0)
    prompt, answer = first_question(texts)
    number, asked = tokens.decode(answer), tokens.decode(prompt[0])
    assert texts.tokens.shape == (1, 256) and texts.answers.sum() == 20 and number.isdecimal()
    assert asked.endswith(" is ") and f"\n{asked.rsplit('Answer: ')[-1]}{number}.\n" in asked
    other = passkeys(tokens, 256, training=True)(0)
    assert not torch.equal(texts.tokens[:, 1:60], other.tokens[:, 1:60])


def test_training_reads_other_sections():
    from pydoc_data.topics import topics

    assert {*smollm2.REFERENCE, *smollm2.other_sections()} == set(topics)
    assert not set(smollm2.REFERENCE) & set(smollm2.other_sections())


def test_pages_of_classes_answer_as_pytorch_does(tokens):
    """Greedy tokens from pages are those that the same choice predicts in PyTorch, and another choice does not."""
    import heads
    from passkeys import first_question, passkeys

    model = smollm2.load(torch.float16, attention=heads.NAME)
    prompt, answer = first_question(passkeys(tokens, 128, training=False, names=1)(0))
    classes = numpy.zeros((30, 3), int)
    classes[::2, 0], classes[5], classes[9, 1:] = 1, 1, 1  # one, all, two and none of a layer's heads stream
    choice = HeadChoice(classes, **SIZES)
    with torch.inference_mode():
        pages = heads.ClassedPages(model, choice, prompt.shape[1] + len(answer), chunk=48)
        made = pages.generate(prompt, len(answer))
    assert torch.equal(made, answer)
    whole = torch.cat([prompt, made[None]], 1)
    behind = torch.arange(whole.shape[1])[None] >= prompt.shape[1]
    texts = Texts(whole, behind, behind)
    assert recall(model, texts, choice) == 1
    assert recall(model, texts, HeadChoice(numpy.ones((30, 3), int), **SIZES)) < 1
    everything = 2 * 2 * 64 * 90 * pages.length
    assert 0.5 * everything < pages.held_bytes() < 0.95 * everything


def test_heads_are_found(tokens, tmp_path):
    sizes = {"tokens": 128, "steps": 1, "texts": 1, "names": 1, **SIZES, "folder": tmp_path / "gates"}
    given = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    command = [sys.executable, str(LESSON / "heads.py"), *given]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "recall, all heads retrieve 1.000" in result.stdout
    assert "Alice? Answer: The secret number of Alice is " in result.stdout
    names = {"full_attention_heads.tsv", "config.json", "gates.svg"}
    assert {path.name for path in (tmp_path / "gates").iterdir()} == names
