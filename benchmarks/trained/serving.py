# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Part `serving`: an answer behind a long prompt, and many requests at once, beside PyTorch's attentions in one process.

Every token that was made is compared with float32 eager attention, which reads the whole text at once: the share of tokens
that it likes best too, and where it prefers others, the largest gap between the two logits. A GPU generates 512 tokens behind
6,144 and serves 64 requests; a CPU does a few. PyTorch's ways behind a long prompt make a quarter of the tokens: each takes as
long as the one before.

Models are float16. An engine serves the float32 model, too, over pages in float16: the model's own rounding, which is most of
what the others have (part `rounding`), is left out there.
"""

import functools
import gc
import time

import attn.transformers
import smollm2
import torch

PYTORCHS = {"SDPA": "sdpa", "eager": "eager"}
"""PyTorch's attentions, by their names in results."""


class Clock:
    """Seconds of a call, and gigabytes at its peak above `before`: pools that were made earlier count."""

    def __init__(self, device, before):
        self.cuda, self.before = device == "cuda", before
        if self.cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self.begin = time.perf_counter()

    def seconds(self):
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - self.begin

    def gb(self):
        return (torch.cuda.max_memory_allocated() - self.before) / 1e9 if self.cuda else None


def loaded(load, device):
    """A float32 model and bytes in use once the weights of all models are there."""
    exact, *_ = (
        load(torch.float32, "eager"),
        load(torch.float32, "attn"),
        *(load(torch.float16, each) for each in ("attn", "sdpa", "eager")),
    )
    return exact, torch.cuda.memory_allocated() if device == "cuda" else 0


def against(exact, prompts, answers):
    """How tokens agree with those that a float32 model likes best after the same text."""
    same, gaps = 0, [0.0]
    for prompt, made in zip(prompts, answers, strict=True):
        text = torch.tensor([[*prompt, *made[:-1]]], device=exact.device)
        logits = exact(text, logits_to_keep=len(made)).logits[0]
        gap = logits.amax(-1) - logits.gather(1, torch.tensor(made, device=exact.device)[:, None])[:, 0]
        same += (gap == 0).sum().item()
        gaps.append(gap.max().item())
    total = sum(map(len, answers))
    return {"tokens": total, "same": same / total, "others": total - same, "largest_gap": max(gaps)}


def generated(model, prompt, count, cache=None):
    """Tokens by Transformers' `generate`, all of them equally many."""
    ids = torch.tensor([prompt], device=model.device)
    options = {"past_key_values": cache() if cache else None, "pad_token_id": 0, "eos_token_id": None}
    shown = torch.ones_like(ids)
    made = model.generate(ids, attention_mask=shown, max_new_tokens=count, do_sample=False, **options)
    return made[0, len(prompt) :].tolist()


def decoded(model, prompt, count, pages):
    """A function of a number of tokens: they come in recorded steps over pages."""
    cache = attn.transformers.PagedCache(model.config, pages=pages)
    decoder = attn.transformers.Decoder(
        model, sequences=1, tokens=len(prompt) + count, cache=cache, compile=False
    )
    ids = torch.tensor([prompt], device=model.device)

    def run(count):
        made = decoder.generate(ids, max_new_tokens=count, eos_token_id=())
        return made[0, len(prompt) :].tolist()

    return run


def measure_one(load, device, prompt, count):
    """A row for each way to make so many tokens behind a prompt."""
    pages = -(-(len(prompt) + count) // 16) + 1
    exact, before = loaded(load, device)

    def ways():
        model = load(torch.float16, "attn")
        paged = functools.partial(attn.transformers.PagedCache, model.config, pages=pages)
        yield "attn, pages", functools.partial(generated, model, prompt, cache=paged)
        yield "attn, pages, recorded", decoded(model, prompt, count, pages)
        for name, attention in PYTORCHS.items():
            model = load(torch.float16, attention)
            yield f"{name}, dynamic cache", functools.partial(generated, model, prompt)

    for name, run in ways():
        new = count if name.startswith("attn") else max(count // 4, 2)
        run(4)  # compiles, and records the steps
        clock = Clock(device, before)
        run(1)
        first = clock.seconds()
        clock = Clock(device, before)
        made = run(new)
        rate, gb = (new - 1) / (clock.seconds() - first), clock.gb()
        yield {
            "part": "serving",
            "case": f"1 x {len(prompt)} + {count}",
            "way": name,
            "ttft_s": first,
            "tokens_s": rate,
            "gb": gb,
            **against(exact, [prompt], [made]),
        }


def served(model, prompts, count, rows):
    """A function that serves all prompts at once; gives answers and the seconds to each first token."""
    most = max(map(len, prompts)) + count
    pages = sum(-(-(len(prompt) + count) // 16) + 1 for prompt in prompts)
    cache = attn.transformers.PagedCache(model.config, pages=pages, dtype=torch.float16)
    engine = attn.transformers.Engine(
        model, cache=cache, sequences=len(prompts), tokens=most, rows=rows, compile=False
    )

    def run(count):
        begin, first, found = time.perf_counter(), {}, {}
        names = [engine.add_request(prompt, max_new_tokens=count, eos_token_id=()) for prompt in prompts]
        while engine.has_unfinished_requests():
            for output in engine.step():
                first.setdefault(output.request_id, time.perf_counter() - begin)
                found[output.request_id] = output.token_ids
        return [found[name] for name in names], sum(first.values()) / len(first)

    return run


def batched(model, prompts):
    """Return a function that answers them by `generate`, as one batch, padded on the left."""
    most = max(map(len, prompts))
    ids = torch.tensor([[0] * (most - len(prompt)) + prompt for prompt in prompts], device=model.device)
    shown = torch.tensor(
        [[0] * (most - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
    )

    def run(count):
        options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        begin = time.perf_counter()
        made = model.generate(ids, attention_mask=shown, max_new_tokens=count, **options)
        return made[:, most:].tolist(), time.perf_counter() - begin

    return run


def measure_many(load, device, prompts, count, rows):
    """A row for each way to answer many requests."""
    exact, before = loaded(load, device)
    sides = {"attn, Engine": ("attn", torch.float16), "attn, Engine, float32 model": ("attn", torch.float32)}
    sides |= {f"{name}, padded batch": (each, torch.float16) for name, each in PYTORCHS.items()}
    for name, (attention, dtype) in sides.items():
        model = load(dtype, attention)
        run = served(model, prompts, count, rows) if attention == "attn" else batched(model, prompts)
        _, first = run(4)
        if attention != "attn":
            _, first = run(1)
        clock = Clock(device, before)
        answers, mean = run(count)
        seconds = clock.seconds()
        yield {
            "part": "serving",
            "case": f"{len(prompts)} requests of {min(map(len, prompts))} to {max(map(len, prompts))} + {count}",
            "way": name,
            "ttft_s": mean if attention == "attn" else first,
            "tokens_s": len(prompts) * count / seconds,
            "gb": clock.gb(),
            **against(exact, prompts, answers),
        }


def measure_serving(load, asked):
    """Yield rows of both cases."""
    device, text = asked.device, smollm2.tokenizer()(smollm2.prose()).input_ids
    if device == "cuda" and not asked.quick:
        alone, many = (6144, 512), (64, 64, 512)
        prompts = [text[700 * at : 700 * at + 96 + 23 * at] for at in range(many[0])]
    else:
        alone, many = ((64, 4), (3, 6, 64)) if asked.quick else ((512, 32), (8, 16, 64))
        prompts = [text[97 * at : 97 * at + 20 + 5 * at] for at in range(many[0])]
    with torch.inference_mode():
        yield from measure_one(load, device, text[: alone[0]], alone[1])
        yield from measure_many(load, device, prompts, *many[1:])


def add_options(parser):
    pass


def line(row):
    size = "" if row["gb"] is None else f", {row['gb']:.2f} GB"
    return (
        f"{row['case']:34} {row['way']:27} first {1e3 * row['ttft_s']:8.1f} ms, {row['tokens_s']:8.1f} tokens/s{size}"
        f"  {row['same']:.2%} as float32, {row['others']} others, gaps up to {row['largest_gap']:.4f}"
    )


PARTS = {"serving": measure_serving}
