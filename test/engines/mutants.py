# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of attn's backend of vLLM: faults, each of which has to turn a check red, and attention in float64."""

import contextlib

apart = []
"""How far outputs of layers are from others: from float64, of the largest in their step, under "beside float64"; in e4m3
from those in 16 bits, by the norm of a step, under "e4m3 beside 16 bits"."""


def _float64(backend):
    import float64

    def attend(self, layer, query, key, value, kv_cache, metadata, output, **scales):
        if metadata is None:
            return output.zero_()
        return float64.attend(self, layer, query, kv_cache, metadata.step, output)

    return backend.AttnImpl, "forward", attend


def _beside_float64(backend):
    import float64
    import torch

    forward = backend.AttnImpl.forward

    def both(self, layer, query, key, value, kv_cache, metadata, output, **scales):
        found = forward(self, layer, query, key, value, kv_cache, metadata, output, **scales)
        if metadata is not None:
            rows = metadata.step.rows
            exact = torch.zeros(output[:rows].shape, dtype=torch.float64)
            float64.attend(self, layer, query, kv_cache, metadata.step, exact)
            most = float((output[:rows] - exact).abs().max() / exact.abs().max())
            apart.append(most if most == most else float("inf"))
        return found

    return backend.AttnImpl, "forward", both


def _e4m3_beside_16_bits(backend):
    """Layers also compute their output in e4m3, as where vLLM fuses its quantization into attention."""
    import torch

    forward, compile_layer = backend.AttnImpl.forward, backend.AttnImpl.compile

    def both(self, layer, query, key, value, kv_cache, metadata, output, **scales):
        given = self, layer, query, key, value, kv_cache, metadata
        found = forward(*given, output, **scales)
        if metadata is not None:
            if self.quantizing is None:
                sizes = self.layer.page_size, query.device, self.layer.device_plan
                compile_layer(self, *sizes, quantizes=True)
            rows, scale = metadata.step.rows, torch.tensor([[2.0**-6]])
            codes = torch.zeros(output.shape, dtype=torch.float8_e4m3fn)
            forward(*given, codes, output_scale=scale)
            exact = output[:rows].double()
            most = float((codes[:rows].double() * scale - exact).norm() / exact.norm())
            apart.append(most if most == most else float("inf"))
        return found

    return backend.AttnImpl, "forward", both


def _scales_of_neighbours(backend):
    """Scales and zero points of keys are those of the token before, while a layer reads."""
    forward = backend.AttnImpl.forward

    def wrong(self, layer, query, key, value, kv_cache, metadata, output, **scales):
        if metadata is None:
            return output.zero_()
        meta = self._pages(layer, kv_cache)[2]
        kept = meta.clone()
        meta.copy_(kept.roll(1, 1))
        forward(self, layer, query, key, value, kv_cache, metadata, output, **scales)
        meta.copy_(kept)
        return output

    return backend.AttnImpl, "forward", wrong


def _swapped_codes(backend):
    """Codes of keys are read for those of values, and those of values for keys."""
    pages = backend.AttnImpl._pages

    def wrong(self, layer, kv_cache):
        found = pages(self, layer, kv_cache)
        first, second, *rest = found.named.values()
        found._tensors = second, first, *rest  # It is kept; what is written is not changed.
        return found

    return backend.AttnImpl, "_pages", wrong


def _times_zero(backend):
    forward = backend.AttnImpl.forward

    def wrong(self, *given, output, **scales):
        return forward(self, *given, output=output, **scales).zero_()

    return backend.AttnImpl, "forward", wrong


def _layers_with(**changes):
    """Layers with an option that is changed, by a function of its value."""

    def mutant(backend):
        layer = backend.Layer

        def wrong(**options):
            return layer(**options | {name: change(options[name]) for name, change in changes.items()})

        return backend, "Layer", wrong

    return mutant


def _shifted(by):
    return lambda window: None if window is None else window + by


def _without(name):
    """Tensors of layers that are zero, or with which a softmax is as without them."""
    value = {"slopes": 0.0, "sink_logits": -1e30}[name]

    def mutant(backend):
        compile_layer = backend.AttnImpl.compile

        def wrong(self, *given, **named):
            compile_layer(self, *given, **named)
            self.tensors[name].fill_(value)

        return backend.AttnImpl, "compile", wrong

    return mutant


def _shifted_slots(backend):
    update = backend.AttnImpl.do_kv_cache_update

    def wrong(self, layer, key, value, kv_cache, slots):
        update(self, layer, key, value, kv_cache, slots.where(slots < 0, slots ^ 1))

    return backend.AttnImpl, "do_kv_cache_update", wrong


def _stale_table(kind):
    def mutant(backend):
        owner, first = getattr(backend.plans, kind), {}
        step = owner.step

        def wrong(self, q_start, lengths, block_table, **counts):
            tables = first.setdefault(id(self), {})
            old = tables.setdefault(len(block_table), block_table.clone())
            return step(self, q_start, lengths, old, **counts)

        return owner, "step", wrong

    return mutant


# --- Latents


def _latents():
    from attn.vllm import latents

    return latents


def _latents_in_float64(backend):
    import float64
    import torch

    def attend(self, q, kv_cache, metadata, layer):
        rows = torch.cat(q, -1) if isinstance(q, tuple) else q
        return float64.attend_latents(self, layer, rows, kv_cache, metadata.decode.step), None

    return _latents().LatentImpl, "forward_mqa", attend


def _latents_times_zero(backend):
    forward = _latents().LatentImpl.forward_mqa

    def wrong(*given):
        found, none = forward(*given)
        return found.zero_(), none

    return _latents().LatentImpl, "forward_mqa", wrong


def _latents_in_other_slots(backend):
    update = _latents().LatentImpl.do_kv_cache_update

    def wrong(self, latents, rotated, kv_cache, slots, *given):
        update(self, latents, rotated, kv_cache, slots.where(slots < 0, slots ^ 1), *given)

    return _latents().LatentImpl, "do_kv_cache_update", wrong


def _no_rotated_features(backend):
    lines = _latents().LatentImpl._lines

    def wrong(self, kv_cache):
        found = lines(self, kv_cache).clone()
        found[..., self.kv_lora_rank :] = 0
        return found

    return _latents().LatentImpl, "_lines", wrong


_kept = contextlib.ExitStack()

MUTANTS = {
    "float64": _float64,
    "beside float64": _beside_float64,
    "e4m3 beside 16 bits": _e4m3_beside_16_bits,
    "scales of neighbours": _scales_of_neighbours,
    "swapped codes": _swapped_codes,
    "times zero": _times_zero,
    "window + 1": _layers_with(window=_shifted(1)),
    "window - 1": _layers_with(window=_shifted(-1)),
    "no cap": _layers_with(softcap=lambda cap: 0.0),
    "no slopes": _without("slopes"),
    "no sinks": _without("sink_logits"),
    "slots": _shifted_slots,
    "stale table": _stale_table("Plans"),
    "stale table on the device": _stale_table("DevicePlans"),
    "latents in float64": _latents_in_float64,
    "latents times zero": _latents_times_zero,
    "latents in other slots": _latents_in_other_slots,
    "no rotated features": _no_rotated_features,
}


@contextlib.contextmanager
def applied(name):
    """Apply a mutant, if there is a name."""
    if name is None:
        yield
        return
    from attn.vllm import backend

    owner, attribute, wrong = MUTANTS[name](backend)
    right = getattr(owner, attribute)
    setattr(owner, attribute, wrong)
    try:
        yield
    finally:
        setattr(owner, attribute, right)


def register():
    """Register attn's backend with outputs of zero: an entry point of a wrong package."""
    import attn.vllm

    attn.vllm.register()
    _kept.enter_context(applied("times zero"))
