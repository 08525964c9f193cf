# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random models that SGLang reads, and their log-probabilities in Transformers, in float32, without pages."""

import functools

import models
import torch


def _granite_swa():
    from transformers import GraniteSWAConfig

    given = {name: value for name, value in models.SMALL.items() if name != "head_dim"}
    return GraniteSWAConfig(
        **given,
        sliding_window=24,
        attention_multiplier=32**-0.5,
        layer_types=["sliding_attention", "full_attention"],
    )


def _gemma2():
    config = models.KINDS["gemma2"]()
    config.hidden_act = config.hidden_activation  # SGLang reads both.
    return config


models.KINDS = models.KINDS | {
    "granite_swa": _granite_swa,
    "sglang_gemma2": _gemma2,
    "deepseek": functools.partial(models.deepseek, 64, 16),
}


def write(kind, folder):
    """Write a model's config and weights, of float16, into a folder."""
    models.write(kind, folder)


def logprobs(folder, prompts, answers):
    """Return the likeliest token at each place of answers, and the log-probability of each token that is there."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens, found = [], []
    with torch.inference_mode():
        for prompt, answer in zip(prompts, answers, strict=True):
            rows = model(torch.tensor([prompt + answer[:-1]])).logits[0, len(prompt) - 1 :].log_softmax(-1)
            tokens.append(rows.argmax(-1).tolist())
            found.append(rows.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist())
    return tokens, found
