# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients on a GPU: what `bench gpu` measures in backward.

  backward         dQ, dK and dV of dense causal and full attention in bf16, by autograd: attn against cuDNN,
                   FlashAttention and FlashAttention-4 on the same tensors; TFLOP/s of five products of every visible
                   pair

Sides take turns; one of them has sums in a fixed order (`ordered=True`). Before anything is timed, attn's gradients are
compared with a peer's.
"""

from dataclasses import dataclass
from functools import partial

from measuring.described import Described
from measuring.peers import EXPANDS, flash4_attention, reason

ORDERED = "ordered"  # attn's side with sums in a fixed order.
OURS = ("attn", ORDERED)
OF_KEYS, OF_VALUES = 3, 2  # Products of a backward pass: scores, dQ and dK; the gradient of weights and dV.
PRODUCTS = OF_KEYS + OF_VALUES
DIFFERENCE = 0.02  # The most between two gradients in bf16: the distance over the length of the peer's.
SLOWDOWN = 1.20  # The most that sums in a fixed order may take over those in none.
CLOSE = 1.3  # A peer is measured sustained if alone it takes at most so many times the best side's time.


ODD_GROUPS = (3, 4, 5, 6, 7)  # And one that fills tiles, with which the others are compared.
WIDE = (192, 256)  # Heads with kernels of their own for dk and dv.


@dataclass(frozen=True)
class BackwardPoint(Described):
    batch: int
    tokens: int
    q_heads: int
    kv_heads: int
    dim: int = 128
    causal: bool = True
    device: str = "cuda"
    value_dim: int | None = None  # If it differs from dim.

    part = "backward"
    peers = ("cudnn", "flash", "flash4")

    @property
    def name(self):
        see = "causal" if self.causal else "full"
        dims = f"d{self.dim}/{self.value_dim}" if self.value_dim else f"d{self.dim}"
        return f"{dims} {self.q_heads}/{self.kv_heads} {see} {self.batch} x {self.tokens}"

    def pairs(self):
        return (
            self.batch * self.tokens * (self.tokens + 1) // 2 if self.causal else self.batch * self.tokens**2
        )

    def flops(self):
        dims = OF_KEYS * self.dim + OF_VALUES * (self.value_dim or self.dim)
        return 2 * self.pairs() * self.q_heads * dims

    def seconds(self):
        return 6 + 120 * self.flops() / 300e12


def backward_points(quick):
    points = [
        BackwardPoint(1, 4096, 64, 8),
        BackwardPoint(1, 16384, 64, 8),
        BackwardPoint(1, 16384, 64, 8, causal=False),
        BackwardPoint(1, 8192, 64, 8),
        BackwardPoint(4, 4096, 32, 32),
        BackwardPoint(1, 16384, 64, 8, dim=64),
        BackwardPoint(8, 2048, 32, 8),
        BackwardPoint(2, 5003, 24, 8, dim=96),
        BackwardPoint(8, 2048, 12, 12, dim=64),
        BackwardPoint(16, 1024, 16, 16, dim=64, causal=False),
        BackwardPoint(1, 8192, 24, 8, dim=96),
        BackwardPoint(2, 4096, 128, 128, dim=192, value_dim=128),
        *(BackwardPoint(2, 8192, 8 * group, 8) for group in ODD_GROUPS),
        BackwardPoint(3, 3000, 28, 4),
        *(BackwardPoint(1, 8192, 16, 16, dim=dim) for dim in WIDE),
        BackwardPoint(32, 512, 32, 8),
    ]
    return points[:2] if quick else points


def tensors_of(torch, point, sequences, rows, value_dim=None):
    """Return q, k, v [sequences, rows, heads, dim], which require gradients, and the gradient of the output."""
    place = "cpu" if point.device == "host" else point.device
    torch.manual_seed(1)

    def made(heads, dim):
        return torch.randn(sequences, rows, heads, dim, device=place, dtype=torch.bfloat16)

    value_dim = value_dim or point.dim
    sizes = (point.q_heads, point.dim), (point.kv_heads, point.dim), (point.kv_heads, value_dim)
    return [made(*each).requires_grad_() for each in sizes], made(point.q_heads, value_dim)


def sdpa(torch, name, causal, expand=False):
    """Return a function of q, k, v by a backend of PyTorch."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    which = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name]

    def attention(q, k, v):
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        if expand:
            k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
        with sdpa_kernel(which):
            grouped = q.shape[1] != k.shape[1]
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped).transpose(1, 2)

    return attention


def backward_side(torch, attention, given, d_out):
    """Return a function that computes the gradients; saved tensors of the forward pass stay."""
    out = attention(*given)
    return lambda: torch.autograd.grad(out, given, d_out, retain_graph=True)


def whole_side(torch, attention, given, d_out):
    return lambda: torch.autograd.grad(attention(*given), given, d_out)


def distance(torch, found, expected):
    """Return the largest distance of a gradient from its peer's over the length of the latter."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).float().norm() / b.float().norm().clamp_min(1e-30)) for a, b in pairs)


def invite(sides, declined, make, attempts):
    """Add a peer by the first of its attempts that runs. Compilers raise errors of many types."""
    for label, attention in attempts:
        try:
            side = make(attention)
            side()
            sides[label] = side
            return
        except Exception as error:
            declined[label] = reason(error)


def ways(torch, name, causal):
    """Return the ways to call a backend: with grouped heads, or with keys and values of every head."""
    if name == "flash4":
        return [(name, lambda *given: flash4_attention(causal)(*given))]
    found = [(name, sdpa(torch, name, causal))]
    if name in EXPANDS:
        found.append((f"{name}, heads expanded", sdpa(torch, name, causal, expand=True)))
    return found


def measure_backward(point, bench):
    """Measure a point of backward; returns its row of the file."""
    torch, timer = bench.contest.torch, bench.contest.timer
    import attn

    given, d_out = tensors_of(torch, point, point.batch, point.tokens, point.value_dim)
    sides, declined = {}, {}
    sides["attn"] = backward_side(
        torch, lambda q, k, v: attn.attend(q, k, v, causal=point.causal), given, d_out
    )
    for name in point.peers:
        make = lambda attention: backward_side(torch, attention, given, d_out)  # noqa: E731
        invite(sides, declined, make, ways(torch, name, point.causal))
    in_order = partial(attn.attend, causal=point.causal, ordered=True)
    sides[ORDERED] = backward_side(torch, in_order, given, d_out)
    return finish(point, torch, timer, sides, declined, given)


def finish(point, torch, timer, sides, declined, given):
    """Compare, if sides have the same tensors, and time."""
    judge = next((name for name in sides if name not in OURS), None)
    difference = None
    if given is not None and judge is not None:
        expected = sides[judge]()
        difference = max(distance(torch, sides[name](), expected) for name in OURS if name in sides)
        del expected
        if not difference <= DIFFERENCE:
            raise RuntimeError(
                f"{point.key}: attn's gradients differ from those of {judge} by {difference:.3g} of their length, "
                f"expected at most {DIFFERENCE}"
            )
    alone = timer.alone(sides)
    host = {name: 1e6 * seconds for name, seconds in timer.host.items()}
    best = min((ms for name, ms in alone.items() if name not in OURS), default=0)
    close = {name: side for name, side in sides.items() if name in OURS or alone[name] <= CLOSE * best}
    sustained = timer.sustained(close, alone, lambda name: sides[name], {})
    times = {name: ms for name, ms in alone.items() if name not in OURS}
    ours = alone["attn"]
    row = {
        "key": point.key,
        "part": point.part,
        "name": point.name,
        "heads": [point.q_heads, point.kv_heads],
        "dim": point.dim,
        "visited_flops": point.flops(),
        "attn": {"run_ms": ours},
        "tflops": point.flops() / ours / 1e9,
        "peers_ms": times,
        "host_us": host,
        "sustained_ms": sustained,
        "sustained_tflops": point.flops() / sustained["attn"] / 1e9,
        "sustained_ratio": None,
        "judge": judge,
        "difference": difference,
        "declined": declined,
        "peak_bytes": torch.cuda.max_memory_allocated() if point.device != "host" else None,
    }
    if times:
        row["ratio_to_best_peer"] = min(times.values()) / ours
        found = [ms for name, ms in sustained.items() if name not in OURS]
        row["sustained_ratio"] = min(found) / sustained["attn"] if found else None
    if ORDERED in sides:
        row |= {"ordered_ms": alone[ORDERED], "ordered_slowdown": alone[ORDERED] / ours}
    return row


def backward_line(row):
    """Format a row as text."""
    text = f"  {row['name']:<28}{row['attn']['run_ms']:>9.3f} ms {row['tflops']:>6.0f} TFLOP/s"
    for name, milliseconds in sorted(row["peers_ms"].items(), key=lambda item: item[1]):
        text += f"  {name} {milliseconds:.3f}"
    if row["peers_ms"]:
        text += f"  x{row['ratio_to_best_peer']:.2f}"
    times = row["sustained_ms"]
    text += f"   sustained {times['attn']:.3f}, {row['sustained_tflops']:.0f} TFLOP/s"
    text += f"  x{row['sustained_ratio']:.2f}" if row["sustained_ratio"] else ""
    if "ordered_ms" in row:
        text += f"   ordered {row['ordered_ms']:.3f} x{row['ordered_slowdown']:.2f}"
    # Older files do not have the host's time.
    return text + (f"   host {row['host_us']['attn']:.0f} us" if "host_us" in row else "")


def backward_bars(row):
    found = []
    if row["peers_ms"]:
        found.append(("as fast as the best peer", row["ratio_to_best_peer"] >= 1))
    if "ordered_slowdown" in row:
        found.append((f"ordered at most {SLOWDOWN:.2f} times as long", row["ordered_slowdown"] <= SLOWDOWN))
    return found
