# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching of Transformers on a GPU, with attn in its CUDA graphs: the tokens are those without graphs."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)
runner = pytest.importorskip(
    "transformers.generation.continuous_batching.model_runner",
    reason="Transformers has no continuous batching",
)

import attn.transformers  # noqa: E402, F401
import model_zoo  # noqa: E402

# Two prompts with a shared beginning, prompts of one token, prompts that come in chunks, and more prompts
# than fit into one step.
PROMPTS = [
    [5, 6, 7, 8, 9],
    list(range(20, 60)),
    [11],
    list(range(20, 52)) + [3, 4],
    list(range(60, 89)),
    [13] * 70,
]
NEW = 20


def build(name):
    changes = {"initializer_range": 0.05, "eos_token_id": None}
    seed = 1 if name == "GptOss" else 4
    kind = getattr(transformers, f"{name}ForCausalLM")
    # PyTorch multiplies bfloat16 experts in one product, which can be captured, and experts of other types
    # one by one.
    dtype = torch.bfloat16 if name == "GptOss" else torch.float16
    return model_zoo.build(kind, "attn", dtype, seed, **changes).cuda()


def serve(model, **changes):
    sizes = {
        "num_blocks": 48,
        "block_size": 16,
        "max_batch_tokens": 64,
        "max_requests_per_batch": 4,
    } | changes
    options = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    with torch.no_grad():
        results = model.generate_batch(
            PROMPTS,
            generation_config=options,
            continuous_batching_config=transformers.generation.ContinuousBatchingConfig(
                return_logprobs=True, **sizes
            ),
            progress_bar=False,
        )
    found = [results[name] for name in sorted(results, key=lambda name: int(name.split("_")[1]))]
    return [each.generated_tokens for each in found], torch.tensor([each.logprobs for each in found])


@pytest.fixture
def replays(monkeypatch):
    """Return the number of replayed graphs, in a list of one."""
    counts, replay = [0], torch.cuda.CUDAGraph.replay

    def counted(graph):
        counts[0] += 1
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    return counts


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("name", ["Llama", "Gemma2", "GptOss"])
def test_graphs(name, ahead, replays):
    """With few shapes most steps are replays, also where the host prepares a step while another step runs."""
    model = build(name)
    expected, logprobs = serve(model, use_cuda_graph=False)
    assert not replays[0]
    intervals = {"q_padding_interval_size": 32, "kv_padding_interval_size": 1024}
    tokens, found = serve(model, use_cuda_graph=True, use_async_batching=ahead, **intervals)
    assert replays[0] > NEW
    same = [
        next((place for place, pair in enumerate(zip(*rows, strict=True)) if len({*pair}) > 1), NEW)
        for rows in zip(tokens, expected, strict=True)
    ]
    assert min(same) >= 2 and sum(same) > len(same) * NEW // 2  # until rounding makes them differ
    for row, count in enumerate(same):
        within = 0.1 if name == "GptOss" else 2e-2
        torch.testing.assert_close(found[row, :count], logprobs[row, :count], atol=within, rtol=within)
