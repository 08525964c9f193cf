# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: full and streaming attention by one kernel, and its gradients, against float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

from attn.heads import attend_both  # noqa: E402
from attn.heads.two_outputs import attend_streaming  # noqa: E402
from test_two_output_kernels import SIZES, expect_near, tensors  # noqa: E402


@pytest.mark.parametrize("tokens,sizes", [*SIZES, (3000, {"sink": 64, "recent": 256})])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_both_outputs(tokens, sizes, dtype):
    q, k, v = (x.cuda() for x in tensors(tokens, dim=128, dtype=dtype))
    expect_near(attend_both(q, k, v, by="kernels", **sizes), q, k, v, **sizes)


@pytest.mark.parametrize("given", [(0, 1, 2, 3), (0,), (2, 3)])
def test_gradients(given):
    q, k, v = (x.cuda().requires_grad_() for x in tensors(400, batch=1))
    sizes = {"sink": 4, "recent": 30}
    found = attend_both(q, k, v, by="kernels", **sizes)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = attend_both(*exact, **sizes)
    random = torch.Generator().manual_seed(1)
    grads = [torch.randn(wanted[i].shape, generator=random).to("cuda", found[i].dtype) for i in given]
    torch.autograd.backward([found[i] for i in given], grads)
    torch.autograd.backward([wanted[i] for i in given], [grad.double() for grad in grads])
    for x, of in zip((q, k, v), exact, strict=True):
        assert (x.grad - of.grad).norm() <= 1.5e-2 * of.grad.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_streaming_alone(dtype):
    """Kernels compute it where nothing else is asked for, with its gradients."""
    q, k, v = (x.cuda().requires_grad_() for x in tensors(400, batch=1, dtype=dtype))
    found = attend_streaming(q, k, v, 0.125, 4, 30)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = attend_both(*exact, sink=4, recent=30)[2]
    assert type(found.grad_fn).__name__ == "TransposeBackward0", "one launch, no parts that are joined"
    assert (found - wanted).norm() <= 8e-3 * wanted.norm()
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to("cuda", dtype)
    found.backward(grad)
    wanted.backward(grad.double())
    for x, of in zip((q, k, v), exact, strict=True):
        assert (x.grad - of.grad).norm() <= 1.5e-2 * of.grad.norm()
