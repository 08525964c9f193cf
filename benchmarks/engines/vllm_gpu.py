# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM with attn's attention, beside vLLM with its own TRITON_ATTN: the same model, prompts and engine, in one process.

    python benchmarks/engines/vllm_gpu.py tokens speed cache --json vllm.json

It needs a Python with vLLM (docs/engines.md) and attn, which may be the checkout's build. Models have random weights of the shape of
a known one, and of real scale: a matrix has a deviation of 0.02 where its rows have 4,096 numbers, and as much more as they are
shorter. vLLM's own dummy weights hide what attention does. The parts are

  tokens   greedy tokens in float16, SmolLM2-135M's shape. Sequences are compared up to their first difference; `gap` is by how much
           TRITON_ATTN's choice was decided there. `control` is attn with outputs of zero, which must differ
  speed    tokens a second, Llama-3.1-8B's shape: prompts, and decoding, whose steps are timed when all sequences decode
  cache    Llama-3.1-8B's shape with few bytes for keys and values: tokens that a queue of requests is answered with in a second, in
           16 bits and in attn's int8_int4
  metadata the host's time for a step's metadata, 256 sequences that decode: what vLLM gives a backend's builder is kept from a
           step, and given to it again

Engines run eager, and with full CUDA graphs (--modes). Plans of packed formats are made on the host, so `cache` is eager. Where PyTorch
sees no GPU, vllm-cpu runs the parts with a tiny model beside its own backend, to test this file."""

import functools
import gc
import importlib.util
import os
import random
import statistics
import time

import common
import torch
from common import (
    GRAPHS,
    LARGE,
    ON_GPU,
    SMALL,
    Side,
    prompts_of,
    run,
    speed_part,
    speed_ratios,
    tokens_part,
    write_model,
)

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
if importlib.util.find_spec("flashinfer") is None:  # vLLM would choose its sampler all the same.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
if not ON_GPU:
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}

THEIRS = "TRITON_ATTN" if ON_GPU else "CPU_ATTN"

# The part `speed` has prompts and their lengths, then sequences, tokens in front, and tokens of an answer.
PROMPTS, DECODING = ((16, 4096), (2, 32768)), ((64, 1024, 64), (32, 8192, 64))
# The part `cache` has requests, tokens of a prompt, tokens of an answer, and bytes for keys and values.
QUEUE, CACHE_BYTES = (96, 1024, 256), 4 << 30
# The part `metadata` has sequences, tokens of each, and of an answer: the first must not end before the last begins.
METADATA = 256, 600, 40
if not ON_GPU:
    PROMPTS, DECODING, QUEUE = ((2, 48),), ((4, 24, 6),), (12, 24, 8)
    METADATA = 256, 8, 8
    CACHE_BYTES = None


def fill(worker):
    """Give a worker's model weights of real scale."""
    common.fill(worker.get_model())


class Engine:
    """vLLM with a model that is written to a folder, until it is closed."""

    def __init__(self, folder, backend, mode, *, cache_bytes=None, format=None, sequences, tokens):
        from vllm import LLM

        options = dict(max_num_seqs=sequences, max_model_len=tokens, max_num_batched_tokens=8192)
        if mode == "eager":
            options["enforce_eager"] = True
        else:  # Mode 0: nothing is compiled, so that both engines launch the same kernels around attention.
            sizes = [size for size in GRAPHS if size <= sequences]
            options["compilation_config"] = dict(mode=0, cudagraph_mode="FULL", cudagraph_capture_sizes=sizes)
        if cache_bytes is not None:  # vLLM still asks for that share of free memory.
            options |= dict(kv_cache_memory_bytes=cache_bytes, gpu_memory_utilization=0.5)
        if backend != "CPU_ATTN":  # On a CPU vLLM chooses it.
            options["attention_backend"] = backend
        if format is not None:
            options["additional_config"] = dict(attn_kv_cache_dtype=format)
        begin = time.perf_counter()
        self.llm = LLM(
            folder,
            dtype="float16",
            load_format="dummy",
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            seed=0,
            **options,
        )
        self.llm.collective_rpc(fill)
        self.seconds_to_start = time.perf_counter() - begin
        cache = self.llm.llm_engine.vllm_config.cache_config
        self.cached_tokens = cache.num_gpu_blocks * cache.block_size
        self._requests = 0

    def steps(self, prompts, answer, **sampling):
        """Answer prompts; return the answers, and of each step the seconds since the start and the number of tokens that
        all answers had then."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine = self.llm.llm_engine
        asked = SamplingParams(
            temperature=0,
            max_tokens=answer,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE,
            **sampling,
        )
        first = self._requests
        self._requests += len(prompts)
        for number, prompt in enumerate(prompts):
            engine.add_request(str(first + number), dict(prompt_token_ids=prompt), asked)
        found, done, times = {}, {}, []
        begin = time.perf_counter()
        while engine.has_unfinished_requests():
            for output in engine.step():
                number = int(output.request_id) - first
                found[number] = output.outputs[0]
                done[number] = len(output.outputs[0].token_ids)
            times.append((time.perf_counter() - begin, sum(done.values()), len(done)))
        return [found[number] for number in range(len(prompts))], times

    def answered(self, prompts, answer):
        """Return the tokens of answers, and by how much each was decided."""
        found, _ = self.steps(prompts, answer, logprobs=2)
        tokens, gaps = [], []
        for each in found:
            tokens.append(list(each.token_ids))
            choices = [sorted((at.logprob for at in step.values()), reverse=True) for step in each.logprobs]
            gaps.append([choice[0] - choice[1] for choice in choices])
        return tokens, gaps

    def close(self):
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()


def without_attention():
    """Give attn's layers outputs of zero; returns what undoes it."""
    from attn.vllm.backend import AttnImpl

    forward = AttnImpl.forward

    def zero(self, *given, **named):
        return forward(self, *given, **named).zero_()

    AttnImpl.forward = zero

    def undo():
        AttnImpl.forward = forward

    return undo


def cache_part(folder, modes, backends):
    """Yield tokens a second of a queue of requests, where the cache says how many run at once."""
    write_model(LARGE, folder)
    count, length, answer = QUEUE
    prompts = prompts_of(random.Random(0), LARGE, [length] * count)
    limits = dict(sequences=count, tokens=length + answer + 8, cache_bytes=CACHE_BYTES)
    sides = [(backend, None) for backend in backends] + [("CUSTOM", "int8_int4")] * ("CUSTOM" in backends)
    for backend, format in sides:
        engine = Engine(folder, backend, "eager", format=format, **limits)
        row = dict(
            part="cache", model=LARGE, backend=SIDE.named(backend), mode="eager", format=format or "16 bits"
        )
        row |= dict(start_s=engine.seconds_to_start, cached_tokens=engine.cached_tokens, requests=count)
        engine.steps(prompts[:2], 4)
        _, times = engine.steps(prompts, answer)
        row |= dict(seconds=times[-1][0], steps=len(times), tokens_a_second=count * answer / times[-1][0])
        engine.close()
        yield row


def ratios(rows):
    """Return how many times as fast attn is as vLLM's own backend, and int8_int4 as 16 bits; and the times of metadata."""
    found = speed_ratios(rows, THEIRS)
    cache = {
        (row["backend"], row["format"]): row["tokens_a_second"] for row in rows if row["part"] == "cache"
    }
    metadata = {row["backend"]: row["median_us"] for row in rows if row["part"] == "metadata"}
    if len(metadata) == 2:
        found["metadata us"] = metadata["attn"] / metadata[THEIRS]
    packed = cache.get(("attn", "int8_int4"))
    for backend in ("attn", THEIRS):
        if packed and (backend, "16 bits") in cache:
            found[f"int8_int4 of {backend} in 16 bits"] = packed / cache[backend, "16 bits"]
    return found


def metadata_part(folder, modes, backends):
    """Yield microseconds of the host for the metadata of a step of decoding. All layers share it."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    write_model(SMALL, folder)
    count, length, answer = METADATA
    prompts = prompts_of(random.Random(0), SMALL, [length] * count)
    limits = dict(sequences=count, tokens=length + answer + 8, cache_bytes=CACHE_BYTES)
    for backend in backends:
        engine = Engine(folder, backend, "eager", **limits)
        builder = AttentionBackendEnum[backend].get_class().get_builder_cls()
        build, seen = builder.build, []

        def watched(*given, build=build, seen=seen, **named):
            common = next(each for each in (*given, *named.values()) if hasattr(each, "num_reqs"))
            if common.num_reqs == count and common.max_query_len == 1:
                seen[:] = [functools.partial(build, *given, **named)]
            return build(*given, **named)

        builder.build = watched
        try:
            engine.steps(prompts, answer)
        finally:
            builder.build = build
        row = dict(part="metadata", model=SMALL, backend=SIDE.named(backend), sequences=count)
        if not seen:
            raise RuntimeError(f"no step of {backend} decoded all {count} sequences at once")
        with torch.inference_mode():
            found = us_of(seen[0])
        yield row | found
        del seen[:]
        engine.close()


def us_of(build):
    """Return microseconds of the host for a call, without a GPU its CPU time: the least and the median of 20 rounds."""
    clock = time.perf_counter if ON_GPU else time.process_time
    found = []
    for _ in range(20):
        begin = clock()
        for _ in range(50):
            build()
        found.append((clock() - begin) / 50 * 1e6)
        if ON_GPU:
            torch.cuda.synchronize()  # Launches are not waited for.
    return dict(least_us=min(found), median_us=statistics.median(found))


def prepare():
    """Register attn's backend, as the entry point of an installed attn does, and return vLLM's version."""
    import vllm
    from attn.vllm import register

    register()
    return vllm.__version__


SIDE = Side(Engine, THEIRS, "CUSTOM", without_attention, PROMPTS, DECODING)
PARTS = {
    "metadata": metadata_part,
    "tokens": functools.partial(tokens_part, SIDE),
    "speed": functools.partial(speed_part, SIDE),
    "cache": cache_part,
}

if __name__ == "__main__":
    run("vllm", __doc__, SIDE, PARTS, ratios, prepare)
