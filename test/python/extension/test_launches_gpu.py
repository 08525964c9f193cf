# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated calls on a GPU: each is launched for its own tensors, on the current stream, recorded or not."""

import threading

import attn
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

SHAPES = [  # sequences, rows, tokens, query heads, KV heads, dim, causal
    (3, 197, 197, 12, 12, 64, False),
    (1, 1000, 1000, 8, 1, 128, True),
    (2, 77, 300, 10, 2, 96, True),
    (2, 640, 640, 10, 2, 128, True),
]


def tensors(shape, seed):
    sequences, rows, tokens, q_heads, kv_heads, dim, _ = shape
    generator = torch.Generator("cuda").manual_seed(seed)
    sizes = ((rows, q_heads), (tokens, kv_heads), (tokens, kv_heads), (rows, q_heads))
    return [
        torch.randn(sequences, *size, dim, generator=generator, device="cuda").to(torch.bfloat16)
        for size in sizes
    ]


def expected(q, k, v, d_out, causal):
    """Return the output and the gradients, in float64."""
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    keys, values = (x.repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
    scores = q.transpose(1, 2) @ keys.transpose(2, 3) / q.shape[3] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device="cuda")
        scores = scores.masked_fill(hidden.triu(1 + scores.shape[3] - scores.shape[2]), -torch.inf)
    out = (scores.softmax(-1) @ values).transpose(1, 2)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), d_out.double())]


def attended(q, k, v, d_out, causal):
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attn.attend(*given, causal=causal)
    return [out.detach(), *torch.autograd.grad(out, given, d_out)]


def assert_near(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() <= 0.01 * other.norm()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_call_has_its_own_tensors(shape):
    for seed in range(4):
        given = tensors(shape, seed)
        assert_near(attended(*given, shape[-1]), expected(*given, shape[-1]))
        with torch.no_grad():
            out = attn.attend(*given[:3], causal=shape[-1])
        assert_near([out], expected(*given, shape[-1])[:1])


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_on_the_stream_of_the_moment(shape):
    attended(*tensors(shape, 0), shape[-1])
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    for seed, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            given = tensors(shape, seed)
            torch.cuda._sleep(20_000_000)  # a launch on another stream would read the tensors too early
            given = [x.clone() for x in given]
            found.append((given, attended(*given, shape[-1])))
    torch.cuda.synchronize()
    for given, result in found:
        assert_near(result, expected(*given, shape[-1]))


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_a_graph_launches_what_it_captured(shape):
    *given, _ = tensors(shape, 0)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            attn.attend(*given, causal=shape[-1])
        with torch.cuda.graph(graph, stream=stream):
            out = attn.attend(*given, causal=shape[-1])
    torch.cuda.synchronize()
    for seed in (1, 2):
        others = tensors(shape, seed)
        for mine, other in zip(given, others, strict=False):
            mine.copy_(other)
        with torch.cuda.stream(stream):
            attn.attend(*others[:3], causal=shape[-1])  # beside the graph's call, of the same shapes
        graph.replay()
        assert_near([out], expected(*others, shape[-1])[:1])


def test_threads_share_launches():
    shape, failures = SHAPES[1], []

    def work(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for each in range(10):
                    given = tensors(shape, 10 * seed + each)
                    assert_near(attended(*given, True), expected(*given, True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
