# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's backend over SGLang's own pools and layers without a model, for what SGLang does not run on a CPU: 8-bit pools.
Cases as JSON from stdin, results as JSON lines.

A case: `name`, `page_size`, `dtype` of the pool, `window` as SGLang counts, `cap`, `sinks`, `mutant` as in the worker. A
result: `apart`, how far the worst output of three steps is from float64 over the same pool; or `error`."""

import json
import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sglang_parts  # noqa: E402, F401

os.environ |= {"SGLANG_USE_CPU_ENGINE": "1"}

import torch  # noqa: E402

Q, KV, DIM, SLOTS = 4, 2, 32, 192


class Requests:
    """Three requests whose tokens lie in pages of SGLang's pool in any order, and the layer that reads them."""

    def __init__(self, page_size, dtype="float16", window=-1, cap=0.0, sinks=False):
        from attn.sglang import backend
        from sglang.srt.layers.radix_attention import RadixAttention
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool

        self.page_size, self.lengths = page_size, [0, 0, 0]
        self.pool = MHATokenToKVPool(
            SLOTS, page_size, getattr(torch, dtype), KV, DIM, 1, "cpu", enable_memory_saver=False
        )
        self.requests = ReqToTokenPool(8, 64, "cpu", enable_memory_saver=False)
        pages = torch.randperm(SLOTS // page_size) + 1
        slots = (pages[:, None] * page_size + torch.arange(page_size)).flatten()
        self.rows = torch.tensor([5, 1, 3])
        self.requests.req_to_token[self.rows] = slots.view(3, 64).int()
        self.layer = RadixAttention(Q, DIM, DIM**-0.5, KV, 0, logit_cap=cap, sliding_window_size=window)
        if dtype != "float16":
            self.layer.k_scale, self.layer.v_scale = torch.tensor(0.25), torch.tensor(0.5)
        self.sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]) if sinks else None
        model = torch.nn.ModuleDict({"attn": self.layer})
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

    def step(self, rows):
        """Give the requests so many new tokens; return the output."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        before = self.lengths
        self.lengths = [length + count for length, count in zip(before, rows, strict=True)]
        table = self.requests.req_to_token[self.rows].long()
        where = [table[i, before[i] : self.lengths[i]] for i in range(3)]
        batch = SimpleNamespace(
            forward_mode=ForwardMode.DECODE if rows == [1, 1, 1] else ForwardMode.EXTEND,
            seq_lens_cpu=torch.tensor(self.lengths),
            seq_lens=torch.tensor(self.lengths),
            extend_seq_lens_cpu=rows,
            req_pool_indices=self.rows,
            out_cache_loc=torch.cat(where),
            out_cache_loc_is_physical=True,
            spec_info=None,
        )
        q, k, v = (torch.randn(sum(rows), heads * DIM, dtype=torch.float16) for heads in (Q, KV, KV))
        k, v = k.view(-1, KV, DIM), v.view(-1, KV, DIM)
        self.backend.init_forward_metadata(batch)
        run = self.backend.forward_decode if rows == [1, 1, 1] else self.backend.forward_extend
        options = {} if self.sinks is None else dict(sinks=self.sinks)
        return run(q, k, v, self.layer, batch, **options)


def run(case):
    import sglang_plugin

    name, mutant = case.pop("name"), case.pop("mutant", None)
    outputs = []
    for change in (mutant, "float64"):
        torch.manual_seed(1)
        sglang_plugin.change_attn(None, change)
        requests = Requests(**case)
        outputs.append(
            torch.cat([requests.step(rows) for rows in ([20, 3, 9], [1, 1, 1], [30, 1, 1])]).double()
        )
    apart = float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max())
    return dict(name=name, apart=apart)


def main():
    for case in json.load(sys.stdin):
        try:
            result = run(dict(case))
        except Exception as error:
            result = dict(name=case["name"], error=f"{type(error).__name__}: {error}")
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
