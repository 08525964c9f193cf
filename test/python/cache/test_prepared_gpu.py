# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""On a GPU: new tokens of a PagedCache, normalized and rotated, eagerly and in captured steps, with the bits of the host
device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

import attn  # noqa: E402
from prepared_rows import angles  # noqa: E402

HEADS, Q_HEADS, DIM, ROWS = 2, 8, 128, 70


def parts(device):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(ROWS, Q_HEADS + 2 * HEADS, DIM, generator=generator).to(torch.bfloat16).to(device)
    rope = attn.Rope(*(torch.tensor(x, dtype=torch.bfloat16, device=device) for x in angles(256, 32)))
    norm = attn.Norm(k=torch.full((DIM,), 1.25, device=device), q=torch.full((DIM,), 0.75, device=device))
    return rows.split((Q_HEADS, HEADS, HEADS), 1), rope, norm


def cache_of(device, **formats):
    sizes = dict(layers=2, pages=32, kv_heads=HEADS, head_dim=DIM, dtype="bfloat16")
    return attn.PagedCache(**sizes, device="host" if device == "cpu" else device, **formats)


def stored(cache, node):
    return [{name: part.view(torch.uint8).cpu() for name, part in cache.layer(i).stored(node).items()} for i in (0, 1)]  # fmt: skip


@pytest.mark.parametrize("formats", [{}, {"key": "int8", "value": "int4"}, {"key": "fp8_e4m3"}])
def test_writes(formats):
    found = []
    for device in ("cpu", "cuda"):
        (q, k, v), rope, norm = parts(device)
        cache = cache_of(device, **formats)
        node = cache.add()
        change = cache.append(node, ROWS)
        outs = [change.write(i, k, v, q=q, rope=rope, norm=norm).cpu() for i in (0, 1)]
        found.append((outs, stored(cache, node)))
    (outs, held), (others, kept) = found
    assert all(map(torch.equal, outs, others))
    assert all(torch.equal(x[name], y[name]) for x, y in zip(held, kept, strict=True) for name in x)


def test_captured_steps():
    (q, k, v), rope, norm = parts("cuda")
    cache = cache_of("cuda")
    spec = attn.Spec(
        q_heads=Q_HEADS, kv_heads=HEADS, head_dim=DIM, dtype="bfloat16", kv=[attn.Paged()], see=attn.causal(), device_plan=True
    )  # fmt: skip
    steps = cache.steps(attn.compile(spec, device="cuda"), sequences=2, rows=ROWS, tokens=128)
    out = torch.zeros(ROWS, Q_HEADS, DIM, dtype=torch.bfloat16, device="cuda")
    at = torch.zeros(ROWS, dtype=torch.int64, device="cuda")

    def launches():
        steps.plan()
        for layer in range(2):
            steps.write(layer, k, v, q=q, out=out, rope=rope, norm=norm, positions=at)

    captured = steps.capture(launches)
    node, other = cache.add(), cache_of("cpu")
    twin, first = other.add(), 0
    (host_q, host_k, host_v), *how = parts("cpu")
    for count in (40, 1, 7):
        steps.append(node, count)
        steps.update([(node, count)])
        at[:count] = torch.arange(first, first + count, device="cuda")
        captured.replay()
        change = other.append(twin, count)
        for layer in range(2):
            rows = (host_k[:count], host_v[:count])
            wanted = change.write(layer, *rows, q=host_q[:count], rope=how[0], norm=how[1])
        assert torch.equal(out[:count].cpu(), wanted)
        first += count
    assert all(
        torch.equal(x[name], y[name])
        for x, y in zip(stored(cache, node), stored(other, twin), strict=True)
        for name in x
    )


def test_eager_writes_are_refused_in_a_capture():
    (q, k, v), rope, norm = parts("cuda")
    cache = cache_of("cuda")
    change = cache.append(cache.add(), ROWS)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(attn.PlanError, match="the stream is being captured"), torch.cuda.graph(graph):
        change.write(0, k, v, q=q, rope=rope, norm=norm)
