# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of Transformers on several ranks: heads by tensor parallelism, tokens by ShardedCache, against one process."""

import importlib.util

import pytest
import torch
from ranks import FULL, run_ranks

pytest.importorskip("transformers")
import rank_models as models  # noqa: E402
from attn.heads import HeadChoice  # noqa: E402
from rank_models import CASES, COLUMNS, INT8, SHORT, STEPS  # noqa: E402

TOLERANCE = 0.02  # Logits are up to 10, and differ because keys, values and queries are in float16.
OF_INT8 = 0.06  # A value that rounding moves across a boundary changes by a step of the format.
CHOICE = HeadChoice([[0, 1], [1, 0]], sink=4, recent=16)
DIVIDES = importlib.util.find_spec("accelerate") is not None
needs_accelerate = pytest.mark.skipif(not DIVIDES, reason="Transformers divides models with accelerate")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    found = {name: folder / name for name in ("llama", "mistral", "three")}
    models.save(found["llama"])
    models.save(found["mistral"], window=40)
    models.save(found["three"], hidden_size=192, num_attention_heads=6, num_key_value_heads=3)
    return found


@pytest.fixture(scope="module")
def ranks(folders, tmp_path_factory):
    """The results of two ranks."""
    gates, folder = CHOICE if DIVIDES else None, tmp_path_factory.mktemp("ranks")
    return run_ranks(2, models.on_two_ranks, folders, gates, tmp_path=folder, timeout=900.0)


@pytest.fixture(scope="module")
def plain(folders):
    return models.alone(folders["llama"], COLUMNS)


def apart(one, other):
    return (one[1] - other[1]).abs().max().item()


def assert_close(found, wanted, tolerance=TOLERANCE):
    """Tokens are the same, and logits as close as keys and values make them."""
    assert apart(found, wanted) <= tolerance
    assert found[0] == wanted[0]


@needs_accelerate
def test_ranks_share_heads(folders, ranks, plain):
    from attn.transformers import PagedCache, apply_head_gates

    model = models.load(folders["llama"])
    engine = models.answered(model)
    apply_head_gates(model, CHOICE)
    cache = PagedCache(model.config, pages=64, dtype=torch.float16)
    gated = models.generated(model, cache, COLUMNS)
    assert apart(gated, plain) > 5 * TOLERANCE  # Heads that stream matter.
    for found in (each["by heads"] for each in ranks):
        assert found["kv_heads"] == 1
        assert_close(found["generate"], plain)
        assert_close(found["gates"], gated)
        assert found["engine"] == engine
        assert "divided by tensor parallelism over 2 ranks" in found["identify"]


@needs_accelerate
def test_ranks_that_would_share_a_head_are_refused(ranks):
    said = (
        "tp_plan: LlamaForCausalLM has 3 KV heads, which 2 ranks do not divide; nearest legal: 1 rank. Ranks can share "
        "tokens instead: attn.transformers.ShardedCache"
    )
    assert [each["three heads"] for each in ranks] == [said] * 2


@pytest.mark.parametrize("case", CASES)
def test_ranks_share_a_prompt_and_the_tokens_of_a_cache(case, folders, ranks):
    name, _, formats = CASES[case]
    wanted, found = models.alone(folders[name], COLUMNS, **formats), [each[case] for each in ranks]
    assert torch.equal(found[0]["generate"][1], found[1]["generate"][1])  # Every rank has the same bits.
    tokens = 2 * (COLUMNS - 1) - COLUMNS // 4
    assert sum(each["rows"][0] for each in found) == tokens and min(each["rows"][0] for each in found) > 100
    assert [each["rows"][1:] for each in found] == [[2] * STEPS] * 2
    # The last token that is chosen has no keys.
    assert sum(each["kept"] for each in found) == tokens + 2 * STEPS
    for each in found:
        assert_close(each["generate"], wanted)


def test_formats_of_fewer_bits_are_those_of_one_cache(folders, ranks, plain):
    wanted = models.alone(folders["llama"], COLUMNS, **INT8)
    assert apart(wanted, plain) > 5 * OF_INT8
    for each in (found["int8"] for found in ranks):
        assert each["rows"][0] == 2 * COLUMNS  # Without `read` every rank has all rows.
        assert_close(each["generate"], wanted, OF_INT8)


def test_a_prompt_with_fewer_chunks_than_ranks_is_read_on_each(folders, ranks):
    wanted = models.alone(folders["llama"], SHORT, batch=1)
    for each in (found["short"] for found in ranks):
        assert each["rows"][0] == SHORT - 1
        assert_close(each["generate"], wanted)


@needs_accelerate
@pytest.mark.skipif(not FULL, reason="four processes: ./dev test --full")
def test_ranks_share_heads_and_tokens(folders, plain, tmp_path):
    for found in run_ranks(4, models.by_both, folders["llama"], COLUMNS, tmp_path=tmp_path, timeout=900.0):
        assert found["kv_heads"] == 1
        assert_close(found["generate"], plain)


def test_refusals_name_what_is_not_served(ranks):
    said = {
        "crop": "does not serve tokens that are taken back",
        "beams": "does not serve beams",
        "padding": "attention_mask[0]: expected padding before the tokens alone",
        "form": "form: expected all_gather or ring or heads, got 'tree'",
        "shape": "input_ids: expected [batch, columns], got",
        "other prompt": "GroupError: rank 1: expected input_ids (SHA-256)=",
        "pages": "OutOfPages: cache: rank 0 needs",
        "twice": "expected an empty cache, got one with 149 columns",
        "eager": "model: expected attn_implementation=\"attn\", got 'eager'",
        "group": "PlanError: PagedCache: expected one of",
        "gates": "head gates, which attn.transformers.ShardedCache does not serve",
        "rope": "config: rope_type 'dynamic' has other rotations",
    }
    for found in (each["refused"] for each in ranks):
        for name, words in said.items():
            assert words in found.get(name, ""), (name, found.get(name))
