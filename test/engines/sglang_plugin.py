# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests add to SGLang's scheduler, by an entry point beside attn's: changes of attn's backend, and what its steps were.

A change is a fault, each of which has to turn a check red, or attention in float64."""

import collections
import contextlib
import json
import types
from dataclasses import replace

import torch


def _float64(backend):
    def attend(self, layer, step, q, out, sinks):
        described = self.layers[layer]
        keys, values = self.pool.get_kv_buffer(layer.layer_id)
        scaled = self.format is not None and not self.has_latents
        scales = (layer.k_scale, layer.v_scale) if scaled else (1, 1)
        size, starts = self.page_size, step.q_start.tolist()
        for row, (length, table) in enumerate(zip(step.lengths.tolist(), step.block_table, strict=True)):
            begin, end = starts[row : row + 2]
            pages = torch.tensor(table[: -(-length // size)], dtype=torch.long)
            slots = (pages[:, None] * size + torch.arange(size)).flatten()[:length]
            k, v = (
                (pool[slots].double() * float(scale)).repeat_interleave(q.shape[1] // pool.shape[1], 1)
                for pool, scale in zip((keys, values), scales, strict=True)
            )
            scores = torch.einsum("qhd,khd->hqk", q[begin:end].double(), k) * described.scale
            if described.softcap:
                scores = described.softcap * torch.tanh(scores / described.softcap)
            far = torch.arange(length - (end - begin), length)[:, None] - torch.arange(length)
            scores = scores.masked_fill((far < 0) | (far >= (described.window or length)), -torch.inf)
            if sinks is not None:
                logits = sinks.double()[:, None, None].expand(-1, end - begin, 1)
                scores = torch.cat([scores, logits], -1)
            found = torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], v)
            out[begin:end] = found.to(out.dtype)

    right = backend.AttnBackend._forward

    def forward(self, q, k, v, layer, *given, sinks=None, **options):
        out = right(self, q, k, v, layer, *given, sinks=sinks, **options)
        q, rows = (
            x.view(-1, layer.tp_q_head_num, dim)
            for x, dim in ((q, layer.qk_head_dim), (out, layer.v_head_dim))
        )
        attend(self, layer, self._step(layer), q, rows, sinks)
        return out

    return backend.AttnBackend, "_forward", forward


def _times_zero(backend):
    forward = backend.AttnBackend._forward
    return backend.AttnBackend, "_forward", lambda *given, **options: forward(*given, **options) * 0


def _layers_with(**changes):
    """Layers with an option that is changed, by a function of its value."""

    def mutant(backend):
        kernel = backend.AttnBackend._kernel

        def wrong(self, layer, drafts=False):
            changed = {name: change(getattr(layer, name)) for name, change in changes.items()}
            return kernel(self, replace(layer, **changed), drafts)

        return backend.AttnBackend, "_kernel", wrong

    return mutant


def _without_rotated_features(backend):
    """Latents without the features behind their values."""
    pages = backend.AttnBackend._pages

    def wrong(self, layer, size):
        lines, *rest = pages(self, layer, size)
        lines = lines.clone()
        lines[..., layer.v_head_dim :] = 0
        return lines, *rest

    return backend.AttnBackend, "_pages", wrong


def _shifted(by):
    return lambda window: None if window is None else window + by


def _no_sinks(backend):
    forward = backend.AttnBackend._forward

    def wrong(*given, sinks=None, **options):
        return forward(*given, sinks=None if sinks is None else torch.full_like(sinks, -1e4), **options)

    return backend.AttnBackend, "_forward", wrong


def _no_scales(backend):
    return backend.AttnBackend, "_scales_of", lambda self, layer: (torch.ones(1), torch.ones(1))


def _shifted_slots(backend):
    where = backend.KVWriteLoc

    def shifted(slots):
        return None if slots is None else slots ^ 1

    def for_layer(*given, **options):
        made = where.for_layer(*given, **options)
        return replace(made, loc=shifted(made.loc), swa_loc=shifted(made.swa_loc))

    return backend, "KVWriteLoc", types.SimpleNamespace(for_layer=for_layer)


def _stale_table(backend):
    step = backend.Plans.step
    first = {}

    def wrong(self, q_start, lengths, block_table):
        """Requests' first tables; pages past those are as they are."""
        kept = first.setdefault(id(self), block_table.clone())
        old = block_table.clone()
        rows, columns = min(len(kept), len(old)), min(kept.shape[1], old.shape[1])
        old[:rows, :columns] = kept[:rows, :columns]
        return step(self, q_start, lengths, old)

    return backend.Plans, "step", wrong


def _chains_for_trees(backend):
    def wrong(mask, lengths, drafts):
        return torch.ones(len(lengths), drafts, drafts, dtype=torch.bool).tril()

    return backend, "tree_masks", wrong


def _windows_of_the_full_pool(backend):
    """Tables of layers with a window name slots of the other pool."""
    return backend, "windowed_table", lambda pool, slots, page_size: backend.page_table(slots, page_size)


def _graphs(stale=False):
    """Decoding steps as SGLang prepares those of its graphs; stale: without their tables while their number of rows stays."""

    def mutant(backend):
        eager = backend.AttnBackend.init_forward_metadata

        def prepare(self, batch):
            if not batch.forward_mode.is_decode():
                return eager(self, batch)
            if not self.graph_plans:
                self.init_cuda_graph_state(8, 8)
            step = self.forward_metadata and self.forward_metadata.step
            kept = isinstance(step, backend.DeviceStep) and step.rows == len(batch.seq_lens)
            if not (stale and kept):
                self.init_forward_metadata_out_graph(batch)
            self.init_forward_metadata_in_graph(batch)

        return backend.AttnBackend, "init_forward_metadata", prepare

    return mutant


MUTANTS = {
    "float64": _float64,
    "graphs": _graphs(),
    "stale graphs": _graphs(stale=True),
    "times zero": _times_zero,
    "window + 1": _layers_with(window=_shifted(1)),
    "window - 1": _layers_with(window=_shifted(-1)),
    "no cap": _layers_with(softcap=lambda cap: 0.0),
    "no sinks": _no_sinks,
    "no scales": _no_scales,
    "no rotated features": _without_rotated_features,
    "slots": _shifted_slots,
    "stale table": _stale_table,
    "chains for trees": _chains_for_trees,
    "windows of the full pool": _windows_of_the_full_pool,
}

KINDS = ("decoding", "graphs", "prompts", "mixed", "drafts", "most", "shared")

_applied = contextlib.ExitStack()
_seen = collections.Counter()


def change_attn(scheduler, mutant):
    """Apply a mutant in place of an earlier one, None for none, and forget the steps."""
    from attn.sglang import backend

    _applied.close()
    _seen.clear()
    if mutant is not None:
        owner, name, wrong = MUTANTS[mutant](backend)
        _applied.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, wrong)


def write_steps(scheduler, path):
    """Write what attn's steps were since `change_attn`."""
    with open(path, "w") as file:
        json.dump({name: _seen[name] for name in KINDS}, file)


def register():
    from attn.serving import steps
    from attn.sglang import backend, latents
    from sglang.srt.managers.scheduler import Scheduler

    Scheduler.change_attn, Scheduler.write_steps = change_attn, write_steps
    latents.absorb("torch_native")  # It cannot read prompts that are expanded from latents, either.
    served = backend.AttnBackend
    eager, graph = served.init_forward_metadata, served.init_forward_metadata_out_graph
    shared_tables = steps.shared_tables

    def replayed(self, batch, in_capture=False):
        graph(self, batch, in_capture)
        _seen["graphs"] += 1

    def watched(self, batch):
        eager(self, batch)
        if self.forward_metadata:
            rows = self.forward_metadata.step.q_start[1:] - self.forward_metadata.step.q_start[:-1]
            kind = "decoding" if (rows == 1).all() else "mixed" if (rows == 1).any() else "prompts"
            kind = "drafts" if isinstance(self.forward_metadata.step, backend.DraftStep) else kind
            _seen[kind] += 1
            _seen["most"] = max(_seen["most"], int(rows.sum()))

    def counted(*given):
        found = shared_tables(*given)
        _seen["shared"] += found is not None
        return found

    served.init_forward_metadata, served.init_forward_metadata_out_graph = watched, replayed
    steps.shared_tables = counted
