# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients behind a shared prompt: what `bench gpu` measures in shared-backward.

shared-backward  forward and backward behind a prompt that N responses share, one forest, against the same responses
                 each with a copy of the prompt, by attn and by cuDNN
"""

from dataclasses import dataclass

from measuring.described import Described
from parts.backward import PRODUCTS, finish, invite, sdpa, tensors_of, whole_side

# Forward and backward after a shared prompt, milliseconds at the rates of FlashAttention-3: responses,
# prompt.
SHARED_MS = {(28, 4096): 30, (28, 16384): 113, (16, 32768): 164, (16, 65536): 431}
SHARED_SLACK, SHARED_RATIO = 1.20, 5.3
COPIED = 1_000_000  # Rows that responses with copies of their prompt may have: more take seconds a run.


@dataclass(frozen=True)
class SharedPoint(Described):
    responses: int
    prompt: int
    response: int = 2048
    q_heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    device: str = "cuda"

    part = "shared-backward"
    peers = ("replicated", "cudnn, replicated")

    @property
    def name(self):
        return f"{self.responses} x {self.response} behind {self.prompt}"

    def pairs(self):
        """Return the number of pairs: a row sees its prompt and tokens up to itself, once however many responses there
        are."""
        own = self.response * (self.response + 1) // 2
        return self.prompt * (self.prompt + 1) // 2 + self.responses * (self.response * self.prompt + own)

    def flops(self):
        """Return the FLOPs: forward has two products, backward five."""
        return 2 * (2 + PRODUCTS) * self.pairs() * self.q_heads * self.dim

    def seconds(self):
        tokens = self.prompt + self.response
        replicated = self.responses * tokens * (tokens + 1) // 2 / self.pairs()
        return 10 + 10 * (1 + 2 * replicated) * self.flops() / 300e12


def shared_backward_points(quick):
    points = [SharedPoint(responses, prompt) for responses, prompt in SHARED_MS]
    return points[:1] if quick else points


def measure_shared_backward(point, bench):
    """Measure a point of shared-backward; returns its row of the file. Replicas are made once, and not timed."""
    torch, timer = bench.contest.torch, bench.contest.timer
    import attn

    rows = point.prompt + point.responses * point.response
    (q, k, v), d_out = tensors_of(torch, point, 1, rows)
    given = [tensor.detach()[0].requires_grad_() for tensor in (q, k, v)]
    starts = [0, *range(point.prompt, rows + 1, point.response)]
    forest = attn.Forest(node_start=starts, parent=[-1] + [0] * point.responses)
    packed = whole_side(
        torch, lambda q, k, v: attn.attend(q, k, v, forest=forest, causal=True), given, d_out[0]
    )
    sides, declined = {"attn": packed}, {}

    if point.responses * (point.prompt + point.response) <= COPIED:
        invite_replicas(torch, point, given, d_out[0], sides, declined)
    else:
        declined["replicated"] = f"more than {COPIED:,} rows"
    row = finish(point, torch, timer, sides, declined, None)
    return row | {"responses": point.responses, "prompt": point.prompt}


def invite_replicas(torch, point, given, d_out, sides, declined):
    """Add responses that each have a copy of the prompt, by attn and by cuDNN."""
    import attn

    def replicas(tensor):
        shape = (point.responses, point.response, *tensor.shape[1:])
        prompt = tensor[: point.prompt].expand(point.responses, *tensor[: point.prompt].shape)
        return torch.cat((prompt, tensor[point.prompt :].reshape(shape)), 1)

    copies = [replicas(tensor.detach()).requires_grad_() for tensor in given]
    d_copies = replicas(d_out)
    make = lambda attention: whole_side(torch, attention, copies, d_copies)  # noqa: E731
    ours = [("replicated", lambda q, k, v: attn.attend(q, k, v, causal=True))]
    invite(sides, declined, make, ours)
    invite(sides, declined, make, [("cudnn, replicated", sdpa(torch, "cudnn", True))])


def shared_backward_bars(row):
    size = row["responses"], row["prompt"]
    found = []
    if size in SHARED_MS:
        most = SHARED_SLACK * SHARED_MS[size]
        found.append((f"{most:.0f} ms", row["attn"]["run_ms"] <= most))
    if size == (16, 32768) and row["peers_ms"]:
        found.append(
            (f"{SHARED_RATIO} times as fast as replicated", row["ratio_to_best_peer"] >= SHARED_RATIO)
        )
    return found
