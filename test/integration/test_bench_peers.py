"""Peers that may not be installed: what they are given is the same attention."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import flashinfer_peer  # noqa: E402
from gpu_points import decode_points, prefill_points  # noqa: E402
from peers import Peers  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[2]))


class PagedWrapper:
    """What FlashInfer's wrapper does, from its documentation: pages by their table, the last one partial."""

    def __init__(self, workspace, layout, use_tensor_cores):
        assert layout == "NHD" and use_tensor_cores and workspace.count_nonzero() == 0

    def plan(self, starts, places, last, q_heads, kv_heads, dim, page, q_data_type, kv_data_type):
        assert starts.dtype == places.dtype == last.dtype == torch.int32
        self.starts, self.places, self.last, self.heads = starts, places, last, (q_heads, kv_heads)

    def run(self, rows, pages, out):
        for i, row in enumerate(rows):
            mine = self.places[self.starts[i] : self.starts[i + 1]].long()
            k, v = (x[mine].flatten(0, 1)[: (len(mine) - 1) * x.shape[1] + self.last[i]] for x in pages)
            assert (len(row), k.shape[1]) == self.heads
            k, v = k.transpose(0, 1), v.transpose(0, 1)
            out[i] = sdpa(row[None, :, None], k[None], v[None], enable_gqa=True)[0, :, 0]
        return out


@pytest.mark.parametrize("tokens", [1, 16, 50])
def test_decoding_reads_scattered_pages(tokens):
    q, k, v = random(3, 4, 1, 8), random(3, 2, tokens, 8), random(3, 2, tokens, 8)
    flashinfer = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=PagedWrapper)
    result = flashinfer_peer.decode(flashinfer, torch, q, k, v)()
    torch.testing.assert_close(result, sdpa(q, k, v, enable_gqa=True)[:, :, 0])


def test_pages_are_a_permutation():
    pool, place = flashinfer_peer.paged(torch, random(4, 1, 160, 1))
    assert sorted(place.tolist()) == list(range(40)) != place.tolist()
    assert pool.shape == (40, 16, 1, 1)


@pytest.mark.parametrize("causal", [True, False])
def test_prefill_is_of_one_sequence(causal):
    def single(q, k, v, causal):
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return sdpa(q, k, v, is_causal=causal, enable_gqa=True)[0].transpose(0, 1)

    q, k, v = random(1, 4, 6, 8), random(1, 2, 6, 8), random(1, 2, 6, 8)
    run = flashinfer_peer.prefill(types.SimpleNamespace(single_prefill_with_kv_cache=single), q, k, v, causal)
    expected = sdpa(q, k, v, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(run().transpose(0, 1)[None], expected)


@pytest.mark.parametrize(
    "point", [prefill_points(True)[0], decode_points(True)[0]], ids=["prefill", "decode"]
)
def test_without_it_the_others_are_measured(point, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", None)
    times, declined = Peers(torch, lambda run: 1.0, device="cpu")(point, ("flashinfer",))
    assert not times and declined == {"flashinfer": "is not installed"}
