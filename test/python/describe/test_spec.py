# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.Spec: its text is the problem, equal descriptions are equal, and wrong ones are refused when they are written."""

import dataclasses
import html
import json
import pickle
import subprocess
import sys
from pathlib import Path

import attn
import pytest
from attn import Dense, Packed, Paged, Spec, causal, sink, window
from attnlab import ROOT
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from visibilities import VISIBILITIES

from examples import EXAMPLES, LLAMA, example_text, opt


def spec(**given):
    return Spec(**{**LLAMA, "kv": [Paged()], "see": causal(), **given})


def test_a_notebook_shows_the_text():
    described = EXAMPLES[next(iter(EXAMPLES))]()
    shown = described._repr_html_()
    assert shown.startswith("<pre>") and "!attn.kv&lt;" in shown and "attn.kv<" not in shown
    assert html.unescape(shown.removeprefix("<pre>").removesuffix("</pre>")) == described.mlir()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_mean_the_same(name):
    """The kernel of an example's text and the kernel of its description in Python are the same to the byte."""
    described, written = EXAMPLES[name]().mlir(), example_text(name)
    assert opt(described, "--emit=ptx", "--target=sm_80") == opt(written, "--emit=ptx", "--target=sm_80")


def test_every_attention_of_the_examples_is_here():
    files = {
        str(path.relative_to(ROOT / "examples").with_suffix("")) for path in ROOT.glob("examples/*/*.mlir")
    }
    forward = {name for name in files if "attn.backward" not in example_text(name)}
    assert set(EXAMPLES) == {name for name in forward if "attn.attend" in example_text(name)}


def test_attn_opt_prints_the_same_problem():
    """MLIR's own parser and printer lose nothing: names, dims, visibility, scale."""
    text = spec(
        kv=[Paged(name="cache", dims=("many", "long"), see=window(5) & sink(2))], see=None, scale=0.3
    ).mlir()
    printed = opt(text, "--emit=problem")
    for part in (
        'attn.dims = ["many", "long"], attn.name = "cache"',
        "see window(5) and sink(2)",
        "scale 0.3",
        "heads = 8, dim = 128, key = bf16, value = bf16",
    ):
        assert part in printed


FEATURES = st.integers(2, 16).map(lambda n: 16 * n)


@st.composite
def specs(draw):
    kv_heads, head_dim, value_dim = draw(st.integers(1, 8)), draw(FEATURES), draw(FEATURES)
    latent = {"value": attn.first(value_dim)} if value_dim <= head_dim and draw(st.booleans()) else {}
    stores = []
    for i in range(draw(st.integers(1, 2))):
        make = draw(st.sampled_from([Dense, Packed, Paged]))
        page = {"page_size": 2 ** draw(st.integers(0, 8))} if make is Paged else {}
        stores.append(make(name=f"kv{i}", see=draw(VISIBILITIES), **page, **latent))
    heads = draw(
        st.none()
        | st.dictionaries(st.sampled_from("abc"), VISIBILITIES, min_size=1).map(lambda c: attn.heads(**c))
    )
    # A problem in which no row sees a token is refused.
    assume(not all(store.see.is_empty() for store in stores))
    assume(heads is None or not all(see.is_empty() for _, see in heads.classes))
    return Spec(
        q_heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        dtype=draw(st.sampled_from(["bfloat16", "float16"])),
        kv=stores,
        heads=heads,
        sink_logits=draw(st.booleans()),
        scale=draw(st.none() | st.floats(1e-3, 10)),
        return_lse=draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None)
@given(specs())
def test_the_text_of_every_legal_spec_is_legal(described):
    opt(described.mlir(), "--emit=online")


@given(specs())
def test_equality_hash_and_pickle(described):
    again = dataclasses.replace(described)
    assert again == described and hash(again) == hash(described) and again.key() == described.key()
    assert pickle.loads(pickle.dumps(described)) == described
    other = dataclasses.replace(described, sink_logits=not described.sink_logits)
    assert other != described and other.key() != described.key()
    assert hash(described) == hash(pickle.loads(pickle.dumps(described)))


@given(specs())
def test_a_form_has_no_sizes_and_gives_them_back(described):
    form = described.form()
    assert form.form() == form
    sizes = [size for store in described.operands for size in store.see.sizes()]
    canonical = [size for store in form.operands for size in store.see.sizes()]
    assert described.ends(canonical) == sizes


def test_sizes_alone_do_not_change_the_form():
    one, two = spec(see=causal() & (sink(64) | window(256))), spec(see=causal() & (sink(4) | window(9)))
    assert one != two and one.form() == two.form()
    assert one.form() != spec(see=causal() & (sink(64) | window(64))).form()
    assert one.form() != spec(see=causal() & (sink(0) | window(64))).form()
    manifest = json.loads(opt(one.form().mlir(), "--emit=manifest"))
    assert one.ends(manifest["ends"]) == [64, 256] and two.ends(manifest["ends"]) == [4, 9]


def test_the_key_is_the_same_in_every_process():
    code = (
        "import attn; print(attn.Spec(q_heads=32, kv_heads=8, head_dim=128, dtype='bfloat16', "
        "kv=[attn.Paged()], see=attn.causal()).key())"
    )
    root = Path(attn.__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert result.stdout.strip() == spec().key()


def test_repr_is_python_that_makes_it():
    described = spec(
        kv=[Paged(page_size=64), Dense(name="more", see=window(3))], value_dim=64, sink_logits=True, scale=0.5
    )
    assert eval(repr(described), {name: getattr(attn, name) for name in attn.__all__}) == described


def test_see_of_the_spec_is_that_of_operands_without_one():
    described = spec(kv=[Paged(), Dense(see=sink(3))])
    assert [store.see for store in described.operands] == [causal(), sink(3)]
    assert described == spec(kv=[Paged(see=causal()), Dense(see=sink(3))], see=None)
    assert [store.name for store in described.operands] == ["kv0", "kv1"]


def test_a_visibility_that_nothing_would_have_is_refused():
    with pytest.raises(
        attn.SpecError, match="see: expected None, as every operand has a visibility of its own"
    ):
        dataclasses.replace(spec(), see=window(4))


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().q_heads = 8


def test_dtypes_of_other_libraries():
    import numpy

    assert spec(dtype="bf16") == spec(dtype="bfloat16")
    assert spec(dtype=numpy.float16) == spec(dtype=numpy.dtype("float16")) == spec(dtype="float16")
    torch = pytest.importorskip("torch")
    assert spec(dtype=torch.bfloat16) == spec() and spec(dtype=torch.float16) == spec(dtype="half")


WRONG = [
    ({"q_heads": 30}, "q_heads: expected a multiple of kv_heads, 8, got 30; nearest legal: 24 or 32"),
    ({"q_heads": 3}, "q_heads: expected a multiple of kv_heads, 8, got 3; nearest legal: 8"),
    ({"q_heads": 0}, "q_heads: expected an integer from 1 to 4096, got 0; nearest legal: 1"),
    ({"kv_heads": 5000}, "kv_heads: expected an integer from 1 to 4096, got 5000; nearest legal: 4096"),
    ({"kv_heads": True}, "kv_heads: expected an integer from 1 to 4096, got True"),
    ({"kv_heads": "8"}, "kv_heads: expected an integer from 1 to 4096, got '8'"),
    (
        {"head_dim": 70},
        "head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 70; nearest legal: 64 or 72",
    ),
    (
        {"head_dim": 600},
        "head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 600; nearest legal: 576",
    ),
    (
        {"value_dim": 4},
        "value_dim: expected a multiple of 8 from 8 to 256, or of 128 up to 512, got 4; nearest legal: 8",
    ),
    ({"head_dim": 128.0}, "head_dim: expected a multiple of 8 from 8 to 256, or of 32 up to 576, got 128.0"),
    (
        {"dtype": "float32"},
        "dtype: expected 'bfloat16' or 'float16', got 'float32'",
    ),
    ({"dtype": "flaot16"}, "got 'flaot16'; nearest legal: 'float16'"),
    ({"dtype": None}, "dtype: expected 'bfloat16' or 'float16', got None"),
    ({"kv": []}, "kv: expected one or more operands, got none"),
    ({"kv": Paged()}, "kv: expected a list of Dense, Packed, Paged or Unified"),
    (
        {"kv": [Paged]},
        "kv[0]: expected Dense(), Packed(), Paged() or Unified(), got type <class 'attn.describe.stores.Paged'>. Did you mean Paged()?",
    ),
    ({"kv": "paged"}, "kv: expected a list of Dense, Packed, Paged or Unified, got 'paged'"),
    (
        {"kv": [Paged(name="a"), Dense(name="a")]},
        "kv[1].name: expected a name of its own, got 'a'; nearest legal: 'a_'",
    ),
    (
        {"kv": [Paged(dtype="float16")]},
        "kv[0].dtype: expected the dtype of the queries, 'bfloat16', got 'float16'",
    ),
    ({"see": None}, "kv[0].see: expected a visibility, got None"),
    ({"see": "causal"}, "see: expected a visibility"),
    ({"see": causal}, "Did you mean causal()?"),
    ({"scale": 0}, "scale: expected a positive, finite number, or None for 1/sqrt(head_dim), got 0"),
    ({"scale": float("inf")}, "scale: expected a positive, finite number"),
    ({"scale": "big"}, "scale: expected a positive, finite number"),
    ({"sink_logits": 1}, "sink_logits: expected True or False, got 1"),
    ({"return_lse": None}, "return_lse: expected True or False, got None"),
    ({"heads": {"a": causal()}}, "heads: expected head classes, got dict"),
    (
        {"kv": [Paged(head_class="a")]},
        "kv[0].head_class: expected head classes, as in heads=attn.heads(a=...)",
    ),
    (
        {"kv": [Paged(head_class="streming")], "heads": attn.heads(full=causal(), streaming=sink(1))},
        "kv[0].head_class: expected one of the head classes full, streaming, got 'streming'; nearest legal: 'streaming'",
    ),
    ({"tensors": {"slopes": (32,)}}, "tensors: expected a score function that reads them, got none"),
    (
        {"see": sink(0)},
        "see: expected that some rows see something, got list [sink(0)]. A size of 0 shows nothing",
    ),
    ({"see": causal() & window(0)}, "see: expected that some rows see something"),
    (
        {"heads": attn.heads(a=sink(0), b=window(0))},
        "see: expected that some rows see something, got HeadClasses heads(a=sink(0), b=window(0))",
    ),
    (
        {"heads": attn.heads(a=sink(0), b=causal()), "kv": [Paged(head_class="a")]},
        "see: expected that some rows see something",
    ),
    ({"name": "my kernel"}, "name: expected a name of letters, digits and _, as in 'kv', got 'my kernel'"),
]


@pytest.mark.parametrize("given,message", WRONG, ids=lambda value: str(value)[:40])
def test_wrong_ones_are_refused(given, message):
    with pytest.raises(attn.SpecError) as error:
        spec(**given)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "make,message",
    [
        (
            lambda: Paged(page_size=40),
            "Paged(page_size): expected 1 to 8 or a multiple of 16 up to 2048, got 40; nearest legal: 32 or 48",
        ),
        (lambda: Paged(page_size=0), "nearest legal: 1"),
        (lambda: Paged(page_size=12), "nearest legal: 8 or 16"),
        (lambda: Paged(page_size=4096), "nearest legal: 2048"),
        (lambda: Paged(page_size=16.0), "expected 1 to 8 or a multiple of 16 up to 2048, got 16.0"),
        (lambda: Dense(name="q"), "Dense(name): expected a name that no kernel reserves"),
        (
            lambda: Dense(name="kv.k"),
            "Dense(name): expected a name of letters, digits and _, as in 'kv', got 'kv.k'",
        ),
        (lambda: Packed(dims=("tokens",)), "Packed(dims): expected the names of two dimensions"),
        (lambda: Packed(ragged=1), "Packed(ragged): expected True or False, got 1"),
        (lambda: Packed(head_class=""), "Packed(head_class): expected the name of a head class, got ''"),
        (lambda: attn.heads(), "heads(...): expected from 1 to 16 classes, got 0; nearest legal: 1"),
        (lambda: attn.heads(**{f"c{i}": causal() for i in range(17)}), "got 17; nearest legal: 16"),
        (lambda: attn.heads(a=4), "heads(a): expected a visibility"),
    ],
)
def test_wrong_parts_are_refused(make, message):
    with pytest.raises(attn.SpecError) as error:
        make()
    assert message in str(error.value)


def test_positional_arguments_are_refused():
    with pytest.raises(TypeError):
        Spec(32, 8, 128, "bfloat16", [Paged()])
    with pytest.raises(TypeError):
        Paged(16)


def test_one_operand_with_the_name_of_a_region_value():
    """An operand may have a name that the printer would use for a value of a region."""
    described = spec(
        kv=[Paged(name="s"), Dense(name="v0")],
        score=lambda s, h, qi, ki, head, c0: s * 2.0 + head[h] + c0[qi, ki],
        tensors={"head": (32,), "c0": ("rows_of_bias", 7)},
    )
    assert "%head_" in described.mlir()
    opt(described.mlir(), "--emit=problem")


def test_numerics_are_a_part_of_the_description():
    plain, row = (spec(numerics=numerics) for numerics in (None, "row"))
    assert plain != row and plain.key() != row.key() and eval(repr(row), vars(attn)) == row
    assert 'attn.numerics = "row"' in row.mlir() and "numerics" not in plain.mlir()
    for wrong in ("rows", True, 1, ["row"]):
        with pytest.raises(
            attn.SpecError, match="numerics: expected 'row', for bits that depend on the row alone, or"
        ):
            spec(numerics=wrong)
