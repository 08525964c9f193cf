# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_bits: equal where rows are, and the name of the operation that parts where they are not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
import attn  # noqa: E402
import attn.transformers  # noqa: E402

WORDS = 80


def model(implementation="attn_row", kind="Llama", **changes):
    torch.manual_seed(0)
    sizes = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, vocab_size=WORDS)
    sizes |= dict(
        num_attention_heads=2, num_key_value_heads=1, head_dim=64, eos_token_id=None, pad_token_id=0
    )
    config = getattr(transformers, f"{kind}Config")(**sizes, attn_implementation=implementation, **changes)
    return getattr(transformers, f"{kind}ForCausalLM")(config).bfloat16().eval()


def prompts(*lengths):
    torch.manual_seed(1)
    return [torch.randint(1, WORDS, (length,)).tolist() for length in lengths]


OPTIONS = dict(max_new_tokens=4, sequences=3, rows=16)


class Precise(torch.nn.Linear):
    """A product in float32, which a library computes by the number of rows."""

    def forward(self, x):
        return torch.nn.functional.linear(x.float(), self.weight.float())


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_an_engine_and_a_trainer_agree(layout):
    """Chunked prompts, a cache of prefixes, requests that come while others decode."""
    given = model()
    given.lm_head = _precise(given.lm_head)
    report = attn.check_bits(given, prompts(5, 40, 17), **OPTIONS, layout=layout)
    assert report.equal and report.first is None, report
    assert (report.answers, report.tokens, report.numbers) == (6, 24, 24 * WORDS)
    assert report.cached_tokens == 48 and "0 differ" in str(report)


def _precise(linear):
    made = Precise(linear.in_features, linear.out_features, bias=False).bfloat16()
    made.weight = linear.weight
    return made


def test_windows_and_draws():
    given = model(kind="Mistral", sliding_window=24)
    report = attn.check_bits(given, prompts(50, 9), **OPTIONS, rounds=1, do_sample=True, temperature=2.0)
    assert report.equal and report.tokens == 8, report


def test_attention_by_the_quickest_plans_is_named():
    report = attn.check_bits(model("attn"), prompts(60, 70, 40), **OPTIONS)
    assert not report.equal and report.differing > 0 and report.largest > 0, report
    assert report.first.is_attention and report.first.operation == "attention", report
    assert "self_attn: attention" in str(report)


def test_a_product_of_a_library_is_named():
    given = model()
    given.lm_head = _precise(given.lm_head)
    report = attn.check_bits(given, prompts(5, 40), **OPTIONS, row_ops=False)
    assert not report.equal and report.first.module == "lm_head" and not report.first.is_attention, report
    assert "Precise, a product whose bits depend on the number of rows" in str(report.first)


def test_an_operation_between_modules_is_named(monkeypatch):
    """Here the rotation of keys and queries depends on the number of rows."""
    import transformers.models.llama.modeling_llama as llama

    rotate = llama.apply_rotary_pos_emb

    def odd(q, k, cos, sin, *others, **options):
        q, k = rotate(q, k, cos, sin, *others, **options)
        return (q * 1.01 if q.shape[2] == OPTIONS["sequences"] else q), k

    monkeypatch.setattr(llama, "apply_rotary_pos_emb", odd)
    report = attn.check_bits(model(), prompts(5, 20), **OPTIONS, rounds=1)
    assert not report.equal and not report.first.is_attention
    assert report.first.module == "model.layers.0.self_attn" and "the query, rotated" in str(report.first), (
        report
    )


def test_wrong_arguments():
    given = model()
    for options, error, text in (
        (dict(layout="ragged"), attn.PlanError, "layout: expected 'padded' or 'packed'"),
        (dict(rounds=0), attn.SpecError, "rounds: expected"),
        (dict(batch=0), attn.SpecError, "batch: expected"),
        (dict(beams=2), attn.PlanError, "beams"),
    ):
        with pytest.raises(error, match=text):
            attn.check_bits(given, prompts(5), **(OPTIONS | options))
    with pytest.raises(attn.TensorError, match="prompts: expected one or more"):
        attn.check_bits(given, [])
    with pytest.raises(attn.PlanError, match='attn_implementation="attn_row"'):
        attn.check_bits(model("sdpa"), prompts(5))


def test_a_fallback_is_refused():
    """PyTorch's attention would have other bits."""
    given = model()
    with pytest.raises(attn.TensorError, match='numerics="row" has no fallback'):
        given(torch.zeros(1, 4, dtype=torch.long), attention_mask=torch.zeros(1, 1, 4, 4))


def test_the_command(tmp_path, capsys):
    from attn.__main__ import main

    model().save_pretrained(tmp_path)
    assert main(["check-bits", str(tmp_path), "--new-tokens", "2", "--device", "cpu"]) == 0
    assert "0 differ" in capsys.readouterr().out
    assert main(["check-bits", str(tmp_path / "nothing")]) == 2
