# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.flash_attn.version3: the signatures of flash-attn 3, beside the functions with those of flash-attn 2.8."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

import attn  # noqa: E402
from attn import flash_attn  # noqa: E402
from attn.flash_attn import version3  # noqa: E402
from flash_oracle import attention, close, tensor  # noqa: E402

_SCALES = "q_descale=None, k_descale=None, v_descale=None"
_HINTS = "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
# Those of flash-attn 3.
SIGNATURES = {
    "flash_attn_func": f"(q, k, v, softmax_scale=None, causal=False, qv=None, {_SCALES}, window_size=(-1, -1), "
    f"attention_chunk=0, softcap=0.0, {_HINTS})",
    "flash_attn_qkvpacked_func": f"(qkv, softmax_scale=None, causal=False, {_SCALES}, window_size=(-1, -1), "
    "attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False)",
    "flash_attn_varlen_func": "(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, "
    f"seqused_k=None, softmax_scale=None, causal=False, qv=None, {_SCALES}, window_size=(-1, -1), attention_chunk=0, "
    f"softcap=0.0, {_HINTS})",
    "flash_attn_with_kvcache": "(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
    "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, "
    f"cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, {_SCALES}, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, "
    "num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False)",
}


def test_signatures():
    assert sorted(version3.__all__) == sorted(SIGNATURES)
    for name, wanted in SIGNATURES.items():
        parameters = inspect.signature(getattr(version3, name)).parameters.values()
        plain = [each.replace(annotation=each.empty) for each in parameters]
        assert str(inspect.Signature(plain)) == wanted, name


def test_dense_and_packed_tensors():
    q, k, v = tensor(2, 9, 4, 64), tensor(2, 9, 2, 64, seed=1), tensor(2, 9, 2, 64, seed=2)
    options = {"causal": True, "window_size": (4, 0), "softcap": 3.0}
    out, lse, _ = flash_attn.flash_attn_func(q, k, v, **options, return_attn_probs=True)
    found = version3.flash_attn_func(
        q, k, v, None, True, window_size=(4, 0), softcap=3.0, return_attn_probs=True
    )
    assert len(found) == 2 and torch.equal(found[0], out) and torch.equal(found[1], lse)
    assert torch.equal(version3.flash_attn_func(q, k, v, **options), out)
    joined = torch.cat((q, k, v), 2)
    assert torch.equal(version3.flash_attn_qkvpacked_func(joined, **options, num_heads_q=4), out)
    every = torch.stack((q, q, q), 2)
    wanted = flash_attn.flash_attn_func(q, q, q, causal=True)
    assert torch.equal(version3.flash_attn_qkvpacked_func(every, causal=True), wanted)
    flat, starts = [each.flatten(0, 1) for each in (q, k, v)], torch.tensor([0, 7, 18])
    out, lse, _ = flash_attn.flash_attn_varlen_func(
        *flat, starts, starts, 11, 11, causal=True, return_attn_probs=True
    )
    found = version3.flash_attn_varlen_func(
        *flat, starts, starts, 11, 11, causal=True, return_attn_probs=True
    )
    assert torch.equal(found[0], out) and torch.equal(found[1], lse)


def test_caches():
    q, k_cache, v_cache = tensor(2, 3, 4, 64), tensor(2, 48, 2, 64, seed=1), tensor(2, 48, 2, 64, seed=2)
    twins = k_cache.clone(), v_cache.clone()
    new = tensor(2, 3, 2, 64, seed=3), tensor(2, 3, 2, 64, seed=4)
    lengths = torch.tensor([20, 7], dtype=torch.int32)
    options = {"cache_seqlens": lengths, "causal": True, "return_softmax_lse": True}
    out, lse = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, *new, **options)
    found = version3.flash_attn_with_kvcache(q, *twins, *new, **options)
    assert torch.equal(found[0], out) and torch.equal(found[1], lse) and not found[2].numel()
    assert torch.equal(twins[0], k_cache) and torch.equal(twins[1], v_cache)


def test_packed_queries_over_pages():
    k_pages, v_pages = tensor(8, 16, 2, 64, seed=1), tensor(8, 16, 2, 64, seed=2)
    table = torch.tensor([[5, 0, 3], [1, 7, 2]], dtype=torch.int32)
    q, starts, lengths = tensor(9, 4, 64), torch.tensor([0, 5, 9]), torch.tensor([40, 17], dtype=torch.int32)
    told = {"page_table": table, "cu_seqlens_q": starts, "max_seqlen_q": 5, "cache_seqlens": lengths}
    out, lse, *_ = version3.flash_attn_with_kvcache(
        q, k_pages, v_pages, **told, causal=True, return_softmax_lse=True
    )
    for i in range(2):
        rows = slice(int(starts[i]), int(starts[i + 1]))
        k, v = (pages[table[i].long()].flatten(0, 1)[: lengths[i]] for pages in (k_pages, v_pages))
        wanted = attention(q[rows], k, v, causal=True)
        close(out[rows], wanted[0])
        close(lse[:, rows], wanted[1])
    with pytest.raises(
        attn.TensorError, match="^cu_seqlens_q: expected page_table and cache_seqlens beside it"
    ):
        version3.flash_attn_with_kvcache(q, k_pages, v_pages, cu_seqlens_q=starts)


@pytest.mark.parametrize("name", ["qv", "q_descale", "k_descale", "v_descale", "attention_chunk"])
def test_refusals(name):
    q, one = tensor(2, 9, 2, 64), torch.ones(1)
    value = 4 if name == "attention_chunk" else one
    with pytest.raises(attn.SpecError, match=f"^{name}: expected (None|0), got"):
        version3.flash_attn_func(q, q, q, **{name: value})
    with pytest.raises(attn.SpecError, match=f"^{name}: expected (None|0), got"):
        version3.flash_attn_with_kvcache(q, q, q, cache_seqlens=3, **{name: value})


@pytest.mark.parametrize("name", ["seqused_q", "seqused_k"])
def test_refusals_of_packed_sequences(name):
    q, starts = tensor(9, 2, 64), torch.tensor([0, 9])
    with pytest.raises(attn.SpecError, match=f"^{name}: expected None, got"):
        version3.flash_attn_varlen_func(q, q, q, starts, starts, 9, 9, **{name: starts[1:]})
