# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training over prompts that responses share, in two ways that should learn the same.

A `Side` is a model with its optimizer. The side "packed" holds each token that trajectories share once, by `attn.training`;
the side "replicated" gives each trajectory a copy of its prompt, as PyTorch's attention needs it. `Sums` and `Quiz` make
batches, and `compare` runs one update of both sides.

attn has no kernels in float32. So there are two precisions:

float32   on a CPU alone: attention of packed rows by the float64 reference, which is right and walks every pair of tokens
bfloat16  weights and optimizer in float32, products in bfloat16 by autocast, attention of packed rows by kernels, on a GPU or
          on the host device
"""

from __future__ import annotations

import copy
import random
import re
import time

import smollm2
import torch
from attn.training import edge_loss, edge_weights, group, logprobs, pack, packed_model, report

WAYS = ("packed", "replicated")
PRECISIONS = ("float32", "bfloat16")
RATE = 4e-6  # of learning


def choose_precision(device, asked=None):
    """The precision of a device, or what was asked for. ValueError for float32 on a GPU."""
    if device != "cpu" and asked == "float32":
        raise ValueError(
            "precision: expected bfloat16 on a GPU, as attn has no kernels in float32, got float32; its float64 reference "
            "runs on the CPU"
        )
    return asked or ("float32" if device == "cpu" else "bfloat16")


class Side:
    """A model and its optimizer, which trains in one of WAYS. `reference`: whether attention is the float64 reference."""

    def __init__(self, way, model, precision, rate=RATE):
        self.way, self.model, self.precision = way, model, precision
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        self.reference = precision == "float32"

    def logprobs(self, packed):
        """The log-probability of each edge's target, [edges]."""
        with self.autocast():
            if self.way == "replicated":
                return logprobs_of_copies(self.model, packed)
            return logprobs(self.model, packed, reference=self.reference)

    def cross_entropy(self, packed):
        """The mean of minus the log-probability over edges."""
        if self.way == "replicated":
            return -self.logprobs(packed).mean()
        with self.autocast(), packed_model(self.model, packed, reference=self.reference):
            device = self.model.device
            sources = torch.from_numpy(packed.sources).to(device)
            logits = self.model(input_ids=packed.input_ids(device), logits_to_keep=sources).logits
        return edge_loss(logits, packed)

    def autocast(self):
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def backward(self, loss_of):
        """The loss and the seconds of forward and backward; gradients stay in the model."""
        self.optimizer.zero_grad()
        begin = self.now()
        loss = loss_of(self)
        loss.backward()
        return loss.item(), self.now() - begin

    def step(self):
        """Update the weights; the seconds it took."""
        begin = self.now()
        self.optimizer.step()
        return self.now() - begin

    def now(self):
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return time.perf_counter()


def sides(model, precision, rate=RATE):
    """Both sides, of one model's weights."""
    twin = copy.deepcopy(model)
    return [Side(way, each, precision, rate) for way, each in zip(WAYS, (model, twin), strict=True)]


def logprobs_of_copies(model, packed):
    """The log-probability of each edge's target, [edges], where every trajectory is a row with tokens of its own, padded on
    the right."""
    ids = torch.zeros(len(packed.lengths), int(packed.lengths.max()), dtype=torch.long)
    for number, length in enumerate(packed.lengths):
        ids[number, :length] = torch.from_numpy(packed.tokens[packed.rows(number)])
    device = model.device
    of, at, targets = (
        torch.from_numpy(each).to(device)
        for each in (packed.edge_trajectory, packed.edge_position, packed.edge_target)
    )
    rows = model.model(input_ids=ids.to(device), use_cache=False).last_hidden_state
    logits = model.lm_head(rows[of, at - 1]).float()
    return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)


def compare(both, loss_of):
    """Run an update of both sides: a row with losses, how far gradients are apart and seconds. `loss_of(side)`: a scalar."""
    losses, seconds = {}, {}
    for side in both:
        losses[side.way], seconds[side.way] = side.backward(loss_of)
    apart = gradients_apart(*(gradients(side.model) for side in both))
    for side in both:
        seconds[side.way] += side.step()
    return {"loss": losses, "loss_apart": abs(losses["packed"] - losses["replicated"]), **apart, "s": seconds}


def gradients(model):
    """Gradients of weights by name."""
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def gradients_apart(found, wanted):
    """The largest difference of two sets of gradients as a share of the largest gradient wanted: over all weights, and of
    the weight tensor whose share of its own largest gradient is the worst. Beside them the norm of the difference as a
    share of the norm."""
    if found.keys() != wanted.keys():
        raise ValueError(
            f"gradients: expected those of the same weights, got others: {found.keys() ^ wanted.keys()}"
        )
    errors, sizes, squares = {}, {}, torch.zeros(2, dtype=torch.float64)
    for name, gradient in wanted.items():
        error = found[name] - gradient
        errors[name], sizes[name] = error.abs().max().item(), gradient.abs().max().item()
        squares += torch.tensor([error.norm().item() ** 2, gradient.norm().item() ** 2], dtype=torch.float64)
    if not max(sizes.values()):
        return {"gradients_apart": 0.0, "worst_weight_apart": 0.0, "norms_apart": 0.0}
    worst = max(errors[name] / sizes[name] for name in errors if sizes[name])
    return {
        "gradients_apart": max(errors.values()) / max(sizes.values()),
        "worst_weight_apart": worst,
        "norms_apart": (squares[0] / squares[1]).sqrt().item(),
    }


def shared(packed, config):
    """How many rows a micro-batch has, and how many copies would have."""
    counted = report(packed, config)
    return {"rows": counted.rows, "copies": counted.replicated_rows, "sharing": counted.sharing}


def line(row):
    """A row as text."""
    loss, seconds = row["loss"], row["s"]
    where = f"step {row['step']:2}"
    if row["task"] == "grpo":
        where += f".{row['update']}  reward {row['reward']:.3f}"
    return (
        f"{where}  loss {loss['packed']:+.6f} {loss['replicated']:+.6f}  apart {row['loss_apart']:.1e}, "
        f"gradients {row['gradients_apart']:.1e}  rows {row['rows']} of {row['copies']} ({row['sharing']:.1f} x)  "
        f"{seconds['packed']:.2f} s, copies {seconds['replicated']:.2f} s"
    )


# --- Reinforcement: sums ------------------------------------------------------------------------------------


class Sums:
    """So many sums of two digits, asked in turn after a chat with worked examples. All prompts have one length and begin
    alike."""

    SYSTEM = "You add small numbers. Answer with the number alone."

    def __init__(self, tokens, examples, pool, seed=0):
        self.tokens = tokens
        digits = random.Random(seed)
        sums = [(digits.randint(2, 9), digits.randint(2, 9)) for _ in range(examples + pool)]
        asked = [(f"What is {one} + {other}? Answer with the number.", one + other) for one, other in sums]
        self.turns = [text for question, answer in asked[:examples] for text in (question, str(answer))]
        self.pool, self.asked = asked[examples:], 0

    def ask(self, count):
        """So many prompts, lists of token ids, and their answers."""
        taken = [self.pool[(self.asked + number) % len(self.pool)] for number in range(count)]
        self.asked += count
        prompts = [smollm2.chat(self.tokens, *self.turns, text, system=self.SYSTEM) for text, _ in taken]
        return prompts, [answer for _, answer in taken]


def reward(text, answer):
    """1 for the right number, up to 0.25 for another number, the more the nearer, and 0 for other words."""
    said = re.fullmatch(r"(\d+)\.?", text.strip())
    if not said:
        return 0.0
    off = abs(int(said[1]) - answer)
    return 0.5 / (1 + off) if off else 1.0


@torch.no_grad()
def sample(model, prompts, responses, most, seed):
    """So many responses to each prompt, each up to the first end token or `most` tokens: lists of token ids."""
    torch.manual_seed(seed)
    given = torch.tensor(prompts, device=model.device)
    end = model.generation_config.eos_token_id
    options = {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "max_new_tokens": most,
        "pad_token_id": end,
    }
    made = model.generate(
        given, attention_mask=torch.ones_like(given), num_return_sequences=responses, **options
    )
    found = []
    for row in made[:, given.shape[1] :].tolist():
        found.append(row[: row.index(end) + 1] if end in row else row)
    return [found[at : at + responses] for at in range(0, len(found), responses)]


def advantages(rewards):
    """Each reward's distance from the mean of its group, in deviations: rewards [groups, responses]."""
    return (rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)


class Clipped:
    """The loss of GRPO: clipped ratios of probabilities, weighed by advantages. A side's first call notes its own
    log-probabilities, from which later ratios are taken."""

    def __init__(self, packed, weights, clip=0.2):
        self.packed, self.clip = packed, clip
        self.weights = edge_weights(weights, packed)
        self.before, self.beyond = {}, {}

    def __call__(self, side):
        found = side.logprobs(self.packed)
        ratio = (found - self.before.setdefault(side.way, found.detach())).exp()
        weights, kept = self.weights.to(found), ratio.clamp(1 - self.clip, 1 + self.clip)
        self.beyond[side.way] = (kept != ratio).float().mean().item()
        return -torch.minimum(ratio * weights, kept * weights).mean()


def rollout(model, task, questions, responses, most, seed):
    """A packed step of GRPO, the advantages of its trajectories, and the rewards [questions, responses]."""
    prompts, answers = task.ask(questions)
    made = sample(model, prompts, responses, most, seed)
    texts = [[task.tokens.decode(each, skip_special_tokens=True) for each in of_prompt] for of_prompt in made]
    rewards = torch.tensor(
        [[reward(text, answer) for text in each] for each, answer in zip(texts, answers, strict=True)]
    )
    (packed,) = pack([group(prompt, own) for prompt, own in zip(prompts, made, strict=True)])
    return packed, advantages(rewards).flatten()[torch.from_numpy(packed.trajectories)], rewards


def grpo(both, task, *, steps, questions, responses, most=8, updates=2, seed=0):
    """Steps of GRPO on both sides, from samples of the packed side: a row for each update."""
    for step in range(steps):
        begin = time.perf_counter()
        packed, weights, rewards = rollout(both[0].model, task, questions, responses, most, seed + step)
        sampled, loss = time.perf_counter() - begin, Clipped(packed, weights)
        for update in range(updates):
            row = compare(both, loss)
            about = {"step": step, "update": update, "reward": rewards.mean().item(), "sample_s": sampled}
            about["beyond_clip"] = loss.beyond["packed"]
            yield {"task": "grpo", **about, **shared(packed, both[0].model.config), **row}


# --- Fine-tuning: a quiz on a section -----------------------------------------------------------------------


class Quiz:
    """Questions about sections of Python's language reference: how does the sentence that begins so go on?"""

    def __init__(self, tokens, section_tokens, seed=0):
        self.tokens, self.size, self.random = tokens, section_tokens, random.Random(seed)
        self.ids, self.at = tokens(smollm2.prose()).input_ids, 0

    def trees(self, questions):
        """A prompt and its answer for each question about the next section; all prompts begin with the section."""
        section = self.tokens.decode(self.ids[self.at : self.at + self.size])
        self.at = (self.at + self.size) % (len(self.ids) - self.size)
        words = section.split()
        starts = range(len(words) - 15)
        if questions > len(starts):
            raise ValueError(
                f"questions: expected at most {len(starts)}, as the section has {len(words)} words, got {questions}"
            )
        made = []
        for start in self.random.sample(starts, questions):
            begin, rest = " ".join(words[start : start + 5]), " ".join(words[start + 5 : start + 15])
            prompt = smollm2.chat(self.tokens, f'{section}\n\nHow does the text go on after "{begin}"?')
            made.append(group(prompt, [self.tokens(rest).input_ids + [self.tokens.eos_token_id]]))
        return made


def sft(both, task, *, steps, questions):
    """Steps of fine-tuning on both sides: a row for each."""
    for step in range(steps):
        (packed,) = pack(task.trees(questions))
        row = compare(both, lambda side: side.cross_entropy(packed))  # noqa: B023
        yield {"task": "sft", "step": step, **shared(packed, both[0].model.config), **row}
