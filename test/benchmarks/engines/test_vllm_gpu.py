# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What benchmarks/engines/vllm_gpu.py makes of an engine's answers and times, without vLLM."""

import random
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the models are PyTorch's")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks/engines"))
import vllm_gpu  # noqa: E402


def test_answers_are_compared_up_to_their_first_difference():
    theirs = [[1, 2, 3, 4], [5, 6, 7, 8]], [[0.5, 0.4, 0.3, 0.2], [0.9, 0.001, 0.9, 0.9]]
    ours = [[1, 2, 3, 4], [5, 9, 7, 8]], None
    row = vllm_gpu.compared(theirs, ours)
    assert (row["answers"], row["equal_answers"], row["tokens"], row["equal_until"]) == (2, 1, 8, 5)
    assert row["gaps"] == [0.001] and row["smallest_gap"] == 0.001


def test_decoding_is_timed_when_all_sequences_decode():
    prompts = [(1.0, 1, 1), (2.0, 3, 2)]  # Seconds, tokens of all answers, and answers that have begun.
    steps = [(2.0 + 0.5 * at, 3 + 2 * at, 2) for at in range(1, 9)]
    rate, count = vllm_gpu.decoding_rate(prompts + steps, 2)
    assert rate == pytest.approx(4.0) and count == 6
    assert vllm_gpu.decoding_rate(prompts, 2) == (None, 0)


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


def test_weights_have_a_real_scale():
    class Worker:
        model = torch.nn.Sequential(
            torch.nn.Linear(1024, 512, bias=False), torch.nn.LayerNorm(512, bias=False)
        )

        def get_model(self):
            return self.model

    worker = Worker()
    vllm_gpu.fill(worker)
    matrix, factors = worker.model.parameters()
    first = matrix.detach().clone()
    assert first.std().item() == pytest.approx(0.04, rel=0.02) and torch.equal(factors, torch.ones(512))
    vllm_gpu.fill(worker)
    assert torch.equal(first, matrix)


def test_the_last_two_prompts_begin_alike():
    *_, one, other = vllm_gpu.prompts_of(random.Random(0), "tiny", [4, 9, 8], common=5)
    assert one[:5] == other[:5] and one[5:8] != other[5:8] and max(one) < 512
