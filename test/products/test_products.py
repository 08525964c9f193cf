# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare random products of features with a float64 oracle (runs.py): a few in every run, ATTN_PRODUCTS of them from
ATTN_PRODUCTS_FROM on, or 10,000 with --full."""

import os
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
import checks  # noqa: E402
import runs  # noqa: E402

COUNT = int(os.environ.get("ATTN_PRODUCTS") or (10_000 if os.environ.get("ATTN_FULL") else 60))
FIRST = int(os.environ.get("ATTN_PRODUCTS_FROM", 0))
AT_ONCE = 20


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, AT_ONCE))
def test_cases(first):
    wrong = []
    for number in range(first, min(first + AT_ONCE, FIRST + COUNT)):
        try:
            runs.run_case(number)
        except Exception as error:
            wrong.append(f"case {number}: {type(error).__name__}: {error}")
            wrong.append(f"    {sys.executable} test/products/runs.py {number}")
    assert not wrong, "\n".join(["", *wrong])


def test_a_wrong_result_is_found():
    """Results that are wrong by more than a tolerance raise: rows, gradients and significance."""
    import torch

    form = {"dtype": "bfloat16", "value_dim": 64}
    out, lse, size = torch.ones(3, 2, 64).double(), torch.zeros(3, 2).double(), torch.ones(3, 2).double()
    checks.check_rows(form, (out, lse), (out, lse), size)
    for wrong in ((1.02 * out, lse), (out, lse + 0.01), (out * float("nan"), lse)):
        with pytest.raises(checks.Wrong):
            checks.check_rows(form, wrong, (out, lse), size)
    checks.check_gradient(form, "dq", out, out, out)
    for wrong in (1.03 * out, out * float("nan"), out[:2]):
        with pytest.raises(checks.Wrong):
            checks.check_gradient(form, "dq", wrong, out, out)
    with pytest.raises(checks.Wrong):
        checks.check_worth(lse + 1.02, lse + 1.0)
