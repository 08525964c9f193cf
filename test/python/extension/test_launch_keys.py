# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls that may not be found again: tensors that stand for others, and memory of the process before a fork."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attn  # noqa: E402
from fresh_process import PYTHON  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch's tensors are read by Python"
)


def stand_ins():
    """Return tables without memory, or whose memory differs from their values."""
    table = torch.tensor([0, 20, 50], dtype=torch.int32)
    emptied = table.clone()
    emptied.untyped_storage().resize_(0)
    return {
        "no storage": emptied,
        "zeros": torch._efficientzerotensor((3,), dtype=torch.int32),
        "negative": torch._neg_view(table),
    }


@pytest.mark.parametrize("name", ["no storage", "zeros", "negative"])
def test_a_table_that_stands_for_another_is_not_found(name):
    q, k, v = (torch.randn(50, heads, 64).half() for heads in (4, 2, 2))
    for _ in range(3):
        attn.attend(q, k, v, causal=True, cu_seqlens=torch.tensor([0, 20, 50], dtype=torch.int32))
    with pytest.raises((attn.TensorError, RuntimeError)):
        attn.attend(q, k, v, causal=True, cu_seqlens=stand_ins()[name])


def test_what_is_negated_when_it_is_read():
    q, k, v = (torch.randn(1, 9, heads, 64).half().requires_grad_() for heads in (4, 2, 2))
    d_out = torch.randn(1, 9, 4, 64).half()
    for _ in range(3):
        out = attn.attend(q, k, v, causal=True)
        found = torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)
    negated = torch.autograd.grad(out, (q, k, v), torch._neg_view(d_out))
    for one, other in zip(found, negated, strict=True):
        torch.testing.assert_close(one, -other)
    with pytest.raises(attn.TensorError, match=r"q: .*negative.*resolve_neg"):
        attn.attend(torch._neg_view(q.detach()), k.detach(), v.detach(), causal=True)


FORKED = """
import os, sys, torch, attn
torch.set_num_threads(1)

def step():
    q, k, v = (torch.randn(1, 9, heads, 64).half().requires_grad_() for heads in (4, 2, 2))
    attn.attend(q, k, v, causal=True).float().sum().backward()
    return q.grad is not None

assert step() and step()
child = os.fork()
if child == 0:
    os._exit(0 if step() and step() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_has_gradients_that_its_parent_had():
    environment = os.environ | {"PYTHONPATH": str(PYTHON)}
    command = [sys.executable, "-c", FORKED]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
