# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chats that share a system prompt: its pages are read once, and each chat goes on behind a fork of them."""

import argparse
import copy

import answer
import smollm2
import torch

SYSTEM = (
    "You are a helpful assistant for visitors of a small museum of science. Answer in one short sentence. The museum opens "
    "at nine and closes at five. Children pay nothing. The planetarium is on the second floor, beside the library."
)
QUESTIONS = ("When does the museum open?", "Where is the planetarium?", "What do children pay?")
PAGES = 64


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--tokens", type=int, default=24, help="of an answer, at most")
    asked = parser.parse_args()
    device = smollm2.device()
    model, tokens = smollm2.load(torch.float16, device), smollm2.tokenizer()
    import attn.transformers

    chats = [smollm2.chat(tokens, question, system=SYSTEM) for question in asked.questions]
    shared = answer.common(chats)
    shared -= shared % 16  # whole pages: a fork copies none of them
    pages = attn.transformers.PagedCache(model.config, pages=PAGES)
    read, alone = shared, 0
    with torch.inference_mode():
        model(torch.tensor([chats[0][:shared]], device=device), past_key_values=pages)
        forks = []  # which keep their pages while they are here
        for question, chat in zip(asked.questions, chats, strict=True):
            forks.append(copy.deepcopy(pages))
            ids = torch.tensor([chat], device=device)
            options = {
                "max_new_tokens": asked.tokens,
                "do_sample": False,
                "attention_mask": torch.ones_like(ids),
            }
            made = model.generate(ids, past_key_values=forks[-1], **options)
            text = tokens.decode(made[0, len(chat) :], skip_special_tokens=True)
            print(f"> {question}\n{text}")
            read, alone = read + made.shape[1] - 1 - shared, alone + made.shape[1] - 1
    taken = PAGES - pages.pages.free_pages()
    print(
        f"{read} tokens were read instead of {alone}; {taken} pages hold {len(chats)} chats, {shared} tokens of each once"
    )


if __name__ == "__main__":
    main()
