# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models, padded prompts, and the output of `generate` for them, for tests of recorded steps. They import PyTorch from
here and are skipped without it. Also records of PyTorch's operations in a step."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")

import attn.heads  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

COLUMNS, NEW = 21, 12
PADDING = (5, 0, 11)
DTYPES = {"attn": torch.bfloat16, "sdpa": torch.float32, "eager": torch.float32}


def build(name="Llama", implementation="attn", seed=1, dtype=None, **changes):
    kind = getattr(transformers, f"{name}ForCausalLM")
    changes = {"initializer_range": 0.3, "eos_token_id": None} | changes
    return model_zoo.build(kind, implementation, dtype or DTYPES[implementation], seed, **changes)


def prompt(padding=PADDING, columns=COLUMNS, seed=0):
    ids = torch.randint(3, 90, (len(padding), columns), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        ids[row, :count], mask[row, :count] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def reference(model, inputs, new=NEW, **options):
    return model.generate(**inputs, max_new_tokens=new, do_sample=False, **options)


def decoder_of(model, inputs, room=NEW - 1, **options):
    sequences, columns = inputs["input_ids"].shape
    return attn.transformers.Decoder(model, sequences=sequences, tokens=columns + room, **options)


def paged(model, pages=64, **options):
    return attn.transformers.PagedCache(model.config, pages=pages, page_size=4, **options)


class Work(TorchDispatchMode):
    """Record PyTorch's operations, and those that would wait for a GPU, or copy from memory that has changed by the
    time of a replay."""

    ASKED = {
        "_local_scalar_dense",
        "nonzero",
        "equal",
        "is_nonzero",
        "masked_select",
        "lift_fresh",
        "multinomial",
    }

    def __init__(self):
        super().__init__()
        self.names, self.waits = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.partition("::")[2]
        boolean = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
        moved = name == "_to_copy" and "device" in kwargs and kwargs.get("dtype") in (None, args[0].dtype)
        self.names.append(name)
        if name in self.ASKED or boolean or moved:
            self.waits.append(name)
        return function(*args, **kwargs)


def watch_steps(decoder):
    """Return lists that get the Work of each of a decoder's future steps, and the addresses of its tensors in them."""
    steps, places, run = [], [], decoder._next

    def watched(choice):
        with Work() as work:
            run(choice)
        steps.append(work)
        places.append([tensor.data_ptr() for tensor in vars(decoder._state).values()])

    decoder._next = watched
    return steps, places
