# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models on a GPU and padded prompts, for tests of recorded steps. They import PyTorch from here and are skipped
without a GPU. Also a check of the chosen tokens."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

import attn.heads  # noqa: E402
import attn.transformers  # noqa: E402

COLUMNS, NEW, PADDING = 150, 64, (5, 0, 111)
ROOM = COLUMNS + NEW
PAGES = 80  # of 16 tokens


def build(implementation, name="Llama", **changes):
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 1000,
        "max_position_embeddings": 1024,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
        "initializer_range": 0.3,
        "use_cache": True,
    }
    if name in ("Mistral", "Gemma2", "GptOss"):
        sizes["sliding_window"] = 64
    if name == "GptOss":  # uses all experts, since rounding would choose others
        sizes |= {"num_local_experts": 4, "num_experts_per_tok": 4}
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**(sizes | changes), attn_implementation=implementation)
    dtype = torch.bfloat16 if implementation == "attn" else torch.float32
    return getattr(transformers, f"{name}ForCausalLM")(config).to("cuda", dtype).eval()


def prompt(padding=PADDING, columns=COLUMNS, seed=0):
    ids = torch.randint(3, 990, (len(padding), columns), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        ids[row, :count], mask[row, :count] = 0, 0
    return {"input_ids": ids.cuda(), "attention_mask": mask.cuda()}


def paged(model, pages=PAGES, **formats):
    return attn.transformers.PagedCache(model.config, pages=pages, **formats)


def chosen_rightly(model, found, inputs, within=0.2):
    """Return whether each token is the likeliest after those before it, or as likely up to rounding, by one pass over
    all of them. `within` is in standard deviations; a blindly chosen token misses by about three."""
    columns = inputs["input_ids"].shape[1]
    mask = torch.nn.functional.pad(inputs["attention_mask"], (0, found.shape[1] - columns), value=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(found, attention_mask=mask, position_ids=places).logits[:, columns - 1 : -1].float()
    missing = logits.amax(2) - logits.gather(2, found[:, columns:, None])[:, :, 0]
    return bool((missing <= within * logits.std(2)).all())


def watch_waits(decoder):
    """Make every wait in a decoder's future steps an error. Return a list of the allocations in the steps of each call."""
    run, allocated = decoder._run, []

    def watched(*asked):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda.set_sync_debug_mode("error")
        try:
            run(*asked)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        allocated.append(torch.cuda.memory_stats()["allocation.all.allocated"] - before)

    decoder._run = watched
    return allocated


def watch_the_queue(decoder):
    """Delay the GPU before a decoder's steps. Return a list that tells, for each call, whether the delay ended while
    steps were queued."""
    run, seen = decoder._run, []

    def watched(*asked):
        torch.cuda._sleep(2_000_000_000)
        done = torch.cuda.Event()
        done.record()
        run(*asked)
        seen.append(done.query())

    decoder._run = watched
    return seen
