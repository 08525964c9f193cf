# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`./dev bench real` measures, with a downloaded model on the CPU; without the model it skips by name."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples" / "13_real_model")]
import smollm2  # noqa: E402


def measure(file, *arguments):
    """Return the rows of a run."""
    if absent := smollm2.missing():
        pytest.skip(absent)
    command = [sys.executable, str(ROOT / "benchmarks" / "real.py"), "--json", str(file), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    return json.loads(file.read_text())["rows"]


def test_real(tmp_path):
    size = ["--tokens", "256" if os.environ.get("ATTN_FULL") else "64"]
    found = measure(tmp_path / "real.json", *size, "formats", "--formats", "K8V8", "K2V4")
    rows = {row["format"]: row for row in found}
    assert list(rows) == ["16 bits", "K8V8", "K2V4"]
    assert rows["16 bits"]["kl"] == 0 and 0 < rows["K8V8"]["kl"] < rows["K2V4"]["kl"]
    assert rows["K2V4"]["token_bytes"] < rows["K8V8"]["token_bytes"] < rows["16 bits"]["token_bytes"]
    assert rows["K8V8"]["perplexity"] < rows["K2V4"]["perplexity"]


def test_heads(tmp_path):
    sizes = ["--quick", "--heads-tokens", "128", "--heads-texts", "1", "--heads-random", "1"]
    rows = measure(tmp_path / "real.json", *sizes, "heads", "--heads-methods", "attention")
    (gates,) = (row for row in rows if row["row"] == "gates")
    assert (len(gates["gates"]), len(gates["gates"][0])) == (30, 3) and gates["method"] == "attention"
    found = {(row["method"], row["retrieving"]): row["recall"] for row in rows if row["row"] == "recall"}
    assert found["full", 1.0] == 1 > found["streaming", 0.0]
    shares = {(method, share) for method in ("attention", "random") for share in (0.5, 0.25)}
    others = {("full", 1.0), ("streaming", 0.0), ("reversed attention", 0.5)}
    assert set(found) == shares | others


def test_layers(tmp_path):
    rows = measure(tmp_path / "real.json", "--tokens", "24", "layers", "--formats", "K8V4", "K2V4")
    assert [row["format"] for row in rows] == ["K8V4", "K2V4"] and all(len(row["kl"]) == 30 for row in rows)
    few, more = (sum(row["kl"]) / 30 for row in rows)
    assert 0 < few < more / 10


@pytest.mark.skipif(not os.environ.get("ATTN_FULL"), reason="ATTN_FULL: minutes on a CPU")
def test_decoding(tmp_path):
    """Tokens that come one at a time: none disagrees with float32 but at a tie."""
    found = measure(
        tmp_path / "real.json", "--quick", "--alphas", "1", "0", "diffkv", "recall", "drafts", "serving"
    )
    rows = {
        part: [row for row in found if row["part"] == part]
        for part in ("diffkv", "recall", "drafts", "serving")
    }
    assert [row["policy"] for row in rows["diffkv"]] == ["16 bits", "paper", "release"]
    assert all(row["times"] > 2 and 0 < row["kl"] < 0.1 for row in rows["diffkv"][1:])
    assert rows["recall"][0]["recall"] == 1 and rows["recall"][0]["digits"] == 5
    assert [row["drafts"] for row in rows["drafts"]] == [0, 16] * 2
    assert all(row["gap"] is None or row["gap"] <= 0.02 for row in rows["drafts"])
    assert rows["drafts"][1]["tokens_step"] > 1.2 > rows["drafts"][0]["tokens_step"]
    assert len(rows["serving"]) == 8 and all(row["largest_gap"] <= 0.02 for row in rows["serving"])


def test_rounding(tmp_path):
    rows = measure(tmp_path / "real.json", "--quick", "rounding")
    found = {(row["way"], row["dtype"]): row for row in rows}
    sides = {(way, dtype) for way in ("attn", "SDPA", "eager") for dtype in ("float16", "bfloat16")}
    assert set(found) == sides | {
        ("attn, a float32 model", "float32"),
        ("float32, float16's weights", "float32"),
    }
    assert all(row["rows"] == 64 for row in rows)
    attended = found["attn, a float32 model", "float32"]["rms"]
    assert 0 < attended < found["attn", "float16"]["rms"] < found["attn", "bfloat16"]["rms"]
    for dtype in ("float16", "bfloat16"):
        assert found["attn", dtype]["rms"] < 1.3 * found["eager", dtype]["rms"]


def test_logits_apart():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    from trained.rounding import Apart

    found = Apart()
    found.add(torch.tensor([[1.0, 3.0, 2.5]]), torch.tensor([[1.0, 3.0, 2.5]]))
    found.add(torch.tensor([[1.0, 3.0, 2.5]]), torch.tensor([[1.0, 2.0, 2.5]]))
    assert found.row() == {"rows": 2, "others": 1, "largest_gap": 0.5, "rms": (1 / 6) ** 0.5}


def test_agreement_with_float32():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    from trained import serving

    class Exact:
        """Likes the next number best, and the one after it by half as much."""

        device = "cpu"

        def __call__(self, text, logits_to_keep):
            place = (text[..., -logits_to_keep:, None] - torch.arange(10)).abs()
            return types.SimpleNamespace(logits=2.0 - (place + 1.0).log2())

    found = serving.against(Exact(), [[1, 2], [7]], [[2, 2, 3], [7, 7]])
    assert found == {"tokens": 5, "same": 0.8, "others": 1, "largest_gap": 1.0}


def test_correlation_of_ranks():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    from trained.heads import spearman

    assert spearman([1, 2, 3, 4], [10, 20, 25, 1000]) == pytest.approx(1)
    assert spearman([[1, 2], [3, 4]], [[4, 3], [2, 1]]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(3**0.5 / 2)
    assert spearman([1, 1, 1], [1, 2, 3]) is None


@pytest.mark.parametrize(
    "arguments,said",
    [
        (
            ["head"],
            "expected parts of formats, channels, layers, diffkv, recall, heads, drafts, serving, rounding, training, got head",
        ),
        (
            ["heads", "--svg", "real.svg"],
            "--svg draws one of the parts formats, training, and none was asked for",
        ),
    ],
)
def test_refusals(arguments, said, monkeypatch, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="Transformers is not installed")
    import real

    monkeypatch.setattr(sys, "argv", ["real.py", *arguments])
    with pytest.raises(SystemExit):
        real.options()
    assert said in capsys.readouterr().err
