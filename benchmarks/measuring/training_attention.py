# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One layer's attention over responses to one prompt, forward and backward, four ways: a part of `dev bench training`.

    packed           one forest, by attn's kernels
    prefix grouper   PrefixGrouper's way (arXiv 2506.05433), by PyTorch's attention: a prompt attends to itself once, and each
                     response to keys and values of the prompt and its own, joined in memory of its own
    sdpa             each response with a copy of its prompt, by PyTorch's attention
    trees            the same copies, by attn's kernels

Time is that of forward and backward, memory what these need above their inputs. Where DualKV's paper (arXiv 2605.15422) says
what its kernels take for a workload, on an H100, that stands beside: "paper, H100". Of its other rows prompts of 5K to 131K and
responses of 131 to 2,048 tokens are known, not the numbers of responses, which are ours.
"""

import functools
from dataclasses import asdict, dataclass

from measuring.timing import steps_in_turns

PAPER_MS = {(28, 4096, 2048): 133, (28, 16384, 2048): 468, (16, 32768, 2048): 679, (16, 65536, 2048): 1732}
SIDES = ("packed", "prefix grouper", "sdpa", "trees")
COPIED = 700_000  # Tokens that copies of a prompt may have: keys and values of more fill a GPU.
ROUNDS = 3


@dataclass(frozen=True)
class AttentionPoint:
    responses: int
    prompt: int
    response: int
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    @property
    def name(self):
        return f"attention, N = {self.responses}, P = {self.prompt}, R = {self.response}"

    @property
    def copied(self):
        return self.responses * (self.prompt + self.response)


POINTS = tuple(AttentionPoint(*sizes) for sizes in PAPER_MS) + tuple(
    AttentionPoint(16, prompt, response) for prompt in (5120, 16384, 131072) for response in (131, 512, 2048)
)


class AttentionSides:
    """Each side attends over the same rows: those of the prompt, then those of one response after the other."""

    def __init__(self, torch, point):
        import attn

        self.torch, self.point, self.attn = torch, point, attn
        rows = point.prompt + point.responses * point.response
        torch.manual_seed(1)
        shapes = [(rows, heads, point.dim) for heads in (point.q_heads, point.kv_heads, point.kv_heads)]
        self.given = [torch.randn(shape, device=point.device, dtype=torch.bfloat16) for shape in shapes]
        self.gradient = torch.randn_like(self.given[0])
        starts = torch.arange(point.responses + 1) * point.response + point.prompt
        self.forest = attn.Forest([0, *starts.tolist()], [-1] + [0] * point.responses)
        size = point.prompt + point.response
        ends = torch.arange(point.responses + 1) * size
        self.copies = attn.Forest(ends.tolist(), [-1] * point.responses)

    def split(self, tensor):
        """Return the prompt's rows [1, heads, P, dim], and the responses' [N, heads, R, dim]."""
        prompt, rest = tensor.split([self.point.prompt, len(tensor) - self.point.prompt])
        shape = self.point.responses, self.point.response
        return prompt[None].transpose(1, 2), rest.unflatten(0, shape).transpose(1, 2)

    def copied(self, tensor):
        """Return [N, heads, P + R, dim]: the prompt's gradients add up over its copies."""
        prompt, rest = self.split(tensor)
        return self.torch.cat([prompt.expand(self.point.responses, -1, -1, -1), rest], 2)

    def joined(self, prompt, rest):
        """Return rows of the forest, from those of its parts."""
        return self.torch.cat([part.transpose(1, 2).flatten(0, 1) for part in (prompt, rest)])

    def attend(self, side, q, k, v):
        """Return [rows, heads, dim] in the forest's order."""
        point, function = self.point, self.torch.nn.functional.scaled_dot_product_attention
        if side == "packed":
            return self.attn.attend(q, k, v, causal=True, forest=self.forest)
        if side == "prefix grouper":
            from torch.nn.attention.bias import causal_lower_right

            (prompt_q, own_q), (prompt_k, _), (prompt_v, _) = (self.split(tensor) for tensor in (q, k, v))
            prompt = function(prompt_q, prompt_k, prompt_v, is_causal=True, enable_gqa=True)
            mask = causal_lower_right(point.response, point.prompt + point.response)
            # SDPA takes equal heads only with a mask of its own kind.
            group = point.q_heads // point.kv_heads
            keys, values = (self.copied(tensor).repeat_interleave(group, 1) for tensor in (k, v))
            return self.joined(prompt, function(own_q, keys, values, attn_mask=mask))
        copies = [self.copied(tensor) for tensor in (q, k, v)]
        if side == "sdpa":
            out = function(*copies, is_causal=True, enable_gqa=True)
        else:
            flat = [tensor.transpose(1, 2).flatten(0, 1) for tensor in copies]
            out = self.attn.attend(*flat, causal=True, forest=self.copies)
            out = out.unflatten(0, (point.responses, -1)).transpose(1, 2)
        return self.joined(out[:1, :, : point.prompt], out[:, :, point.prompt :])

    def run(self, side):
        """Return gradients of queries, keys and values."""
        given = [tensor.detach().requires_grad_() for tensor in self.given]
        return self.torch.autograd.grad(self.attend(side, *given), given, self.gradient)


def measure_attention(torch, point, rounds=ROUNDS):
    """Measure each side: milliseconds, and on a GPU bytes at the peak; and the distance of its gradients from prefix
    grouper's."""
    sides = AttentionSides(torch, point)
    names = [side for side in SIDES if side in SIDES[:2] or point.copied <= COPIED]
    wanted, found = sides.run("prefix grouper"), {}
    for side in names:
        pairs = zip(sides.run(side), wanted, strict=True)
        found[side] = {"error": max(float((a - b).float().norm() / b.float().norm()) for a, b in pairs)}
    del wanted
    functions = {side: functools.partial(sides.run, side) for side in names}
    for side, measured in steps_in_turns(torch, functions, rounds, point.device == "cuda").items():
        found[side] |= measured
    row = {"point": asdict(point), "sides": found}
    row["speedup"] = min(found[side]["ms"] for side in names[1:]) / found["packed"]["ms"]
    key = point.responses, point.prompt, point.response
    return row | ({"paper": {"ms": PAPER_MS[key], "device": "H100"}} if key in PAPER_MS else {})


def attention_line(point, row):
    parts = []
    for side, found in row["sides"].items():
        memory = f", {found['peak_bytes'] / 1e9:.1f} GB" if "peak_bytes" in found else ""
        parts.append(f"{side} {found['ms']:.1f} ms{memory}")
    if "paper" in row:
        parts.append(f"DualKV {row['paper']['ms']} ms (paper, {row['paper']['device']})")
    return f"{point.name}  {'; '.join(parts)}  {row['speedup']:.2f} times as fast"
