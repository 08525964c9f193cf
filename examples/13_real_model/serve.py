# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An engine that answers several questions at once, each with its own options, and streams the answers."""

import argparse

import smollm2
import torch
from chat import QUESTIONS, SYSTEM


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--tokens", type=int, default=24, help="of an answer, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest tokens")
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first question; each next one has one more"
    )
    parser.add_argument("--stop", action="append", default=[], help="a string that ends an answer")
    parser.add_argument("--pages", type=int, default=64)
    parser.add_argument("--key", help="the format of keys, such as int8")
    parser.add_argument("--value", help="the format of values, such as int4")
    asked = parser.parse_args()
    device = smollm2.device()
    model, tokens = smollm2.load(torch.float16, device), smollm2.tokenizer()
    import attn.transformers

    formats = {name: given for name in ("key", "value") if (given := getattr(asked, name))}
    cache = attn.transformers.PagedCache(model.config, pages=asked.pages, **formats)
    sizes = {"sequences": 2, "tokens": 256, "rows": 64}
    engine = attn.transformers.Engine(model, cache=cache, tokenizer=tokens, prefix_cache=True, **sizes)
    options = {"max_new_tokens": asked.tokens, "stop": asked.stop, "logprobs": 0}
    if asked.temperature:
        options |= {"do_sample": True, "temperature": asked.temperature, "top_p": asked.top_p}
    streams = [
        engine.stream(smollm2.chat(tokens, question, system=SYSTEM), seed=asked.seed + number, **options)
        for number, question in enumerate(asked.questions)
    ]
    for question, stream in zip(asked.questions, streams, strict=True):
        print(f"> {question}")
        for output in stream:  # Each step serves all of them.
            print(output.new_text, end="", flush=True)
        chosen = zip(output.logprobs, output.token_ids, strict=True)
        mean = sum(found[token] for found, token in chosen) / len(output.token_ids)
        reason = (
            f"{output.finish_reason} {output.stop_reason!r}" if output.stop_reason else output.finish_reason
        )
        first = output.times.first_token - output.times.arrival
        print(
            f"\n  [{reason}, {output.cached_tokens} tokens from kept pages, mean log-probability {mean:.2f},",
            end="",
        )
        print(f" first token after {first:.1f} s]")
    found = engine.metrics()
    print(
        f"{found.steps} steps read {found.rows} tokens and chose {found.new_tokens}; {found.cached_tokens} of "
        f"{found.prompt_tokens} tokens of prompts were in kept pages"
    )


if __name__ == "__main__":
    main()
