# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn in vLLM on a CPU, beside vLLM's own backend: the same tokens, and log-probabilities that are close.

They run where ATTN_VLLM_PYTHON names an interpreter that has vLLM, as `./dev test --full` does."""

import random

import compared
import pytest
from compared import CLOSE, differences, need_vllm, right

need_vllm()

DEVICE_PLANS = dict(additional_config=dict(attn_device_plans=True))

# --- A model that somebody trained


@pytest.fixture(scope="module")
def answers(ask, smollm, prompts):
    case = dict(model=smollm, backend="CUSTOM", prompts=prompts, tokens=12)
    ngrams = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3, prompt_lookup_min=1)
    return ask(
        [
            case | dict(name="vLLM", backend=None),
            case | dict(name="attn"),
            case | dict(name="pages of 16", options=dict(block_size=16)),
            case | dict(name="blocks of 48", options=dict(block_size=48)),
            case
            | dict(
                name="neighbours",
                prompts=[prompts[0], prompts[-1], *prompts[1:-1]],
                options=dict(block_size=16),
            ),
            case | dict(name="device plans", options=DEVICE_PLANS),
            case | dict(name="device plans of pages of 16", options=DEVICE_PLANS | dict(block_size=16)),
            case
            | dict(
                name="stale table on the device", options=DEVICE_PLANS, mutant="stale table on the device"
            ),
            case | dict(name="float64", mutant="float64"),
            case | dict(name="slots", mutant="slots"),
            case | dict(name="stale table", mutant="stale table"),
            # The last: vLLM's models after it fail in this process, with either backend.
            case | dict(name="ngrams", options=dict(speculative_config=ngrams)),
        ]
    )


def test_a_trained_model_answers_as_with_vllms_backend(answers):
    print({name: found.get("seconds") for name, found in answers.items()})
    print(differences(answers["vLLM"], answers["attn"]), answers["vLLM"]["margin"])
    assert answers["vLLM"]["margin"] > CLOSE
    assert right(answers["vLLM"], answers["attn"])


def test_the_second_prompt_of_a_prefix_finds_it_in_the_cache(answers):
    for name in ("vLLM", "attn", "pages of 16"):
        assert answers[name]["cached"] == [0] * 7 + [64], name


def test_neighbours_read_a_common_prefix_once(answers):
    """Requests whose pages are the same in front, one behind the other in the batch."""
    found = answers["neighbours"]
    print("neighbours", found["shared"], found["cached"], found["seconds"])
    assert found["shared"] > 8 and found["cached"] == [0, 64] + [0] * 6
    ordered = {
        name: [answers["vLLM"][name][at] for at in (0, 7, *range(1, 7))] for name in ("tokens", "logprobs")
    }
    assert right(ordered, found)


OTHERS = ["pages of 16", "blocks of 48", "ngrams", "device plans", "device plans of pages of 16"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_pages_and_speculation_change_nothing(answers, name):
    assert right(answers["vLLM"], answers[name])


def test_answers_are_those_of_float64_over_the_same_pages(answers):
    print("float64", differences(answers["float64"], answers["attn"]))
    assert right(answers["float64"], answers["attn"])


@pytest.mark.parametrize("mutant", ["slots", "stale table", "stale table on the device"])
def test_faults_of_tables_are_seen(answers, mutant):
    assert not right(answers["vLLM"], answers[mutant])


def test_a_fault_behind_the_entry_point_is_seen(ask, answers, smollm, prompts):
    case = dict(name="times zero", model=smollm, backend="CUSTOM", prompts=prompts, tokens=12)
    found = ask([case, case | dict(name="vLLM", backend=None)], entry_point="mutants:register")
    assert not right(answers["vLLM"], found["times zero"])
    assert right(answers["vLLM"], found["vLLM"])  # Who asks for no backend gets vLLM's.


def test_heads_may_lie_before_tokens(ask, answers, smollm, prompts):
    case = dict(name="heads first", model=smollm, backend="CUSTOM", prompts=prompts, tokens=12)
    found = ask([case], VLLM_KV_CACHE_LAYOUT="LBHNC")
    assert right(answers["vLLM"], found["heads first"])


def test_layers_quantize_their_outputs(ask, tmp_path):
    """vLLM's compiler fuses the quantization of outputs into attention, on GPUs alone."""
    prompts = [[3 + (7 * i) % 500 for i in range(count)] for count in (70, 5)]
    case = dict(
        kind="windowed", model=str(tmp_path / "windowed"), backend="CUSTOM", prompts=prompts, tokens=4
    )
    case |= dict(mutant="e4m3 beside 16 bits")
    found = ask([case | dict(name="host"), case | dict(name="device", options=DEVICE_PLANS)])
    for name in ("host", "device"):
        assert found[name].get("apart", 1) < 0.04, found[name]


# --- Windows, caps, slopes and sinks, in random models


@pytest.fixture(scope="module")
def random_models(ask, tmp_path_factory):
    folder, numbers = tmp_path_factory.mktemp("models"), random.Random(1)
    prompts = [[numbers.randrange(3, 512) for _ in range(count)] for count in (70, 5, 33, 90)]
    cases = []
    for kind in ("gpt_oss", "windowed", "bloom", "gemma2"):
        dtype = "bfloat16" if kind == "gemma2" else "float16"
        case = dict(kind=kind, model=str(folder / kind), prompts=prompts, tokens=8, options=dict(dtype=dtype))
        cases += [case | dict(name=f"{kind}, {each}", backend=each) for each in (None, "CUSTOM")]
        cases.append(case | dict(name=f"{kind}, float64", backend="CUSTOM", mutant="float64"))
        planned = dict(options=DEVICE_PLANS | dict(dtype=dtype))
        cases.append(case | planned | dict(name=f"{kind}, device plans", backend="CUSTOM"))
        if kind == "windowed":
            large = dict(dtype=dtype, block_size=784)  # Hybrid models have such blocks.
            cases += [
                case | dict(name="windowed, blocks of 784", backend="CUSTOM", options=large),
                case
                | dict(name="blocks of 784, device plans", backend="CUSTOM", options=DEVICE_PLANS | large),
            ]
            fp8 = dict(options=dict(dtype=dtype, kv_cache_dtype="fp8_e4m3"))
            cases += [
                case | fp8 | dict(name="windowed, fp8", backend="CUSTOM"),
                case | fp8 | dict(name="windowed, fp8, float64", backend="CUSTOM", mutant="float64"),
            ]
        if kind in ("windowed", "gpt_oss"):
            mutants = ("window + 1", "window - 1") if kind == "windowed" else ("window + 1", "no sinks")
            cases += [case | dict(name=f"{kind}, {each}", backend="CUSTOM", mutant=each) for each in mutants]
        if kind == "bloom":
            cases.append(case | dict(name="bloom, no slopes", backend="CUSTOM", mutant="no slopes"))
        if kind == "gemma2":
            cases.append(case | dict(name="gemma2, no cap", backend="CUSTOM", mutant="no cap"))
    # The experts of gpt_oss are parallel only in a process whose first model has some.
    of_experts = [case for case in cases if case["kind"] == "gpt_oss"]
    return ask(of_experts) | ask([case for case in cases if case["kind"] != "gpt_oss"])


@pytest.mark.parametrize(
    ("kind", "close"), [("windowed", CLOSE), ("gpt_oss", CLOSE), ("bloom", CLOSE), ("gemma2", 2 * CLOSE)]
)
def test_random_models_answer_as_with_vllms_backend(random_models, kind, close):
    for other in ("None", "float64"):
        print(kind, other, differences(random_models[f"{kind}, {other}"], random_models[f"{kind}, CUSTOM"]))
        assert right(random_models[f"{kind}, {other}"], random_models[f"{kind}, CUSTOM"], close)
    planned = random_models[f"{kind}, device plans"]
    print(kind, "device plans", differences(planned, random_models[f"{kind}, CUSTOM"]))
    assert right(random_models[f"{kind}, None"], planned, close)


@pytest.mark.parametrize("name", ["windowed, blocks of 784", "blocks of 784, device plans"])
def test_blocks_of_hybrid_models_change_nothing(random_models, name):
    print(name, differences(random_models["windowed, None"], random_models[name]))
    assert right(random_models["windowed, None"], random_models[name])


def test_caches_of_8_bits_are_read_as_in_float64(random_models):
    """They are compared in two layers: in more, elements that round to another number set answers apart."""
    print("fp8", differences(random_models["windowed, fp8"], random_models["windowed, fp8, float64"]))
    assert right(random_models["windowed, fp8"], random_models["windowed, fp8, float64"])
    assert not right(random_models["windowed, fp8"], random_models["windowed, CUSTOM"])


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [
        ("windowed", "window + 1"),
        ("windowed", "window - 1"),
        ("gpt_oss", "window + 1"),
        ("gpt_oss", "no sinks"),
        ("bloom", "no slopes"),
        ("gemma2", "no cap"),
    ],
)
def test_faults_of_layers_are_seen(random_models, kind, mutant):
    assert not right(random_models[f"{kind}, None"], random_models[f"{kind}, {mutant}"], 2 * CLOSE)


# --- Latents (MLA), in a random model


LATENTS = dict(max_num_batched_tokens=256, block_size=16)
"""Options that vLLM takes for latents on a CPU, where it reads prompts whole."""

FAULTS_OF_LATENTS = (
    "latents times zero",
    "latents in other slots",
    "no rotated features",
    "stale table",
    "stale table on the device",
)


@pytest.fixture(scope="module")
def latents(ask, tmp_path_factory):
    numbers = random.Random(5)
    prompts = [[numbers.randrange(3, 512) for _ in range(count)] for count in (70, 5, 33, 90)]
    prompts[1] = prompts[1] * 4  # Drafts are looked up in it.
    case = dict(
        kind="deepseek",
        model=str(tmp_path_factory.mktemp("models") / "deepseek"),
        backend="CUSTOM",
        prompts=prompts,
        tokens=12,
        options=LATENTS,
    )
    planned = dict(options=LATENTS | DEVICE_PLANS)
    fp8 = dict(options=LATENTS | dict(kv_cache_dtype="fp8_e4m3"))
    ngrams = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3, prompt_lookup_min=1)
    cases = [
        case | dict(name="vLLM", backend="CPU_MLA"),
        case | dict(name="attn"),
        case | dict(name="float64", mutant="latents in float64"),
        case | planned | dict(name="device plans"),
        case | fp8 | dict(name="fp8"),
        case | fp8 | dict(name="fp8, float64", mutant="latents in float64"),
    ]
    for fault in FAULTS_OF_LATENTS:
        cases.append(case | (planned if "device" in fault else {}) | dict(name=fault, mutant=fault))
    cases.append(case | dict(name="ngrams", options=LATENTS | dict(speculative_config=ngrams)))
    return ask(cases)


@pytest.mark.parametrize("name", ["attn", "device plans", "ngrams"])
@pytest.mark.parametrize("other", ["vLLM", "float64"])
def test_latents_answer_as_with_vllms_backend(latents, other, name):
    print(other, name, differences(latents[other], latents[name]), latents[other]["margin"])
    assert right(latents[other], latents[name])


def test_drafts_are_rows_of_a_step_over_latents(latents):
    print({name: found.get("longest") for name, found in latents.items()})
    assert latents["attn"]["longest"] == 1 < latents["ngrams"]["longest"] and latents["vLLM"]["longest"] == 0


def test_latents_in_8_bits_are_read_as_in_float64(latents):
    print("fp8", differences(latents["fp8"], latents["fp8, float64"]))
    assert right(latents["fp8"], latents["fp8, float64"])
    assert not right(latents["fp8"], latents["attn"])


@pytest.mark.parametrize("fault", FAULTS_OF_LATENTS)
def test_faults_over_latents_are_seen(latents, fault):
    assert not right(latents["vLLM"], latents[fault])


# --- Refusals


REFUSED = {
    "dim": (
        dict(kind="wide"),
        "cannot serve this layer: head_size: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 1024",
    ),
    "dtype": (
        dict(kind="windowed", options=dict(dtype="float32")),
        "dtype: expected 'bfloat16' or 'float16', got ",
    ),
    "block": (
        dict(kind="windowed", options=dict(block_size=24)),
        "block_size: expected a multiple of 16 tokens, got 24; nearest legal: 16 or 32",
    ),
    "plans": (
        dict(kind="windowed", options=dict(additional_config=dict(attn_device_plans=3))),
        "attn_device_plans: expected True or False, got 3",
    ),
    "plans of formats": (
        dict(
            kind="windowed",
            options=dict(additional_config=dict(attn_device_plans=True, attn_kv_cache_dtype="int8")),
        ),
        "attn_device_plans: expected False beside attn_kv_cache_dtype=int8, got True",
    ),
    "encoder": (
        dict(kind="encoder", options=dict(max_num_batched_tokens=256)),
        "attention type: expected 'decoder', got 'encoder_only': attn serves no encoder here",
    ),
}


LATENT_KIND = dict(latent=True, use_mla=True, head_size=576, has_sink=False, has_sliding_window=False)

INVALID = {
    "served": ({}, []),
    "dim": (
        dict(head_size=100),
        [
            "head_size: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 100; nearest legal: 96 or 104"
        ],
    ),
    "dim, fp8": (
        dict(head_size=72, kv_cache_dtype="fp8"),
        [
            "head_size: expected a dim of whole 16 bytes, a multiple of 16 elements of float8_e4m3fn, got 72; nearest legal: "
            "64 or 80"
        ],
    ),
    "dtype": (dict(dtype="float32"), ["dtype: expected 'bfloat16' or 'float16', got dtype torch.float32"]),
    "cache": (
        dict(kv_cache_dtype="int8_per_token_head"),
        [
            "kv_cache_dtype: expected one of auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2, got int8_per_token_head; nearest "
            'legal: auto with additional_config={"attn_kv_cache_dtype": "int8"}'
        ],
    ),
    "other cache": (
        dict(kv_cache_dtype="bfloat16"),
        ["kv_cache_dtype: expected auto or the model's torch.float16, got bfloat16"],
    ),
    "block": (
        dict(block_size=8),
        ["block_size: expected a multiple of 16 tokens, got 8; nearest legal: 16"],
    ),
    "MLA": (dict(use_mla=True), ["MLA not supported"]),
    "latents": (LATENT_KIND, []),
    "latents in 8 bits": (LATENT_KIND | dict(kv_cache_dtype="fp8"), []),
    "latents, dim": (
        LATENT_KIND | dict(head_size=288),
        [
            "head_size: expected 320, 512 or 576 features of a latent in vLLM, got 288; nearest legal: 320",
        ],
    ),
    "latents, cache": (
        LATENT_KIND | dict(kv_cache_dtype="fp8_e5m2"),
        [
            "kv_cache_dtype: expected one of auto, float16, bfloat16, fp8, fp8_e4m3, got fp8_e5m2; nearest legal: fp8"
        ],
    ),
    "latents, window": (LATENT_KIND | dict(has_sliding_window=True), ["sliding window not supported"]),
    "latents, sparse": (LATENT_KIND | dict(use_sparse=True), ["sparse not supported"]),
    "cross": (
        dict(attn_type="encoder_decoder"),
        ["attention type: expected 'decoder', got 'encoder_decoder': attn serves no encoder here"],
    ),
    "not causal": (dict(use_non_causal=True), ["non-causal attention not supported"]),
    "images": (dict(use_mm_prefix=True), ["partial multimodal token full attention not supported"]),
    "batch invariance": (dict(use_batch_invariant=True), []),
    "context": (dict(use_dcp=True, use_pcp=True), ["PCP not supported", "DCP not supported"]),
    "connector": (dict(use_kv_connector=True), ["KV connector not supported"]),
    "sparse": (dict(use_sparse=True), ["sparse not supported"]),
}


@pytest.fixture(scope="module")
def invalid(ask):
    return ask([dict(name=name, validate=changes) for name, (changes, _) in INVALID.items()])


@pytest.mark.parametrize("name", INVALID)
def test_what_is_not_served_is_refused_with_the_reason(invalid, name):
    assert invalid[name].get("reasons") == INVALID[name][1], invalid[name]


@pytest.fixture(scope="module")
def refused(ask, tmp_path_factory):
    return compared.refused(ask, tmp_path_factory.mktemp("refused"), REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused_before_it_runs(refused, name):
    assert REFUSED[name][1] in refused[name]["error"]
