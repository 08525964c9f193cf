# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGLang with attn's attention, beside SGLang with its own backend `triton`: the same model, prompts and scheduler, in one
process.

    python benchmarks/engines/sglang_gpu.py tokens speed --json sglang.json

It needs a Python with SGLang (docs/engines.md) and attn, which may be the checkout's build. The parts are

  tokens   greedy tokens in float16, SmolLM2-135M's shape. Sequences are compared up to their first difference; `gap` is by how much
           the choice of `triton` was decided there. `control` is attn with outputs of zero, which must differ
  speed    tokens a second, Llama-3.1-8B's shape: prompts, and decoding, whose steps are timed when all sequences decode

Both backends run eager, and with CUDA graphs of decoding (--modes). Pages have 16 tokens for both. The benchmark drives
SGLang's scheduler, with overlap and without a server. Where PyTorch sees no GPU, the parts run a tiny model beside
`torch_native`, to test this file."""

import functools
import gc
import json
import os
import sys
import time
from array import array
from pathlib import Path

import torch
from common import GRAPHS, ON_GPU, Side, fill, run, speed_part, speed_ratios, tokens_part
from measuring.report import ROOT

os.environ |= {"HF_HUB_OFFLINE": "1"}
if not ON_GPU:
    os.environ |= {"SGLANG_USE_CPU_ENGINE": "1"}
    sys.path.insert(0, str(ROOT / "test/engines"))
    import sglang_parts  # noqa: F401  Packages that have no build for CPUs.

THEIRS, OURS = "triton" if ON_GPU else "torch_native", "attn"
PAGE = 16  # Tokens of a page.
PROMPTS, DECODING = ((16, 4096),), ((64, 1024, 64), (32, 8192, 64))
if not ON_GPU:
    PROMPTS, DECODING = ((2, 48),), ((4, 24, 6),)


class Engine:
    """SGLang's scheduler with a model that is written to a folder, in this process, until it is closed."""

    def __init__(self, folder, backend, mode, *, cache_bytes=None, sequences, tokens):
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.runtime_context import SpawnRanks, publish
        from sglang.srt.server_args import PortArgs, ServerArgs

        graphs = dict(backend="disabled")
        if mode == "graphs":
            graphs = dict(backend="full", bs=[size for size in GRAPHS if size <= sequences])
        begin = time.perf_counter()
        arguments = ServerArgs(
            model_path=folder,
            device="cuda" if ON_GPU else "cpu",
            dtype="float16",
            load_format="dummy",
            skip_tokenizer_init=True,
            random_seed=0,
            attention_backend=backend,
            sampling_backend="pytorch",
            grammar_backend="none",
            page_size=PAGE,
            context_length=tokens,
            max_running_requests=sequences,
            max_total_tokens=tokens_in(cache_bytes, folder) or sequences * (tokens + PAGE),
            chunked_prefill_size=8192,
            disable_radix_cache=True,
            cuda_graph_config=dict(decode=graphs, prefill=dict(backend="disabled")),
            log_level="warning",
        )
        arguments.resolve_once()
        publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
        self.scheduler = Scheduler(arguments, PortArgs.init_new(arguments))
        fill(self.scheduler.tp_worker.model_runner.model)
        if ON_GPU:
            torch.cuda.synchronize()
        self.seconds_to_start = time.perf_counter() - begin
        self.cached_tokens = self.scheduler.max_total_num_tokens
        self.scheduler.ingest_requests = self._until_idle
        self.scheduler.output_streamer.send_to_detokenizer = self
        self.scheduler.process_batch_result = functools.partial(
            self._timed, self.scheduler.process_batch_result
        )
        self._asked = self._times = self._begin = None
        self._requests = 0

    def send_output(self, output, asked=None):
        """Drop what SGLang sends to its tokenizer."""

    def _until_idle(self):
        self.scheduler.gracefully_exit = self.scheduler.is_fully_idle()

    def _timed(self, process, batch, result):
        process(batch, result)
        done = [len(request.output_ids) for request in self._asked]
        self._times.append((time.perf_counter() - self._begin, sum(done), sum(map(bool, done))))

    def steps(self, prompts, answer, logprobs=0):
        """Answer prompts; return SGLang's requests, and of each step the seconds since the start, the number of tokens that
        all answers had then, and the number of answers that had begun."""
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        for prompt in prompts:
            sampling = SamplingParams(temperature=0, max_new_tokens=answer, ignore_eos=True)
            sampling.normalize(None)
            request = TokenizedGenerateReqInput(
                rid=str(self._requests),
                input_text=None,
                input_ids=array("q", prompt),
                input_embeds=None,
                mm_inputs=None,
                token_type_ids=None,
                sampling_params=sampling,
                return_logprob=bool(logprobs),
                logprob_start_len=-1,
                top_logprobs_num=logprobs,
                token_ids_logprob=None,
                stream=False,
            )
            self._requests += 1
            self.scheduler.handle_generate_request(request)
        asked = self._asked = list(self.scheduler.waiting_queue)
        self._times, self._begin = [], time.perf_counter()
        self.scheduler.gracefully_exit = False
        self.scheduler.run_event_loop()
        return asked, self._times

    def answered(self, prompts, answer):
        """Return the tokens of answers, and by how much each was decided."""
        found, _ = self.steps(prompts, answer, logprobs=2)
        gaps = [[one - other for one, other in each.logprob.output_top_logprobs_val] for each in found]
        return [list(each.output_ids) for each in found], gaps

    def close(self):
        from sglang.srt.distributed.parallel_state import (
            destroy_distributed_environment,
            destroy_model_parallel,
        )

        runner = self.scheduler.tp_worker.model_runner
        pool = runner.token_to_kv_pool
        self.scheduler.release_host_resources()
        # Threads of a scheduler keep it, so its memory is given back here.
        for tensor in (*runner.model.parameters(), *pool.k_buffer, *pool.v_buffer):
            tensor.untyped_storage().resize_(0)
        del self.scheduler.ingest_requests, self.scheduler.process_batch_result
        self.scheduler = self._asked = None
        destroy_model_parallel()
        destroy_distributed_environment()
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()


def tokens_in(cache_bytes, folder):
    """Return how many tokens have room in bytes for keys and values in 16 bits, None for None."""
    if cache_bytes is None:
        return None
    config = json.loads((Path(folder) / "config.json").read_text())
    numbers = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    return cache_bytes // (2 * numbers) // PAGE * PAGE


def without_attention():
    """Give attn's layers outputs of zero; returns what undoes it."""
    from attn.sglang.backend import AttnBackend

    forward = AttnBackend._forward

    def zero(self, *given, **named):
        return forward(self, *given, **named).zero_()

    AttnBackend._forward = zero

    def undo():
        AttnBackend._forward = forward

    return undo


def ratios(rows):
    """Return how many times as fast attn is as SGLang's own backend."""
    return speed_ratios(rows, THEIRS)


def prepare():
    """Register attn's backend, as the entry point of an installed attn does, and return SGLang's version."""
    from attn.sglang import register
    from sglang.version import __version__

    register()
    return __version__


SIDE = Side(Engine, THEIRS, OURS, without_attention, PROMPTS, DECODING)
PARTS = {
    "tokens": functools.partial(tokens_part, SIDE),
    "speed": functools.partial(speed_part, SIDE),
}

if __name__ == "__main__":
    run("sglang", __doc__, SIDE, PARTS, ratios, prepare)
