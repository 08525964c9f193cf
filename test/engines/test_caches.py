# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format that an engine asks for, and the bytes that vLLM is told, without vLLM."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

from attn.serving import Layer  # noqa: E402
from attn.vllm import caches  # noqa: E402

CACHE = SimpleNamespace(cache_dtype="auto", kv_cache_dtype_skip_layers=[])


@dataclass(frozen=True)
class Spec:
    """Stands for vLLM's spec of a layer's cache."""

    num_kv_heads: int = 2
    head_size: int = 64
    dtype: torch.dtype = torch.float16
    state_content_bytes: int | None = None
    page_size_padded: int | None = None

    @property
    def state_content_size_bytes(self):
        return self.state_content_bytes or 256


def config(**options):
    return SimpleNamespace(additional_config=options, cache_config=CACHE)


@pytest.fixture(autouse=True)
def forgotten():
    yield
    caches.remember(None)


def test_the_configuration_says_the_format():
    assert caches.asked(None) is None and caches.asked(config()) is None
    assert caches.asked(SimpleNamespace(additional_config=object())) is None
    assert caches.asked(config(attn_kv_cache_dtype="int4")) == "int4"
    assert caches.customized(Spec(), config(attn_kv_cache_dtype="int4")).state_content_bytes == 72
    assert (
        caches.customized(Spec(head_size=128), config(attn_kv_cache_dtype="nvfp4")).state_content_bytes == 144
    )


def test_without_a_configuration_it_is_that_of_the_layers_made_last():
    assert caches.customized(Spec(), None) == Spec()
    caches.remember("int8_int4")
    assert caches.customized(Spec(), None).state_content_bytes == 104
    assert caches.customized(Spec(), config()) == Spec()
    assert caches.customized(Spec(state_content_bytes=99), None).state_content_bytes == 99


def test_a_format_is_refused_with_the_reason():
    assert caches.refusals("int8", CACHE) == caches.refusals("int8", None) == []
    (found,) = caches.refusals("int3", CACHE)
    assert found.startswith("attn_kv_cache_dtype: expected one of int8, ") and "got 'int3'" in found
    other = SimpleNamespace(cache_dtype="fp8", kv_cache_dtype_skip_layers=["0"])
    assert [each.split(":")[0] for each in caches.refusals("int8", other)] == [
        "kv_cache_dtype",
        "kv_cache_dtype_skip_layers",
    ]


def test_pages_that_kernels_cannot_read_are_refused():
    layer = Layer(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", page_size=16, format="int8_int4")
    block = 16 * 104
    for padded in (None, 2 * block, 5 * block):
        caches.check_spec(Spec(state_content_bytes=104, page_size_padded=padded), layer)
    with pytest.raises(ValueError, match="expected 104 bytes a token and head for .*=int8_int4, got 256"):
        caches.check_spec(Spec(), layer)
    with pytest.raises(ValueError, match=f"expected pages a multiple of {block} bytes apart"):
        caches.check_spec(Spec(state_content_bytes=104, page_size_padded=3 * block + 16), layer)
