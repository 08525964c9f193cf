# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products and sums in blocks of rows: a row has the same bits whatever rows there are."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
import attn  # noqa: E402
from attn.bits import place_matters, row_ops  # noqa: E402

SIZES = (1, 2, 7, 31, 32, 33, 70)
X, W, BIAS = torch.randn(70, 192), torch.randn(96, 192), torch.randn(96)
OPERATIONS = {
    "linear": lambda x: torch.nn.functional.linear(x[None], W, BIAS)[0],
    "without a bias": lambda x: torch.nn.functional.linear(x, W),
    "matmul": lambda x: x @ W.T,
    "batches": lambda x: torch.bmm(x[None].expand(2, -1, -1), W.T.expand(2, -1, -1))[1],
    "bias of each row": lambda x: torch.addmm(x[:, :96], x, W.T, beta=0.5, alpha=2),
    "mean": lambda x: x.pow(2).mean(-1, keepdim=True),
    "sum": lambda x: x[:, None].sum(-1)[:, 0],
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_rows_do_not_depend_on_each_other(name):
    operation = OPERATIONS[name]
    exact = operation(X)
    with torch.no_grad(), row_ops():
        whole = operation(X)
        for size in SIZES:
            first = 70 - size
            assert torch.equal(operation(X[first:]), whole[first:]), size
    torch.testing.assert_close(whole, exact, rtol=1e-4, atol=1e-4)


def test_libraries_products_do_depend():
    """In float32 PyTorch's products choose by the number of rows; otherwise this file would test nothing."""
    assert any(not torch.equal((X @ W.T)[-size:], X[-size:] @ W.T) for size in SIZES)


@pytest.mark.parametrize("rows", [1, 5, 32])
def test_blocks_of_any_size(rows):
    with torch.no_grad(), row_ops(rows):
        whole = X @ W.T
        assert torch.equal(X[40:] @ W.T, whole[40:]) and (X[:0] @ W.T).shape == (0, 96)


def test_gradients_pass():
    x = X.clone().requires_grad_()
    with row_ops():
        (x @ W.T).square().sum().backward()
    exact = X.clone().requires_grad_()
    (exact @ W.T).square().sum().backward()
    torch.testing.assert_close(x.grad, exact.grad, rtol=1e-3, atol=1e-2)


def test_other_dimensions_are_left_alone():
    with row_ops():
        assert torch.equal(X.sum(0), X.sum(0)) and X.mean().shape == () and X.softmax(0).shape == X.shape


def test_places_of_a_block():
    assert not place_matters(W, row_ops())

    class Odd(row_ops):
        """Rows of a block are not alike."""

        def blocks(self, function, x):
            return super().blocks(function, x) + torch.arange(len(x))[:, None] % 2

    assert place_matters(W, Odd())


@pytest.mark.parametrize("rows", [0, -1, 1.5, "32"])
def test_a_wrong_number_of_rows(rows):
    with pytest.raises(attn.SpecError, match="rows: expected"):
        row_ops(rows)
