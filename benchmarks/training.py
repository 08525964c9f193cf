# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of a model that train on responses to one prompt, packed against replicated: `dev bench training`.

Layers of Qwen3-8B's shape with random weights, checkpointed, run forward and backward over N responses of R tokens to a prompt
of P: over a packed micro-batch; over copies, by PyTorch's attention; over copies as a forest of N trees, by attn's kernels. What
counts is the time of the whole stack, its peak of memory above weights and gradients, and the share of the device's arithmetic
that it keeps busy (MFU), where a side's work is what `attn.training.report` counts, without what checkpointing repeats. Behind
them stands attention alone, of prompts up to 131K, beside PrefixGrouper's way (training_attention.py).
"""

import argparse
import functools
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring.report import import_attn, write_report
from measuring.timing import steps_in_turns
from measuring.training_attention import POINTS as ATTENTION_POINTS
from measuring.training_attention import attention_line, measure_attention

PEAK = {"H100": 989.4e12, "H200": 989.4e12}  # Dense bf16 FLOP/s, by NVIDIA's data sheets.
SIDES = ("packed", "sdpa", "trees")
ROUNDS = 3


@dataclass(frozen=True)
class TrainingPoint:
    """N responses of R tokens to a prompt of P; sizes of Qwen3-8B, unless said otherwise."""

    responses: int
    prompt: int
    response: int
    layers: int = 4
    hidden: int = 4096
    inner: int = 12288
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    device: str = "cuda"

    @property
    def name(self):
        return f"N = {self.responses}, P = {self.prompt}, R = {self.response}"


POINTS = (TrainingPoint(16, 8192, 2048), TrainingPoint(8, 16384, 2048), TrainingPoint(28, 4096, 2048))


def make_model(torch, point):
    """Return a decoder without head; its vocabulary is small, as no embedding is measured."""
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=point.hidden,
        intermediate_size=point.inner,
        num_hidden_layers=point.layers,
        num_attention_heads=point.q_heads,
        num_key_value_heads=point.kv_heads,
        head_dim=point.head_dim,
        max_position_embeddings=point.prompt + point.response,
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    with torch.device(point.device):
        model = Qwen3Model(config).to(torch.bfloat16)
    model.train().gradient_checkpointing_enable({"use_reentrant": False})
    return model


class Sides:
    """A forward and backward pass of each side. The gradient of a response's rows is the same in all of them, that of a
    prompt's rows is zero."""

    def __init__(self, torch, point):
        from attn.training import Tree, group, pack

        self.torch, self.point = torch, point
        self.model = make_model(torch, point)
        ids = torch.randint(1, 1024, (point.prompt + point.responses * point.response,))
        prompt, responses = ids[: point.prompt], ids[point.prompt :].view(point.responses, -1)
        responses[:, 0] = torch.arange(point.responses)  # They share only the prompt.
        (self.packed,) = pack([group(prompt, list(responses))])
        rows = torch.cat([prompt.expand(point.responses, -1), responses], 1)
        self.copies = rows.to(point.device)
        # Trees with different first tokens share nothing; one token of 10,000 is another one.
        apart = rows.clone()
        apart[:, 0] = torch.arange(point.responses)
        (self.trees,) = pack([Tree(row) for row in apart])
        shape = point.responses, point.response, point.hidden
        self.gradient = torch.randn(shape, dtype=torch.bfloat16).to(point.device)

    def run(self, side):
        """Run a side; weights' gradients add up."""
        from attn.training import packed_model

        if side == "sdpa":
            rows = self.model(self.copies, use_cache=False).last_hidden_state
            rows[:, self.point.prompt :].backward(self.gradient)
            return
        packed = self.packed if side == "packed" else self.trees
        with packed_model(self.model, packed):
            rows = self.model(packed.input_ids(self.point.device)).last_hidden_state[0]
        self._responses(rows, side).backward(self.gradient)

    def _responses(self, rows, side):
        point = self.point
        if side == "packed":
            return rows[point.prompt :].view(point.responses, point.response, -1)
        return rows.view(point.responses, -1, rows.shape[1])[:, point.prompt :]

    def gradients(self, side):
        """Return the gradients of all layers' weights, in one row."""
        self.model.zero_grad()
        self.run(side)
        weights = [weight for name, weight in self.model.named_parameters() if name.startswith("layers.")]
        return self.torch.cat([weight.grad.float().flatten() for weight in weights])


def measure(torch, point, rounds=ROUNDS):
    """Measure each side: milliseconds, bytes of activations at the peak, MFU; and the distance of its gradients from
    those of copies."""
    from attn.training import report

    sides = Sides(torch, point)
    cuda = point.device == "cuda"
    found, wanted = {}, sides.gradients("sdpa")
    for side in SIDES:
        error = (sides.gradients(side) - wanted).norm() / wanted.norm()
        found[side] = {} if side == "trees" else {"error": float(error)}  # Its first tokens are others.
    del wanted
    counted = report(sides.packed, sides.model.config)
    flops = {side: counted.flops if side == "packed" else counted.replicated_flops for side in SIDES}
    peak_flops = next(
        (rate for name, rate in PEAK.items() if cuda and name in torch.cuda.get_device_name()), None
    )
    functions = {side: functools.partial(sides.run, side) for side in SIDES}
    for side, measured in steps_in_turns(torch, functions, rounds, cuda).items():
        found[side] |= measured
        if peak_flops:
            found[side]["mfu"] = flops[side] / (measured["ms"] / 1e3) / peak_flops
    best = min(found[side]["ms"] for side in SIDES[1:])
    row = {"point": asdict(point), "sharing": counted.sharing, "sides": found}
    row["speedup"] = best / found["packed"]["ms"]
    if cuda:
        least = min(found[side]["peak_bytes"] for side in SIDES[1:])
        row["memory"] = found["packed"]["peak_bytes"] / least
    return row


def line(point, row):
    parts = []
    for side, found in row["sides"].items():
        told = [f"{found['ms']:.1f} ms"]
        if "peak_bytes" in found:
            told.append(f"{found['peak_bytes'] / 1e9:.1f} GB")
        if "mfu" in found:
            told.append(f"MFU {found['mfu']:.2f}")
        parts.append(f"{side} {', '.join(told)}")
    return (
        f"{point.name}  sharing {row['sharing']:.2f}  {'; '.join(parts)}  {row['speedup']:.2f} times as fast"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    most = len(POINTS + ATTENTION_POINTS)
    parser.add_argument("--points", type=int, default=most, help="measure so many, from the first")
    args = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        parser.error("no GPU was found: expected one of CUDA")
    import_attn()
    rows, about = [], {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for point in (POINTS + ATTENTION_POINTS)[: args.points]:
        of_layers = isinstance(point, TrainingPoint)
        rows.append((measure if of_layers else measure_attention)(torch, point) | about)
        print((line if of_layers else attention_line)(point, rows[-1]), flush=True)
        torch.cuda.empty_cache()
    write_report(args.json, "training", rows)


if __name__ == "__main__":
    main()
