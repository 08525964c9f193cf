# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What benchmarks/engines/vllm_gpu.py makes of an engine's times, without vLLM."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the models are PyTorch's")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks/engines"))
import vllm_gpu  # noqa: E402


def test_ratios_are_of_the_same_mode():
    theirs = vllm_gpu.THEIRS

    def speed(backend, mode, prefill, decode):
        return dict(
            part="speed", backend=backend, mode=mode, prefill={"2x8": prefill}, decode={"2x4": decode}
        )

    rows = [speed(theirs, "eager", 100.0, 10.0), speed("attn", "eager", 110.0, 15.0)]
    rows += [speed("attn", "graphs", 900.0, 900.0)]
    rows += [
        dict(part="cache", backend=backend, format=format, tokens_a_second=rate)
        for backend, format, rate in ((theirs, "16 bits", 5.0), ("attn", "int8_int4", 10.0))
    ]
    rows += [
        dict(part="metadata", backend=backend, median_us=us)
        for backend, us in ((theirs, 10.0), ("attn", 12.0))
    ]
    assert vllm_gpu.ratios(rows) == {
        "eager prefill 2x8": pytest.approx(1.1),
        "eager decode 2x4": 1.5,
        f"int8_int4 of {theirs} in 16 bits": 2.0,
        "metadata us": 1.2,
    }


def test_latents_are_compared_with_each_backend():
    def row(backend, rate, **named):
        found = dict(part="latents", model="m", backend=backend, mode="graphs", format="16 bits")
        return found | dict(decode={"2x4": rate, "1x4": None}) | named

    rows = [
        row("attn", 15.0),
        row("FLASHMLA", 10.0),
        row("TRITON_MLA", 5.0),
        row("CPU_MLA", 1.0, mode="eager"),
    ]
    rows += [row(backend, rate, format="fp8_e4m3") for backend, rate in (("attn", 30.0), ("FLASHMLA", 20.0))]
    rows += [dict(part="latents", model="m", backend="control", mode="eager", differs=True)]
    rows += [row("FLASH_ATTN_MLA", None, decode={}, failed="ValueError: no such kernel")]
    assert vllm_gpu.ratios(rows) == {
        "graphs m 2x4 over FLASHMLA": 1.5,
        "graphs m 2x4 over TRITON_MLA": 3.0,
        "graphs m in fp8_e4m3 2x4 over FLASHMLA": 1.5,
    }


def test_the_last_answers_go_on(monkeypatch):
    monkeypatch.setattr(vllm_gpu, "LATENT_STEPS", 10)
    monkeypatch.setitem(vllm_gpu.LATENT_OPTIONS, "max_num_batched_tokens", 104)
    read = 3  # 4 x 75 tokens in steps of 100, beside 4 that decode.
    assert vllm_gpu.latent_answers((4,), 75) == [read + 2 + 10] * 4
    assert vllm_gpu.latent_answers((4, 1), 75) == [read + 2 + 10] * 3 + [read + 2 + 20]


class Latents:
    """An engine whose answers are tokens that its backend says; one backend fails."""

    seconds_to_start, cached_tokens = 1.0, 64
    closed, zero = 0, False

    def __init__(self, folder, backend, mode, **options):
        if backend == "absent":
            raise ImportError("no such kernel")
        self.backend = backend

    def answered(self, prompts, answer):
        token = 3 if self.backend == "CUSTOM" and Latents.zero else 2
        return [[token] * answer] * len(prompts), [[0.25] * answer] * len(prompts)

    def close(self):
        Latents.closed += 1


def test_a_backend_over_latents_that_fails_says_why(monkeypatch, tmp_path):
    def without():
        Latents.zero = True
        return lambda: setattr(Latents, "zero", False)

    monkeypatch.setattr(vllm_gpu, "Engine", Latents)
    monkeypatch.setattr(vllm_gpu, "without_latents", without)
    monkeypatch.setattr(vllm_gpu, "write_model", lambda *given: None)
    monkeypatch.setattr(vllm_gpu, "LATENT_SPEED", {})
    monkeypatch.setattr(vllm_gpu, "clean_up", lambda: None)
    rows = list(vllm_gpu.latents_part(tmp_path, ["eager", "graphs"], ["CUSTOM", "absent", "own"]))
    absent, own, eager, graphs, control = rows
    assert absent["failed"] == "ImportError: no such kernel" and "failed" not in own
    assert [row["mode"] for row in (eager, graphs)] == ["eager", "graphs"]
    for row in (eager, graphs):
        assert list(row["beside"]) == ["own"]
        assert row["beside"]["own"]["equal_answers"] == row["beside"]["own"]["answers"]
    assert control["differs"] and not Latents.zero and Latents.closed == 3


def test_a_failure_of_attn_over_latents_is_the_parts(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_gpu, "latent_tokens", lambda *given: [dict(backend="attn", failed="no kernel")])
    monkeypatch.setattr(vllm_gpu, "latent_speed", lambda *given: [dict(backend="FLASHMLA")])
    rows = vllm_gpu.latents_part(tmp_path, ["eager"], [])
    assert [next(rows)["backend"], next(rows)["backend"]] == ["attn", "FLASHMLA"]
    with pytest.raises(RuntimeError, match="no kernel"):
        next(rows)
