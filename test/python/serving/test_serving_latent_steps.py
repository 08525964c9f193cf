# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over latents (MLA): prompts and decoding, with plans of the host and of the device, against float64."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from attn.serving import DevicePlans, Layer, Plans, write_latents  # noqa: E402

Q, DIM, VALUE, SCALE, TOKENS = 4, 80, 64, 0.1, 32
LENGTHS, STARTS = (20, 30), (0, 3, 4)


def latent(q, lines):
    """Return attention of the last rows of a sequence in float64."""
    rows, tokens = len(q), len(lines)
    scores = torch.einsum("qhd,kd->hqk", q.double(), lines) * SCALE
    far = torch.arange(tokens - rows, tokens)[:, None] - torch.arange(tokens)
    seen = scores.masked_fill(far < 0, -torch.inf).softmax(-1)
    return torch.einsum("hqk,kd->qhd", seen, lines[:, :VALUE])


@pytest.mark.parametrize("form", [None, "fp8_e4m3"])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("device_plan", [False, True], ids=["host", "device"])
def test_steps_are_as_in_float64(form, page, device_plan):
    torch.manual_seed(0)
    options = dict(q_heads=Q, kv_heads=1, head_dim=DIM, value_dim=VALUE, scale=SCALE, page_size=page)
    layer = Layer(**options, dtype="float16", format=form, device_plan=device_plan)
    table = torch.randperm(2 * TOKENS // page).view(2, -1).int()
    slots = (table[:, :, None] * page + torch.arange(page)).flatten(1)
    given = torch.randn(2 * TOKENS, DIM, dtype=torch.float16)
    pool = torch.zeros(2 * TOKENS // page, page, DIM, dtype=torch.float8_e4m3fn if form else torch.float16)
    scale = torch.tensor([0.5]) if form else None
    write_latents(pool, given, slots.flatten(), value_dim=VALUE, scale=scale)
    lines = pool.double().flatten(0, 1) * (scale or torch.ones(1)).double()
    assert (lines[slots.flatten()] - given).abs().max() < (0.2 if form else 1e-9)
    pages = (pool.unsqueeze(2),) + ((scale,) if form else ())
    kernel = layer.compile("cpu")
    plans = DevicePlans(2, None, "cpu", (4,)) if device_plan else Plans()
    q = torch.randn(STARTS[-1], Q, DIM, dtype=torch.float16)
    wanted = torch.cat(
        [
            latent(q[begin:end], lines[slots[at, :length]])
            for at, (begin, end, length) in enumerate(zip(STARTS, STARTS[1:], LENGTHS, strict=False))
        ]
    )
    step = plans.step(torch.tensor(STARTS), torch.tensor(LENGTHS), table)
    found = step.run(kernel, q, pages)
    assert found.shape == (STARTS[-1], Q, VALUE)
    torch.testing.assert_close(found.double(), wanted, atol=4e-3, rtol=4e-3)
    out = torch.empty_like(found)
    assert step.run(kernel, q, pages, out=out) is out and torch.equal(out, found)
