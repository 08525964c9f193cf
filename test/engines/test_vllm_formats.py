# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn's formats of keys and values in vLLM on a CPU, beside float64 over the same dequantized pages."""

import random

import compared
import pytest
from compared import close, differences, followed, need_vllm

need_vllm()

FORMATS = ("int8", "int8_int4", "int4", "int4_int2", "mxfp8", "mxfp4", "nvfp4")
BYTES = dict(zip(FORMATS, (136, 104, 72, 56, 136, 72, 72), strict=True))
"""Bytes of a token and head of 64 features; 256 in 16 bits."""

CLOSE = 0.02  # the largest difference of log-probabilities
NEAR = 2e-3  # the largest difference of a layer's outputs, of the largest of a step


def asking(format, **options):
    return dict(options=options | dict(additional_config=dict(attn_kv_cache_dtype=format)))


# --- A layer with random weights, in every format. In more layers, elements that round to another number set answers apart.


@pytest.fixture(scope="module")
def random_prompts():
    numbers = random.Random(1)
    found = [[numbers.randrange(3, 512) for _ in range(count)] for count in (70, 5, 33, 90)]
    return [*found, found[3][:80] + [7]]  # It begins as the last one.


@pytest.fixture(scope="module")
def small(ask, random_prompts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kind = "one layer"
    case = dict(kind=kind, model=str(folder / kind), prompts=random_prompts, tokens=8, backend="CUSTOM")
    cases = [case | dict(name="16 bits")]
    for format in FORMATS:
        cases += [
            case | asking(format) | dict(name=format),
            case | asking(format) | dict(name=f"{format}, float64", mutant="float64"),
        ]
    # Four requests fit when they begin, and do not when they have grown to 70 tokens.
    long = dict(prompts=[each[:20] for each in random_prompts if len(each) >= 20] * 2, tokens=50)
    few = dict(num_gpu_blocks_override=12, max_model_len=80, enable_prefix_caching=False, block_size=16)
    cases += [
        case | asking("int8_int4", block_size=16) | long | dict(name="pages of 16"),
        case | asking("int8_int4", **few) | long | dict(name="few pages"),
        case | asking("nvfp4", block_size=16) | dict(name="nvfp4, pages of 16"),
        case | asking("int8_int4", block_size=48) | dict(name="blocks of 48"),
        case | asking("int8_int4") | dict(name="scales of neighbours", mutant="scales of neighbours"),
        case | asking("int8") | dict(name="swapped codes", mutant="swapped codes"),
        case | asking("int8_int4") | dict(name="slots", mutant="slots"),
        case | asking("int8_int4", block_size=16) | long | dict(name="stale table", mutant="stale table"),
        case | dict(name="16 bits again"),
    ]
    return ask(cases)


@pytest.mark.parametrize("format", FORMATS)
def test_answers_are_those_of_float64_over_the_same_pages(small, format):
    print(
        format,
        followed(small[format], small[f"{format}, float64"]),
        followed(small[format], small["16 bits"]),
    )
    assert close(small[format], small[f"{format}, float64"], CLOSE)
    assert small[format]["cached"] == [0, 0, 0, 0, 64]


@pytest.mark.parametrize("format", ["int8_int4", "int4", "int4_int2", "mxfp4", "nvfp4"])
def test_answers_in_few_bits_are_not_those_in_16(small, format):
    assert not close(small[format], small["16 bits"], CLOSE)


def test_other_pages_change_nothing(small):
    assert close(small["nvfp4"], small["nvfp4, pages of 16"], CLOSE)
    assert close(small["int8_int4"], small["blocks of 48"], CLOSE)


def test_preempted_requests_answer_as_others(small):
    print("preempted", small["few pages"]["preempted"], followed(small["few pages"], small["pages of 16"]))
    assert small["few pages"]["preempted"] > 0 == small["pages of 16"]["preempted"]
    assert close(small["few pages"], small["pages of 16"], CLOSE)


@pytest.mark.parametrize("format", FORMATS)
def test_the_cache_has_more_blocks(small, format):
    """vLLM's own number of blocks, in the same memory."""
    assert small[format]["blocks"] == pytest.approx(
        small["16 bits"]["blocks"] * 256 / BYTES[format], rel=1e-3
    )


@pytest.mark.parametrize(
    ("mutant", "right"),
    [
        ("scales of neighbours", "int8_int4, float64"),
        ("swapped codes", "int8, float64"),
        ("slots", "int8_int4, float64"),
        ("stale table", "pages of 16"),
    ],
)
def test_faults_are_seen(small, mutant, right):
    print(mutant, followed(small[right], small[mutant]))
    assert not close(small[right], small[mutant], 5 * CLOSE)


def test_an_engine_without_a_format_is_not_changed(small):
    assert small["16 bits again"]["blocks"] == small["16 bits"]["blocks"]
    assert differences(small["16 bits"], small["16 bits again"]) == (True, 0)


# --- Both layouts, hybrid groups with windows, caps and sinks


@pytest.fixture(scope="module")
def hybrid(ask, random_prompts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for layout in ("LBHNC", "LBNHC"):
        cases = []
        for kind, format in (("gpt_oss", "int8_int4"), ("windowed", "int4"), ("gemma2", "mxfp8")):
            dtype = "bfloat16" if kind == "gemma2" else "float16"
            case = dict(
                kind=kind, model=str(folder / kind), prompts=random_prompts, tokens=6, backend="CUSTOM"
            )
            case |= asking(format, dtype=dtype) | dict(name=f"{kind}, {layout}", mutant="beside float64")
            cases.append(case)
        found |= ask(cases, VLLM_KV_CACHE_LAYOUT=layout)
    return found


@pytest.mark.parametrize("kind", ["gpt_oss", "windowed", "gemma2"])
def test_layouts_and_kinds_of_layers(hybrid, kind):
    one, other = (hybrid[f"{kind}, {layout}"] for layout in ("LBHNC", "LBNHC"))
    print(kind, one["apart"], other["apart"])
    assert 0 < max(one["apart"], other["apart"]) < (8 if kind == "gemma2" else 1) * NEAR
    assert differences(one, other) == (True, 0)


# --- A model that somebody trained


@pytest.fixture(scope="module")
def trained(ask, smollm, prompts):
    case = dict(model=smollm, backend="CUSTOM", prompts=prompts, tokens=12)
    int8 = asking("int8", block_size=16)
    return ask(
        [
            case | dict(name="16 bits"),
            case | int8 | dict(name="int8", mutant="beside float64"),
            case | int8 | dict(name="int8, float64", mutant="float64"),
            *(
                case | asking(each) | dict(name=each, mutant="beside float64")
                for each in ("int8_int4", "nvfp4")
            ),
        ]
    )


def test_a_trained_model_answers_in_8_bits(trained):
    """Elements that round to another number set answers of 30 layers apart, as far as those in 16 bits are."""
    found, exact = trained["int8"], trained["int8, float64"]
    print("int8", followed(found, exact), followed(found, trained["16 bits"]))
    assert found["tokens"] == exact["tokens"] == trained["16 bits"]["tokens"]
    assert followed(found, exact)[1] < 10 * CLOSE
    assert found["cached"] == [0] * 7 + [64]


@pytest.mark.parametrize("format", ["int8", "int8_int4", "nvfp4"])
def test_layers_of_a_trained_model_are_near_float64(trained, format):
    print(format, trained[format]["apart"], followed(trained[format], trained["16 bits"]))
    assert 0 < trained[format]["apart"] < NEAR


# --- Refusals


REFUSED = {
    "word": (
        dict(kind="windowed", **asking("int8_int8")),
        "attn_kv_cache_dtype: expected one of int8, int8_int4, int4, int4_int2, mxfp8, mxfp4, nvfp4, got 'int8_int8'; nearest "
        "legal: 'int8_int4'",
    ),
    "dim": (
        dict(kind="windowed", **asking("int4_int2")),
        "head_size: expected a dim of whole 16 bytes, a multiple of 64 elements of int2, got 32; nearest legal: 64",
    ),
    "block": (
        dict(kind="windowed", **asking("int8", block_size=24)),
        "block_size: expected a multiple of 16 tokens, got 24; nearest legal: 16 or 32",
    ),
    "two words": (
        dict(kind="windowed", **asking("int8", kv_cache_dtype="fp8")),
        "kv_cache_dtype: expected auto beside attn_kv_cache_dtype=int8, got fp8",
    ),
    "skipped layers": (
        dict(kind="windowed", **asking("int8", kv_cache_dtype_skip_layers=["0"])),
        "kv_cache_dtype_skip_layers: expected none beside attn_kv_cache_dtype=int8",
    ),
    "vLLM's word": (
        dict(kind="windowed", options=dict(kv_cache_dtype="int8_per_token_head")),
        'nearest legal: auto with additional_config={"attn_kv_cache_dtype": "int8"}',
    ),
}


@pytest.fixture(scope="module")
def refused(ask, tmp_path_factory):
    return compared.refused(ask, tmp_path_factory.mktemp("refused"), REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_format_cannot_have_is_refused_before_it_runs(refused, name):
    assert REFUSED[name][1] in refused[name]["error"]
