# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Queries of the installed Transformers: the answers are those of its own caches and models."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
from attn.adapters.transformers_config import CACHE, cache_argument, cache_name, kept_columns  # noqa: E402


@pytest.mark.parametrize("tokens", [0, -2, -7])
def test_crop_keeps_what_caches_of_transformers_keep(tokens):
    layer = transformers.cache_utils.DynamicLayer()
    layer.update(torch.zeros(1, 1, 7, 4), torch.zeros(1, 1, 7, 4))
    layer.crop(tokens)
    assert kept_columns(tokens, 7) == layer.get_seq_length()


def test_crop_keeps_the_first_columns_in_every_version():
    assert [kept_columns(tokens, 7) for tokens in (1, 7, 9, -9)] == [1, 7, 7, 0]


def test_a_cache_is_given_as_models_take_it():
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1, vocab_size=8
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert cache_name(model.forward) == CACHE and cache_argument(model, 3) == {CACHE: 3}

    class Elsewhere(torch.nn.Module):
        def forward(self, input_ids, past_key_values=None):
            return input_ids

    assert cache_argument(Elsewhere(), 3) == {"past_key_values": 3}


def test_pages_can_be_cropped():
    """Assisted generation of Transformers 5.24 asks this."""
    config = transformers.LlamaConfig(num_hidden_layers=2)
    cache = attn.transformers.PagedCache(config, pages=4)
    assert all(layer.is_croppable for layer in cache.layers) and getattr(cache, "is_croppable", True)
