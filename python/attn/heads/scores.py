# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gates without training: the cost of streaming for each head alone, and the attention that it would lose."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from .distill import Progress, attend_full
from .models import Decoder, texts_of
from .two_outputs import attend_both, mix


def ablate(
    decoder: Decoder, data: Callable, sink: int, recent: int, steps: int, progress: Callable | None
) -> Tensor:
    """Return float32 [layers, kv_heads]: how far the hidden states of tokens that count move if only this head streams,
    mean square over all texts, as a share of the farthest."""
    layers, heads = len(decoder.layers), decoder.kv_heads
    moved = torch.zeros(layers, heads, dtype=torch.float64)
    begun = time.monotonic()

    def streaming_alone(one_layer: int, one_head: int):
        def attend(layer, q, k, v, scale, window):
            if layer != one_layer:
                return attend_full(q, k, v, scale, window)
            full, _, streaming, _ = attend_both(q, k, v, sink=sink, recent=recent, window=window, scale=scale)
            gates = torch.ones(heads, device=q.device)
            gates[one_head] = 0
            return mix(full, streaming, gates)

        return attend

    with torch.no_grad():
        for step in range(steps):
            tokens, counted = texts_of(data, step)
            counted = counted.to(decoder.device)
            wanted = decoder.hidden(tokens, lambda layer, *given: attend_full(*given))[counted].float()
            for layer in range(layers):
                for head in range(heads):
                    found = decoder.hidden(tokens, streaming_alone(layer, head))[counted].float()
                    moved[layer, head] += (found - wanted).square().mean().item() / steps
            if progress is not None:
                left = (time.monotonic() - begun) / (step + 1) * (steps - step - 1)
                distance = moved.mean().item() * steps / (step + 1)
                sparse = (moved < moved.max() / 2).double().mean().item()
                progress(Progress(step + 1, steps, distance, distance, sparse, left))
    return (moved / moved.max().clamp(min=torch.finfo(torch.float64).tiny)).float()


def weigh(
    decoder: Decoder, data: Callable, sink: int, recent: int, steps: int, progress: Callable | None
) -> Tensor:
    """Return float32 [layers, kv_heads]: the share of the attention of tokens that count that a streaming head would
    not see, mean over all texts, for the query head of the group that loses most."""
    layers, heads = len(decoder.layers), decoder.kv_heads
    shares = torch.zeros(layers, heads, dtype=torch.float64)
    begun = time.monotonic()
    with torch.no_grad():
        for step in range(steps):
            tokens, counted = texts_of(data, step)
            rows = counted.to(decoder.device)

            def attend(layer, q, k, v, scale, window, rows=rows):
                full, lse, _, near = attend_both(
                    q, k, v, sink=sink, recent=recent, window=window, scale=scale
                )
                missed = -torch.expm1(near - lse).transpose(0, 1)[:, rows].mean(1)
                shares[layer] += missed.view(heads, -1).amax(1).double().cpu() / steps
                return full

            decoder.hidden(tokens, attend)
            if progress is not None:
                left = (time.monotonic() - begun) / (step + 1) * (steps - step - 1)
                seen = shares * steps / (step + 1)
                progress(
                    Progress(
                        step + 1,
                        steps,
                        *([seen.mean().item()] * 2),
                        (seen < 0.5).double().mean().item(),
                        left,
                    )
                )
    return shares.float()
