# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: significance of tokens, and gradients of tables, against the host device and float64."""

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

import test_significance  # noqa: E402
import test_stored_scores  # noqa: E402
import test_table_gradients  # noqa: E402
from test_table_gradients import CASES, TOLERANCE  # noqa: E402


@pytest.mark.parametrize("heads,kv_heads", [(2, 2), (8, 2), (40, 1)])
@pytest.mark.parametrize("name", test_significance.OPTIONS)
def test_significance_of_attend(name, heads, kv_heads):
    options = test_significance.OPTIONS[name]
    q, k, v = test_significance.problem(heads, kv_heads, torch.bfloat16)
    for group, rows in (("max", None), ("mean", 8), ("sum", 1)):
        named = dict(test_significance.asked(options), significance=group, significance_rows=rows)
        out, found = attn.attend(q.cuda(), k.cuda(), v.cuda(), **named)
        exact = test_significance.wanted(q, k, group, rows, **options)
        assert found.is_cuda and test_significance.error(found.cpu(), exact) <= 1e-2
        plain = attn.attend(q.cuda(), k.cuda(), v.cuda(), **test_significance.asked(options))
        assert torch.equal(out, plain)


@pytest.mark.parametrize("tokens", [150, 5000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads,kv_heads", [(2, 2), (4, 2), (6, 2), (8, 2), (16, 1), (40, 1)])
def test_steps_of_decoding(heads, kv_heads, dtype, tokens):
    """Scores of decoding steps are stored, in another layout of lanes for each group."""
    q, k, v = test_stored_scores.problem(heads, kv_heads, dtype, tokens=tokens)
    for group in ("max", "sum"):
        out, found = attn.attend(q.cuda(), k.cuda(), v.cuda(), causal=True, significance=group)
        assert test_significance.error(found.cpu(), test_stored_scores.wanted(q, k, group)) <= 1e-2
        assert torch.equal(out, attn.attend(q.cuda(), k.cuda(), v.cuda(), causal=True))


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_tables(name):
    """The host device has the same kernels, which its tests compare with the reference."""
    score, tables, options = CASES[name]
    tensors = test_table_gradients.given()
    wanted = test_table_gradients.found(tensors, tables, score, causal=True, reference=True, **options)
    move = lambda x: x.detach().cuda() if isinstance(x, torch.Tensor) else x  # noqa: E731
    tensors = [move(tensor).requires_grad_() for tensor in tensors]
    tables = {key: move(table) for key, table in tables.items()}
    options = {key: move(value) for key, value in options.items()}

    def made():
        results = attn.attend(
            *tensors,
            score=score,
            causal=True,
            tensors={key: table.requires_grad_() for key, table in tables.items()},
            return_lse=True,
            **{
                key: value.requires_grad_() if key == "sink_logits" else value
                for key, value in options.items()
            },
        )
        random = torch.Generator().manual_seed(2)
        loss = sum((x.float() * torch.randn(x.shape, generator=random).cuda()).sum() for x in results)
        sinks = [options["sink_logits"]] if "sink_logits" in options else []
        return torch.autograd.grad(loss, [*tensors, *tables.values(), *sinks])

    first = made()
    for one, other in zip(first, wanted, strict=True):
        assert test_table_gradients.error(one.cpu(), other) <= TOLERANCE
    again = made()
    kept = slice(len(tensors), len(tensors) + len(tables))
    assert all(torch.equal(a, b) for a, b in zip(first[kept], again[kept], strict=True))
