# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks of engines share: models with random weights, prompts, the comparison of answers, the parts `tokens` and
`speed`, and the report.

Weights have a real scale: a matrix has a deviation of 0.02 where its rows have 4,096 numbers, and as much more as they are
shorter. An engine's own dummy weights hide what attention does."""

import argparse
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring.report import BUILD, header, save

if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))

import torch

ON_GPU = torch.cuda.is_available()
DEEPSEEK = dict(
    vocab_size=129280,
    hidden_size=7168,
    num_hidden_layers=8,
    num_attention_heads=128,
    intermediate_size=18432,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
ONE_OF_EIGHT = DEEPSEEK | dict(num_attention_heads=16, intermediate_size=2304)  # A rank of tensor parallel.
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
    "DeepSeek-V3": DEEPSEEK,
    "DeepSeek-V3, 16 heads": ONE_OF_EIGHT,
    "DeepSeek-V3, 16 heads, 2 layers": ONE_OF_EIGHT | dict(num_hidden_layers=2),
    "tiny, latents": dict(
        vocab_size=512,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_nope_head_dim=32,
        qk_rope_head_dim=64,
        v_head_dim=32,
    ),
}
# DeepSeek-V3's rotation.
YARN = dict(
    rope_type="yarn",
    rope_theta=10000.0,
    factor=40.0,
    original_max_position_embeddings=4096,
    mscale=1.0,
    mscale_all_dim=1.0,
    beta_fast=32,
    beta_slow=1,
)
SMALL, LARGE = ("SmolLM2-135M", "Llama-3.1-8B") if ON_GPU else ("tiny", "tiny")
DEVIATION, COLUMNS = 0.02, 4096  # A matrix of rows of so many numbers has this deviation.
GRAPHS = (1, 2, 4, 8, 16, 32, 64)  # Rows of CUDA graphs.
ROUNDS = 3

# The part `tokens` has prompts of these lengths, the last two of which begin alike, and answers of so many tokens.
TOKENS = dict(lengths=(5, 37, 64, 130, 257, 511, 600, 620), common=512, answer=64)
TOKENS_BYTES, SPEED_BYTES = 2 << 30, 48 << 30  # Bytes for keys and values.
if not ON_GPU:
    TOKENS = dict(lengths=(5, 37, 40, 44), common=32, answer=6)
    TOKENS_BYTES = SPEED_BYTES = None


@dataclasses.dataclass(frozen=True)
class Side:
    """An engine. `start(folder, backend, mode, sequences=, tokens=, cache_bytes=)` starts it with a model that is written to
    a folder. It then has `steps`, `answered`, `close`, `seconds_to_start` and `cached_tokens`.

    `theirs` is the engine's own backend and `ours` is attn's. `without_attention` gives attn's layers outputs of zero and
    returns what undoes it. `prompts` are counts and lengths; `decoding`, sequences, tokens in front, tokens of an answer."""

    start: Callable
    theirs: str
    ours: str
    without_attention: Callable
    prompts: tuple
    decoding: tuple

    def named(self, backend):
        return "attn" if backend == self.ours else backend


def write_model(name, folder, dtype="float16"):
    """Write the configuration of a model, without weights. Models with latents (MLA) have no experts."""
    from transformers import DeepseekV3Config, LlamaConfig

    sizes = MODELS[name]
    if "kv_lora_rank" in sizes:
        heads, layers = sizes["num_attention_heads"], sizes["num_hidden_layers"]
        options = dict(num_key_value_heads=heads, first_k_dense_replace=layers, rope_parameters=dict(YARN))
        config = DeepseekV3Config(max_position_embeddings=163840, dtype=dtype, **sizes, **options)
        config.architectures = ["DeepseekV3ForCausalLM"]
    else:
        config = LlamaConfig(max_position_embeddings=65536, dtype=dtype, **sizes)
        config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)


def fill(model, derived=()):
    """Give a model weights of real scale, equal ones in each engine. Parameters with the names `derived` are left out."""
    tensors = [each for each in model.named_parameters() if each[0].rpartition(".")[2] not in derived]
    generator = torch.Generator(tensors[0][1].device).manual_seed(0)
    with torch.no_grad():
        for _, tensor in tensors:
            if tensor.ndim < 2:
                tensor.fill_(1)  # Factors of norms.
            else:
                tensor.normal_(0, DEVIATION * (COLUMNS / tensor.shape[-1]) ** 0.5, generator=generator)


def prompts_of(chosen, model, lengths, common=0):
    """Return prompts of random tokens; the last two begin with `common` equal ones."""
    limit = MODELS[model]["vocab_size"]
    prompts = [[chosen.randrange(3, limit) for _ in range(length)] for length in lengths]
    if common:
        prompts[-1][:common] = prompts[-2][:common]
    return prompts


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


def tokens_part(side, folder, modes, backends):
    """Yield how tokens of attn compare with those of the engine's own backend."""
    write_model(SMALL, folder)
    prompts = prompts_of(random.Random(0), SMALL, TOKENS["lengths"], TOKENS["common"])

    def of(backend, mode):
        engine = side.start(folder, backend, mode, sequences=16, tokens=1024, cache_bytes=TOKENS_BYTES)
        found = engine.answered(prompts, TOKENS["answer"])
        row = dict(part="tokens", model=SMALL, backend=side.named(backend), mode=mode)
        row["start_s"] = engine.seconds_to_start
        engine.close()
        return found, row

    theirs, row = of(side.theirs, "eager")
    yield row
    for mode in modes:
        ours, row = of(side.ours, mode)
        yield row | compared(theirs, ours)
    undo = side.without_attention()
    try:
        wrong, row = of(side.ours, "eager")
    finally:
        undo()
    found = compared(theirs, wrong)
    yield row | dict(backend="control", differs=found["equal_answers"] == 0) | found


def random_prompts(model, count, length):
    """Return prompts of random tokens, quickly: the same ones for the same numbers."""
    generator = torch.Generator().manual_seed(count * length)
    return torch.randint(3, MODELS[model]["vocab_size"], (count, length), generator=generator).tolist()


def decoding_rate(times, count, begun=None):
    """Tokens a second while `count` sequences decode, by the median step; and the number of steps. `begun` sequences are
    asked for, by default as many; others have ended."""
    full = [at for at in times if at[2] == (begun or count)]
    each = [b[0] - a[0] for a, b in zip(full, full[1:], strict=False) if b[1] - a[1] == count]
    steps = each[len(each) // 4 :]  # The first ones make what later ones have.
    return (count / statistics.median(steps), len(steps)) if steps else (None, 0)


def speed_part(side, folder, modes, backends):
    """Yield tokens a second of prompts and of decoding."""
    write_model(LARGE, folder)
    longest = max([length for _, length in side.prompts] + [front + more for _, front, more in side.decoding])
    most = max(count for count, *_ in (*side.prompts, *side.decoding))
    for mode in modes:
        for backend in backends:
            chosen = random.Random(0)
            engine = side.start(
                folder, backend, mode, sequences=most, tokens=longest + 8, cache_bytes=SPEED_BYTES
            )
            row = dict(part="speed", model=LARGE, backend=side.named(backend), mode=mode)
            row |= dict(start_s=engine.seconds_to_start, cached_tokens=engine.cached_tokens)
            row |= dict(prefill={}, decode={})
            engine.steps(prompts_of(chosen, LARGE, [side.decoding[0][1]] * 4), 4)
            for count, length in side.prompts:
                found = []
                for _ in range(ROUNDS):
                    _, times = engine.steps(prompts_of(chosen, LARGE, [length] * count), 1)
                    found.append(count * length / times[-1][0])
                row["prefill"][f"{count}x{length}"] = statistics.median(found[1:])
            for count, length, answer in side.decoding:
                _, times = engine.steps(prompts_of(chosen, LARGE, [length] * count), answer)
                row["decode"][f"{count}x{length}"], row["steps"] = decoding_rate(times, count)
            engine.close()
            yield row


def speed_ratios(rows, theirs):
    """Return how many times as fast attn is as the engine's own backend, in the same mode."""
    speed = {(row["mode"], row["backend"]): row for row in rows if row["part"] == "speed"}
    found = {}
    for (mode, backend), ours in speed.items():
        other = speed.get((mode, theirs), {}) if backend == "attn" else {}
        for kind in ("prefill", "decode"):
            for shape, rate in ours[kind].items():
                if rate and other.get(kind, {}).get(shape):
                    found[f"{mode} {kind} {shape}"] = rate / other[kind][shape]
    return found


def run(name, description, side, parts, ratios, prepare, own=None):
    """Run the parts that the command line names, and report. `prepare` registers attn and returns the engine's version.
    `own` gives a part backends of its own, and the option that chooses among them: {part: (option, backends)}."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sides = [side.theirs, side.ours]
    parser.add_argument("parts", nargs="+", choices=parts)
    parser.add_argument(
        "--modes", nargs="+", choices=("eager", "graphs"), default=["eager", "graphs"][: 1 + ON_GPU]
    )
    parser.add_argument("--backends", nargs="+", choices=sides, default=sides)
    for part, (option, backends) in (own or {}).items():
        parser.add_argument(option, dest=part, nargs="+", choices=backends, default=backends)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    report = {
        **header(name, torch.cuda.get_device_name() if ON_GPU else None),
        "versions": {name: prepare(), "torch": torch.__version__},
        "rows": [],
        "failures": {},
    }
    for part in asked.parts:
        try:
            with tempfile.TemporaryDirectory() as folder:
                for row in parts[part](folder, asked.modes, getattr(asked, part, asked.backends)):
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
