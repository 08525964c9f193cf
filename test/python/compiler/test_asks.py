# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests to a function outside its text, which mean what attributes in a text mean."""

import json
import pickle

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import _attn  # noqa: E402
from attn.compiler import artifacts, bundle, requests  # noqa: E402
from attn.compiler.requests import Asks  # noqa: E402
from fresh_process import forget, seen, spec  # noqa: E402

from examples import example_text  # noqa: E402

TRAINED = dict(
    kv=[attn.Packed()],
    score=lambda s, h, qi, ki, slopes: s * slopes[h],
    tensors={"slopes": (4,)},
    sink_logits=True,
)
# Requests, and the attributes of a text that mean the same.
ASKED = {
    "backward": (Asks(backward=()), "attn.backward"),
    "tables": (
        Asks(backward=("sink_logits", "slopes")),
        'attn.backward = ["sink_logits", "slopes"]',
    ),
    "ordered": (Asks(backward=(), ordered=True), "attn.backward, attn.ordered"),
    "apart": (Asks(backward=(), ordered="apart"), 'attn.backward, attn.ordered = "apart"'),
    "any-order": (Asks(backward=(), ordered=False), "attn.backward, attn.ordered = false"),
    "significance": (Asks(significance="max"), 'attn.significance = "max"'),
    "significance-rows": (
        Asks(significance="mean", significance_rows=7),
        'attn.significance = "mean", attn.significance_rows = 7 : i32',
    ),
    "device-plan": (Asks(device_plan=True), "attn.device_plan"),
}


def plain(asks=None):
    """Return the text of a description that may have this request."""
    return spec(**TRAINED if asks is None or asks.backward is not None else {}).mlir()


def marked(text, attributes):
    """Return the text as an author writes it, with these attributes."""
    head, arrow, body = text.partition(") -> (")
    results, brace, rest = body.partition(" {\n")
    return f"{head}{arrow}{results} attributes {{{attributes}}}{brace}{rest}"


@pytest.mark.parametrize("asks,attributes", ASKED.values(), ids=ASKED)
def test_data_and_text_make_the_same(asks, attributes):
    text = plain(asks)
    written = _attn.compile(marked(text, attributes))
    assert _attn.compile(text, asks=asks).artifact == written.artifact
    assert _attn.compile(marked(text, attributes), asks=asks).artifact == written.artifact, "asked for twice"
    assert written.artifact != _attn.compile(text).artifact
    for level in ("problem", "machine"):
        assert _attn.emit(text, level, asks=asks) == _attn.emit(marked(text, attributes), level)


@pytest.mark.parametrize(
    "attributes,asks,said",
    [
        (
            "attn.backward, attn.ordered = false",
            Asks(backward=(), ordered=True),
            "the text says attn.ordered = false, and the options ask for attn.ordered; expected it in one of these "
            "places, or the same in both",
        ),
        (
            'attn.backward = ["slopes"]',
            Asks(backward=("sink_logits",)),
            'the text says attn.backward = ["slopes"], and the options ask for attn.backward = ["sink_logits"]; expected',
        ),
        (
            "attn.backward",
            Asks(backward=("slopes",)),
            'the text says attn.backward, and the options ask for attn.backward = ["slopes"]; expected',
        ),
        (
            'attn.significance = "max"',
            Asks(significance="sum"),
            'the text says attn.significance = "max", and the options ask for attn.significance = "sum"; expected',
        ),
        (
            'attn.significance = "max", attn.significance_rows = 7 : i32',
            Asks(significance="max", significance_rows=8),
            "the text says attn.significance_rows = 7 : i32, and the options ask for attn.significance_rows = 8 : i32; ",
        ),
        (
            'attn.significance = "max"',
            Asks(backward=()),
            "expected attn.backward or attn.significance, got both",
        ),
    ],
    ids=["order", "tables", "list", "significance", "rows", "both"],
)
def test_what_is_asked_for_twice_is_the_same(attributes, asks, said):
    with pytest.raises(_attn.Failure) as raised:
        _attn.compile(marked(plain(asks), attributes), asks=asks)
    assert raised.value.kind == "input" and said in raised.value.message
    assert raised.value.message.startswith("spec:") and ": error: " in raised.value.message


def test_lists_that_say_the_same_are_equal():
    for written in ('["slopes", "sink_logits"]', '["sink_logits", "slopes", "slopes"]'):
        _attn.compile(
            marked(plain(), f"attn.backward = {written}"), asks=Asks(backward=("sink_logits", "slopes"))
        )
    _attn.compile(marked(plain(), "attn.backward, attn.ordered = true"), asks=Asks(backward=(), ordered=True))
    _attn.compile(marked(plain(), "attn.backward = []"), asks=Asks(backward=()))


def test_what_cannot_be_asked_for_is_refused():
    text = plain(Asks())
    for asks, said in [
        (Asks(ordered=True), 'expected attn.ordered, true, false or "apart", beside attn.backward'),
        (Asks(significance="most"), 'expected attn.significance = "max", "mean" or "sum", got "most"'),
        (Asks(significance="max", significance_rows=0), "significance_rows: expected 1 or more"),
        (Asks(backward=()), "has no backward pass (attn.backward)"),
    ]:
        with pytest.raises(_attn.Failure) as raised:
            _attn.compile(text, asks=asks)
        assert said in raised.value.message
    with pytest.raises(_attn.Failure, match=r"expected a function with an attn\.attend"):
        _attn.compile(example_text("07_cache/move"), asks=Asks(device_plan=True))
    with pytest.raises(TypeError):
        _attn.compile(text, asks=("slopes", None, None, None, False))


def test_the_entry_alone_is_asked():
    """Requests apply to the entry function of a text with several functions."""
    texts = [spec(name=name, kv=[attn.Packed()]).mlir() for name in ("first", "second")]
    both = texts[0] + texts[1].partition("\n\n")[2]
    for name in ("first", "second"):
        problem = _attn.emit(both, "problem", entry=name, asks=Asks(backward=())).decode()
        assert problem.count("attn.backward") == 1 and f"@{name}(" in problem
    manifest = json.loads(_attn.compile(both, entry="second", asks=Asks(backward=())).manifest)
    assert manifest["entry"] == "second" and manifest["results"][0]["name"] == "dq"
    with pytest.raises(_attn.Failure, match="more than one attention function"):
        _attn.emit(both, "problem", asks=Asks(backward=()))


# --- Requests ------------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_part_of_the_key():
    request = requests.request_for(spec(**TRAINED), target="sm_90a", form="host")
    assert request.asks == Asks()
    keys = {request._replace(asks=asks).key() for asks, _ in ASKED.values()}
    assert len(keys | {request.key()}) == len(ASKED) + 1
    asked = requests.request_for(spec(significance="max", device_plan=True), target="sm_90a", form="host")
    assert asked.asks == Asks(significance="max", device_plan=True)
    assert asked.text == spec().mlir(), "the text is what it is without"


def test_a_description_shows_what_it_asks_for():
    described = spec(significance="mean", significance_rows=3, device_plan=True)
    assert "attn.significance_rows = 3" in described.mlir()
    kernel = attn.compile(described, device="host")
    assert kernel.text == described.mlir() and kernel._plain == spec().mlir()
    assert (
        kernel.manifest["content_hash"] == attn.compile(kernel.text, device="host").manifest["content_hash"]
    )
    assert b"attn.device_plan" in kernel.emit("problem").encode()


def test_a_child_is_asked_the_same(fresh, monkeypatch):
    request = requests.request_for(spec(**TRAINED), target="sm_90a", form="host")
    request = request._replace(asks=Asks(backward=("slopes",), ordered=True))
    _, here = artifacts.artifact(request)
    artifacts.disk_cache().clear()
    monkeypatch.setenv("ATTN_COMPILE_IN_CHILD", "1")
    _, there = artifacts.artifact(request)
    assert there.payload == here.payload and seen() == (2, 0, 0)


def test_bundles_serve_what_was_asked_for(fresh, monkeypatch):
    described = spec(significance="max", device_plan=True)
    request = requests.request_for(described, target="sm_90a", form="host")
    bundle.write_bundle(fresh / "kernels.attn", [(request, artifacts.artifact(request)[1])])
    artifacts.disk_cache().clear()
    forget()
    attn.load_bundle(fresh / "kernels.attn")
    with attn.forbid_compiling():
        assert attn.compile(described, device="host").manifest["results"][-1]["name"] == "kv.significance"
        with pytest.raises(attn.CacheMiss, match=r"description, asked for significance='sum':\n!query"):
            attn.compile(spec(significance="sum"), device="host")


def test_a_pickled_kernel_asks_for_the_same(fresh):
    for see in (attn.causal(), attn.window(9)):
        kernel = attn.compile(spec(significance="max", see=see), device="host")
        data = pickle.dumps(kernel)
        assert pickle.loads(data) is kernel or kernel.ends
        forget()
        found = pickle.loads(data)
        assert found is not kernel and found.manifest == kernel.manifest
        assert (found.text, found._plain, found.ends) == (kernel.text, kernel._plain, kernel.ends)


def test_gradients_are_of_the_attention_alone():
    """A kernel that comes with plans of the device also has gradients by kernels."""
    described = spec(kv=[attn.Packed()], device_plan=True)
    gradients = attn.compile(described, device="host")._backward((), {})
    assert isinstance(gradients, attn.Kernel), gradients
    assert gradients._request.asks == Asks(backward=())
