# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn in SGLang on a CPU, beside SGLang's own backend of PyTorch and float64: the same tokens, and log-probabilities that
are close.

They run where ATTN_SGLANG_PYTHON names an interpreter that has SGLang, as `./dev test --full` does."""

import json
import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from compared import CLOSE, differences, right

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("ATTN_BUILD", ROOT / "build")) / "python"
sys.path.insert(0, str(ROOT / "examples/13_real_model"))

import smollm2  # noqa: E402

PYTHON = os.environ.get("ATTN_SGLANG_PYTHON")
if not PYTHON:
    why = os.environ.get("ATTN_WITHOUT_SGLANG") or "ATTN_SGLANG_PYTHON names no Python with SGLang"
    pytest.skip(f"{why}: ./dev test --full makes build/sglang-env", allow_module_level=True)
if not (BUILT / "attn" / "libattn_compiler.so.0").exists():
    pytest.skip("the extension is not built", allow_module_level=True)


def installed(folder):
    """Write the entry points of an installed attn, as pyproject.toml has them, and those of the tests."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    tests = {"sglang.srt.plugins": {"tests": "sglang_plugin:register"}}
    for name, groups in (("attn", declared), ("tests", tests)):
        about = folder / f"{name}-0.1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        lines = []
        for group, points in groups.items():
            lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run cases in a process of their own; return the results by name, and what it wrote to stderr."""

    def run(cases, program="sglang_worker.py"):
        paths = [installed(tmp_path_factory.mktemp("installed")), str(BUILT), str(Path(__file__).parent)]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        worker = [PYTHON, Path(__file__).with_name(program)]
        done = subprocess.run(
            worker, input=json.dumps(cases), env=env, capture_output=True, text=True, timeout=1800
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        found = [json.loads(line.removeprefix("RESULT ")) for line in lines]
        return {each.pop("name"): each for each in found}, done.stderr

    return run


@pytest.fixture(scope="module")
def ask(run):
    """Run cases, each of which has a result."""

    def ask(cases, *program):
        found, errors = run(cases, *program)
        assert len(found) == len(cases), errors[-6000:]
        return found

    return ask


NGRAMS = dict(
    speculative_algorithm="NGRAM", speculative_num_draft_tokens=6, page_size=1, enable_mixed_chunk=False
)
"""Options with which SGLang verifies trees of drafts that it looks up in what it has read."""


# --- A model that somebody trained


@pytest.fixture(scope="module")
def answers(ask):
    """Prompts with answers that are not nearly others. Those of the second round begin as the first of the first does."""
    if why := smollm2.missing():
        pytest.skip(why)
    folder, tokens, text = str(smollm2.fetch()), smollm2.tokenizer(), smollm2.prose("compound")[:330]
    first = [
        f"{text}\n\nIn short,",
        "A, B, C, D,",
        "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
        "The capital of France is",
        "def fibonacci(n):",
        "if __name__ ==",
        "We hold these truths to be self-evident",
    ]
    second = [f"{text}\n\nFor example,", f"{text}\n\nSee also"]
    rounds = [[tokens(each)["input_ids"] for each in prompts] for prompts in (first, second)]
    case = dict(model=folder, backend="attn", rounds=rounds, tokens=12)
    faults = ("times zero", "slots", "stale table")
    cases = [
        case | dict(name="SGLang", backend="torch_native"),
        case | dict(name="attn"),
        case | dict(name="beside decoding", logprobs=False),
        case | dict(name="float64", mutant="float64"),
        case | dict(name="graphs", mutant="graphs"),
        case | dict(name="stale graphs", mutant="stale graphs"),
        *(case | dict(name=fault, mutant=fault) for fault in faults),
        case | dict(name="tokens as pages", options=dict(page_size=1)),
        case | dict(name="graphs of tokens as pages", mutant="graphs", options=dict(page_size=1)),
        case
        | dict(
            name="pages of 48",
            options=dict(page_size=48, chunked_prefill_size=96, max_total_tokens=1920),
        ),
    ]
    drafts = case | dict(rounds=[rounds[0][1:3]], options=NGRAMS)
    cases += [drafts | dict(name="drafts"), drafts | dict(name="chains for trees", mutant="chains for trees")]
    return ask(cases)


def test_a_trained_model_answers_as_with_sglangs_backend(answers):
    print({name: found.get("seconds") for name, found in answers.items()})
    print(differences(answers["SGLang"], answers["attn"]), answers["SGLang"]["margin"])
    assert answers["SGLang"]["margin"] > CLOSE
    assert right(answers["SGLang"], answers["attn"])


def test_prompts_come_in_chunks_and_decoding_is_attns(answers):
    found = answers["attn"]
    print(found["prompts"], found["mixed"], found["decoding"])
    assert answers["SGLang"]["decoding"] == 0  # Who asks for another backend gets it.
    assert found["most"] == 64 and found["prompts"] + found["mixed"] >= 4 and found["decoding"] >= 22


@pytest.mark.parametrize("name", ["graphs", "graphs of tokens as pages"])
def test_steps_of_graphs_answer_as_others(answers, name):
    print(answers[name]["graphs"], differences(answers["SGLang"], answers[name]))
    assert answers[name]["graphs"] >= 22 and right(answers["SGLang"], answers[name])
    assert answers["attn"]["graphs"] == answers[name]["decoding"] == 0
    assert not right(answers["SGLang"], answers["stale graphs"])


def test_chunks_are_read_beside_decoding(answers):
    found = answers["beside decoding"]
    print(found["mixed"])
    assert found["mixed"] > answers["attn"]["mixed"] and found["tokens"] == answers["SGLang"]["tokens"]


@pytest.mark.parametrize(
    ("name", "least"), [("SGLang", 64), ("attn", 64), ("tokens as pages", 70), ("pages of 48", 48)]
)
def test_prompts_with_a_common_prefix_find_it_in_the_cache(answers, name, least):
    cached = answers[name]["cached"]
    assert cached[:7] == [0] * 7 and least <= min(cached[7:]) <= max(cached[7:]) < least + 16


def test_neighbours_read_a_common_prefix_once(answers):
    print({name: found.get("shared") for name, found in answers.items()})
    assert answers["attn"]["shared"] > 8 and answers["tokens as pages"]["shared"] > 8


@pytest.mark.parametrize("name", ["tokens as pages", "pages of 48"])
def test_other_pages_change_nothing(answers, name):
    print(name, differences(answers["SGLang"], answers[name]))
    assert right(answers["SGLang"], answers[name])


def test_answers_are_those_of_float64_over_the_same_pages(answers):
    print("float64", differences(answers["float64"], answers["attn"]))
    assert right(answers["float64"], answers["attn"])


@pytest.fixture(scope="module")
def two(answers):
    """Return the answers of SGLang's backend to the prompts that drafts are looked up for."""
    return {name: answers["SGLang"][name][1:3] for name in ("tokens", "logprobs")}


def test_trees_of_drafts_are_verified(answers, two):
    print("drafts", differences(two, answers["drafts"]), answers["drafts"]["drafts"])
    assert right(two, answers["drafts"])
    assert answers["drafts"]["drafts"] > 4 and answers["drafts"]["decoding"] == 0


def test_drafts_that_see_others_branches_are_seen(answers, two):
    print("chains", differences(two, answers["chains for trees"]))
    assert not right(two, answers["chains for trees"])


@pytest.mark.parametrize("fault", ["times zero", "slots", "stale table"])
def test_faults_are_seen(answers, fault):
    assert not right(answers["SGLang"], answers[fault])


# --- Windows in pools of their own, sinks and caps, in random models


FAULTS = {
    "granite_swa": ("window + 1", "window - 1", "no sinks", "windows of the full pool"),
    "sglang_gemma2": ("window + 1", "window - 1", "no cap"),
}


@pytest.fixture(scope="module")
def random_models(ask, tmp_path_factory):
    folder, cases = tmp_path_factory.mktemp("models"), []
    for kind, seed, dtype in (("granite_swa", 13, "float16"), ("sglang_gemma2", 23, "bfloat16")):
        numbers = random.Random(seed)
        prompts = [[numbers.randrange(3, 512) for _ in range(count)] for count in (70, 5, 33, 90)]
        case = dict(kind=kind, model=str(folder / kind), rounds=[prompts], tokens=12, backend="attn")
        case["options"] = dict(dtype=dtype)
        cases += [
            case | dict(name=f"{kind}, {each}", mutant=each) for each in (None, "float64", *FAULTS[kind])
        ]
        if kind == "granite_swa":
            tokens = dict(options=dict(dtype=dtype, page_size=1))
            cases.append(case | tokens | dict(name=f"{kind}, tokens as pages"))
            cases.append(case | dict(name=f"{kind}, graphs", mutant="graphs"))
        cases.append(case | dict(name=f"{kind}, Transformers", of=f"{kind}, None"))
    return ask(cases)


@pytest.mark.parametrize(("kind", "close"), [("granite_swa", CLOSE), ("sglang_gemma2", 2 * CLOSE)])
@pytest.mark.parametrize("other", ["float64", "Transformers"])
def test_random_models_answer_as_without_pages(random_models, kind, close, other):
    print(kind, other, differences(random_models[f"{kind}, {other}"], random_models[f"{kind}, None"]))
    assert right(random_models[f"{kind}, {other}"], random_models[f"{kind}, None"], close)


@pytest.mark.parametrize("name", ["tokens as pages", "graphs"])
def test_windows_have_pools_of_their_own(random_models, name):
    assert right(random_models["granite_swa, Transformers"], random_models[f"granite_swa, {name}"])


@pytest.mark.parametrize(
    ("kind", "fault"), [(kind, each) for kind, faults in FAULTS.items() for each in faults]
)
def test_faults_of_layers_are_seen(random_models, kind, fault):
    assert not right(random_models[f"{kind}, float64"], random_models[f"{kind}, {fault}"], 2 * CLOSE)


# --- Latents (MLA), in a random model


@pytest.fixture(scope="module")
def latents(ask, tmp_path_factory):
    """Prompts in chunks; those of the second round begin as the first of the first does."""
    numbers = random.Random(1)

    def draw(count):
        return [numbers.randrange(3, 512) for _ in range(count)]

    common = draw(70)
    rounds = [
        [common + draw(8), draw(5), draw(33), draw(90)],
        [common + draw(5), common[:66] + draw(9)],
    ]
    model = str(tmp_path_factory.mktemp("models") / "deepseek")
    case = dict(kind="deepseek", model=model, rounds=rounds, tokens=8, backend="attn")
    faults = ("times zero", "slots", "stale table", "no rotated features")
    # Answers of the first round are the drafts of the second.
    again = dict(name="drafts", rounds=[rounds[0]] * 2, options=NGRAMS)
    return ask(
        [
            case | dict(name="SGLang", backend="torch_native"),
            case | dict(name="attn"),
            case | dict(name="float64", mutant="float64"),
            case | dict(name="graphs", mutant="graphs"),
            *(case | dict(name=fault, mutant=fault) for fault in faults),
            case | dict(name="tokens as pages", options=dict(page_size=1)),
            case | again,
            case | dict(name="Transformers", of="attn"),
        ]
    )


def test_latents_answer_as_without_pages(latents):
    print("Transformers", differences(latents["Transformers"], latents["attn"]))
    assert right(latents["Transformers"], latents["attn"])


@pytest.mark.parametrize("name", ["attn", "graphs", "tokens as pages"])
@pytest.mark.parametrize("other", ["SGLang", "float64"])
def test_latents_answer_as_with_sglangs_backend(latents, other, name):
    print(other, name, differences(latents[other], latents[name]), latents[other]["margin"])
    assert right(latents[other], latents[name])


def test_steps_over_latents_are_of_all_kinds(latents):
    found, graphs = latents["attn"], latents["graphs"]
    print({name: found[name] for name in ("prompts", "mixed", "decoding", "shared", "cached")})
    assert found["prompts"] + found["mixed"] >= 4 and found["decoding"] >= 14 and found["shared"] > 4
    assert found["cached"] == [0] * 4 + [64] * 2 and min(latents["tokens as pages"]["cached"][4:]) >= 66
    assert graphs["graphs"] >= 14 and graphs["decoding"] == 0


def test_trees_of_drafts_are_verified_over_latents(latents):
    found = latents["drafts"]
    twice = {name: latents["SGLang"][name][:4] * 2 for name in ("tokens", "logprobs")}
    print("drafts", differences(twice, found), found["drafts"])
    assert right(twice, found)
    # A step verifies drafts of all four; without accepted ones there are seven in each round. One row of a prompt is read if the
    # cache has all others.
    assert found["decoding"] <= 1 and 7 < found["drafts"] < 12


@pytest.mark.parametrize("fault", ["times zero", "slots", "stale table", "no rotated features"])
def test_faults_over_latents_are_seen(latents, fault):
    assert not right(latents["float64"], latents[fault])


# --- Layers over SGLang's pools, without a model: 8-bit floats, which SGLang does not keep on this CPU, and trees of drafts


LAYERS = {
    "16 bits": dict(page_size=16, window=9, cap=3.0, sinks=True),
    "16 bits, tokens as pages": dict(page_size=1, sinks=True),
    "fp8_e4m3": dict(page_size=16, dtype="float8_e4m3fn"),
    "fp8_e5m2": dict(page_size=1, dtype="float8_e5m2", window=9, cap=3.0),
    "graphs": dict(page_size=16, window=9, cap=3.0, sinks=True, graphs=True),
    "graphs, fp8_e4m3, tokens as pages": dict(page_size=1, dtype="float8_e4m3fn", graphs=True),
    "latents": dict(page_size=16, latent=True),
    "latents, in a window, tokens as pages": dict(page_size=1, window=9, cap=3.0, sinks=True, latent=True),
    "latents, fp8_e4m3": dict(page_size=16, dtype="float8_e4m3fn", latent=True),
    "latents, graphs": dict(page_size=16, graphs=True, latent=True),
    "latents, graphs, fp8_e4m3": dict(page_size=1, dtype="float8_e4m3fn", graphs=True, latent=True),
    "trees": dict(page_size=16, mask="drafts"),
    "trees, in a window": dict(page_size=16, window=9, cap=3.0, sinks=True, mask="whole"),
    "trees, fp8_e4m3": dict(page_size=1, dtype="float8_e4m3fn", mask="whole"),
    "trees over latents": dict(page_size=16, latent=True, mask="drafts"),
    "trees over latents, in a window": dict(
        page_size=1, window=9, cap=3.0, sinks=True, latent=True, mask="whole"
    ),
    "trees over latents, fp8_e4m3": dict(page_size=16, dtype="float8_e4m3fn", latent=True, mask="whole"),
}
FAULTS_OF_LAYERS = {
    "no scales": LAYERS["fp8_e4m3"],
    "slots": LAYERS["fp8_e4m3"],
    "window - 1": LAYERS["16 bits"],
    "no sinks": LAYERS["16 bits"],
    "no cap": LAYERS["16 bits"],
    "chains for trees": LAYERS["trees"],
    "window + 1": LAYERS["graphs"],
    "no rotated features": LAYERS["latents"],
    "chains for trees over latents": LAYERS["trees over latents"] | dict(mutant="chains for trees"),
}


@pytest.fixture(scope="module")
def layers(ask):
    cases = [case | dict(name=name) for name, case in LAYERS.items()]
    for fault, case in FAULTS_OF_LAYERS.items():
        cases.append(dict(mutant=fault) | case | dict(name=fault))
    return ask(cases, "sglang_layers.py")


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_as_in_float64(layers, name):
    print(name, layers[name])
    assert layers[name]["apart"] < 2e-3


@pytest.mark.parametrize("fault", FAULTS_OF_LAYERS)
def test_faults_over_pools_are_seen(layers, fault):
    print(fault, layers[fault])
    assert layers[fault]["apart"] > 2e-2


# --- Refusals


OPTIONS = {
    "served": (dict(kv_cache_dtype="fp8_e4m3", page_size=32), None),
    "drafts": (
        dict(speculative_algorithm="EAGLE"),
        "speculative_algorithm: expected none or NGRAM, got 'EAGLE'",
    ),
    "graphs": (
        dict(cuda_graph_config=dict(decode=dict(backend="full"), prefill=dict(backend="breakable"))),
        None,
    ),
    "graphs of parts": (dict(cuda_graph_config=dict(decode=dict(backend="breakable"))), None),
    "graphs of drafts": (
        dict(speculative_algorithm="NGRAM", cuda_graph_config=dict(decode=dict(backend="full"))),
        None,
    ),
    "compiled": (dict(enable_torch_compile=True), "enable_torch_compile: expected none, got True"),
    "scoring": (
        dict(enable_mis=True),
        "enable_mis: expected none, got True: items of a prompt that do not see",
    ),
    "codes": (dict(kv_cache_dtype="mxfp8"), "kv_cache_dtype: expected one of auto, fp8_e4m3, fp8_e5m2, bf16"),
    "decoding alone": (
        dict(attention_backend=None, decode_attention_backend="attn", enable_mis=True),
        "attn's backend cannot serve these options: enable_mis",
    ),
}


@pytest.fixture(scope="module")
def options(ask):
    if why := smollm2.missing():
        pytest.skip(why)
    return ask(
        [dict(name=name, model=str(smollm2.fetch()), check=given) for name, (given, _) in OPTIONS.items()]
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_not_served_are_refused_with_the_reason(options, name):
    expected = OPTIONS[name][1]
    assert expected in options[name]["error"] if expected else "error" not in options[name], options[name]


def test_graphs_of_decoding_alone_are_kept(options):
    graphs = {name: found["graphs"] for name, found in options.items() if "graphs" in found}
    print(graphs)
    assert graphs["graphs"] == ["full", "disabled"]
    assert graphs["graphs of parts"] == graphs["graphs of drafts"] == ["disabled", "disabled"]


def test_layers_that_are_not_served_are_refused_before_they_answer(run, tmp_path):
    case = dict(
        name="wide", kind="wide", model=str(tmp_path / "wide"), backend="attn", rounds=[[[3]]], tokens=1
    )
    found, errors = run([case])
    assert (
        found == {}
        and (
            "ValueError: attn's backend cannot serve this model: model.layers.0.self_attn.attn: head_dim: expected a multiple of "
            "8 from 8 to 256, or of 32 up to 576, got 1024"
        )
        in errors
    )
