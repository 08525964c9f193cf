# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's backend over SGLang's own pools and layers without a model, for what SGLang does not run on a CPU: 8-bit pools.
Cases as JSON from stdin, results as JSON lines.

A case: `name`, `page_size`, `dtype` of the pool, `window` as SGLang counts, `cap`, `sinks`, `mutant` as in the worker. With
`mask` the last step verifies trees of drafts: "drafts", for SGLang's mask of drafts alone; "whole", for that with the tokens
in front; "none", for none, so that they are read as chains. With `latent` the pool has latents (MLA), whose first 32 features
are values. With `graphs` decoding steps are those of a graph of four
sequences. A result: `apart`, how far the worst output is from float64 over the same pool; or `error`."""

import json
import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sglang_parts  # noqa: E402, F401

os.environ |= {"SGLANG_USE_CPU_ENGINE": "1"}

import torch  # noqa: E402

Q, KV, DIM, SLOTS = 4, 2, 32, 192
ROTATED = 16
"""Features of a latent behind its value."""


class Requests:
    """Three requests whose tokens lie in pages of SGLang's pool in any order, and the layer that reads them."""

    def __init__(
        self, page_size, dtype="float16", window=-1, cap=0.0, sinks=False, graphs=False, latent=False
    ):
        from attn.sglang import backend
        from sglang.srt.layers.radix_attention import RadixAttention
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool, ReqToTokenPool

        self.page_size, self.lengths, self.graphs = page_size, [0, 0, 0], graphs
        self.latent = latent
        self.heads, self.dim = (1, DIM + ROTATED) if latent else (KV, DIM)
        self.kept = [torch.zeros(2, 0, self.heads, self.dim, dtype=torch.double)] * 3
        """Keys and values of each request, as the pool rounds them."""
        dims = (DIM, ROTATED) if latent else (KV, DIM)
        self.pool = (MLATokenToKVPool if latent else MHATokenToKVPool)(
            SLOTS, page_size, getattr(torch, dtype), *dims, 1, "cpu", enable_memory_saver=False
        )
        self.requests = ReqToTokenPool(8, 64, "cpu", enable_memory_saver=False)
        pages = torch.randperm(SLOTS // page_size) + 1
        slots = (pages[:, None] * page_size + torch.arange(page_size)).flatten()
        self.rows = torch.tensor([5, 1, 3])
        self.requests.req_to_token[self.rows] = slots.view(3, 64).int()
        options = dict(logit_cap=cap, sliding_window_size=window, v_head_dim=DIM)
        self.layer = RadixAttention(Q, self.dim, DIM**-0.5, self.heads, 0, **options)
        if latent:  # No process group says whether contexts are in parts.
            self.pool.dcp_replicated = True
        elif dtype != "float16":
            self.layer.k_scale, self.layer.v_scale = torch.tensor(0.25), torch.tensor(0.5)
        self.sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]) if sinks else None
        model = torch.nn.ModuleDict({"attn": self.layer})
        if latent:  # No step reads expanded keys and values.
            model["expanded"] = RadixAttention(Q, 24, DIM**-0.5, Q, 1, v_head_dim=16)
        self.backend = backend.AttnBackend(
            SimpleNamespace(
                device="cpu",
                dtype=torch.float16,
                page_size=page_size,
                req_to_token_pool=self.requests,
                token_to_kv_pool=self.pool,
                model=model,
            )
        )

    def step(self, rows, trees=None, mask=None):
        """Give the requests so many new tokens, of which drafts follow the parents in `trees`. Return the output, and what it
        should be."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        before = self.lengths
        self.lengths = [length + count for length, count in zip(before, rows, strict=True)]
        table = self.requests.req_to_token[self.rows].long()
        where = [table[i, before[i] : self.lengths[i]] for i in range(3)]
        seen = [
            torch.ones(n, n).tril().bool() if trees is None else sees(trees[i]) for i, n in enumerate(rows)
        ]
        mode = ForwardMode.DECODE if rows == [1, 1, 1] else ForwardMode.EXTEND
        batch = SimpleNamespace(
            forward_mode=mode if trees is None else ForwardMode.TARGET_VERIFY,
            seq_lens=torch.tensor(self.lengths if trees is None else before),
            extend_seq_lens_cpu=rows,
            req_pool_indices=self.rows,
            out_cache_loc=torch.cat(where),
            out_cache_loc_is_physical=True,
            spec_info=None,
        )
        batch.seq_lens_cpu = batch.seq_lens
        if trees is not None:
            front = [0, 0, 0] if mask == "drafts" else before
            parts = [
                torch.cat([torch.ones(len(s), n).bool(), s], 1) for s, n in zip(seen, front, strict=True)
            ]
            masks = torch.cat([part.flatten() for part in parts])
            batch.spec_info = SimpleNamespace(
                draft_token_num=rows[0], custom_mask=masks, tree_topk=1 if mask == "none" else -1
            )
        q, k, v = (
            torch.randn(sum(rows), heads * self.dim, dtype=torch.float16)
            for heads in (Q, self.heads, self.heads)
        )
        k, v = k.view(-1, self.heads, self.dim), v.view(-1, self.heads, self.dim)
        v = k if self.latent else v
        for i, new in enumerate(self.rounded(k, v).split(rows, 1)):
            self.kept[i] = torch.cat([self.kept[i], new], 1)
        options = {} if self.sinks is None else dict(sinks=self.sinks)
        if batch.forward_mode.is_decode() and self.graphs:
            found = self.replay(q, k, v, batch, options)
        else:
            self.backend.init_forward_metadata(batch)
            decodes = batch.forward_mode.is_decode()
            run = self.backend.forward_decode if decodes else self.backend.forward_extend
            found = run(q, k, v, self.layer, batch, **options)
        wanted = [
            self.attend(*each)
            for each in zip(q.view(-1, Q, self.dim).split(rows), self.kept, seen, strict=True)
        ]
        return found.double(), torch.cat(wanted).flatten(1)

    def replay(self, q, k, v, batch, options):
        """Run a decoding step as a graph does, after its capture, with a sequence that fills the batch."""
        fill = self.backend.get_cuda_graph_seq_len_fill_value()
        q, k, v = (torch.cat([x, torch.zeros_like(x[:1])]) for x in (q, k, v))
        batch.out_cache_loc = torch.cat([batch.out_cache_loc, torch.zeros(1, dtype=torch.long)])
        batch.req_pool_indices = torch.cat([batch.req_pool_indices, torch.zeros(1, dtype=torch.long)])
        lengths = torch.cat([batch.seq_lens, torch.tensor([fill])])
        if not self.backend.graph_plans:
            self.backend.init_cuda_graph_state(4, 4)
            batch.seq_lens_cpu = batch.seq_lens = torch.full_like(lengths, fill)
            self.backend.init_forward_metadata_out_graph(batch, in_capture=True)
            self.backend.init_forward_metadata_in_graph(batch)
            self.backend.forward_decode(q, None, None, self.layer, batch, **options)
        batch.seq_lens_cpu = batch.seq_lens = lengths
        self.backend.init_forward_metadata_out_graph(batch)
        found = self.backend.forward_decode(q, k, v, self.layer, batch, **options)
        assert found[-1].isfinite().all()
        return found[:-1]

    def rounded(self, k, v):
        """Return keys and values as they are in the pool."""
        scales = (1, 1) if self.layer.k_scale is None else (self.layer.k_scale, self.layer.v_scale)
        return torch.stack(
            [
                (x / scale).to(self.pool.dtype).double() * float(scale)
                for x, scale in zip((k, v), scales, strict=True)
            ]
        )

    def attend(self, q, kept, seen):
        """Return what the rows of a request are in float64; they see all tokens in front, and `seen` of each other."""
        k, v = kept.repeat_interleave(Q // self.heads, 2)
        v = v[..., :DIM]
        front = torch.arange(len(k) - len(q))
        at = len(front) + seen.sum(-1) - 1
        far = at[:, None] - torch.cat([front, at])
        seen = torch.cat([torch.ones(len(q), len(front)).bool(), seen], 1)
        if self.layer.sliding_window_size >= 0:
            seen = seen & (far <= self.layer.sliding_window_size)
        scores = torch.einsum("qhd,khd->hqk", q.double(), k) * DIM**-0.5
        if cap := self.layer.logit_cap:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~seen, -torch.inf)
        if self.sinks is not None:
            scores = torch.cat([scores, self.sinks.double()[:, None, None].expand(-1, len(q), 1)], -1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(k)], v)


def sees(parents):
    """Return which drafts each draft sees."""
    seen = torch.eye(len(parents)).bool()
    for i, parent in enumerate(parents):
        if parent >= 0:
            seen[i] |= seen[parent]
    return seen


TREES = [[-1, 0, 0, 1, 2, 2], [-1, 0, 1, 2, 3, 4], [-1, 0, 1, 0, 3, -1]]


def run(case):
    import sglang_plugin

    name, mutant, mask = case.pop("name"), case.pop("mutant", None), case.pop("mask", None)
    torch.manual_seed(1)
    sglang_plugin.change_attn(None, mutant)
    requests = Requests(**case)
    steps = [requests.step(rows) for rows in ([20, 3, 9], [1, 1, 1], [1, 1, 1], [25, 1, 1])]
    if mask is not None:
        steps.append(requests.step([6, 6, 6], TREES, mask))
    found, wanted = (torch.cat(each) for each in zip(*steps, strict=True))
    return dict(name=name, apart=float((found - wanted).abs().max() / wanted.abs().max()))


def main():
    for case in json.load(sys.stdin):
        try:
            result = run(dict(case))
        except Exception as error:
            result = dict(name=case["name"], error=f"{type(error).__name__}: {error}")
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
