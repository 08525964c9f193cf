# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching of Transformers with attn: its own scheduler and cache on the CPU, attention over their pages."""

import gc
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
paged = pytest.importorskip(
    "transformers.generation.continuous_batching.cache", reason="Transformers has no continuous batching"
)
io = pytest.importorskip("transformers.generation.continuous_batching.input_outputs")
runner = pytest.importorskip("transformers.generation.continuous_batching.model_runner")

import attn  # noqa: E402
import attn.transformers  # noqa: E402
import model_zoo  # noqa: E402
from attn.adapters.transformers_config import takes_paged  # noqa: E402

served = pytest.mark.skipif(
    not takes_paged("paged|attn"),
    reason=f"continuous batching of Transformers {transformers.__version__} attends by names that it knows",
)

# Prompts with a shared beginning of whole blocks, which the cache keeps once; prompts of one token; prompts
# that come in chunks.
PROMPTS = [[5, 6, 7, 8, 9], list(range(20, 60)), [11], list(range(20, 52)) + [3, 4], list(range(60, 89))]
NEW = 6


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """Transformers asks psutil for the size of memory."""
    monkeypatch.setattr(
        paged.PagedAttentionMemoryHandler, "get_available_memory", lambda *args, **named: 1 << 28
    )
    with torch.no_grad():
        yield


def build(implementation, name="Llama", dtype=torch.float16):
    """Build a model from a seed whose choices stay the same when all weights change by four times float16's rounding."""
    changes = {"initializer_range": 0.05, "eos_token_id": None}
    seed = 1 if name == "GptOss" else 4
    return model_zoo.build(
        getattr(transformers, f"{name}ForCausalLM"), implementation, dtype, seed, **changes
    )


def config(**changes):
    sizes = {"num_blocks": 24, "block_size": 16, "max_batch_tokens": 32, "use_cuda_graph": False} | changes
    return transformers.generation.ContinuousBatchingConfig(**sizes)


def serve(model, prompts=PROMPTS, **changes):
    options = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    results = model.generate_batch(
        prompts,
        generation_config=options,
        continuous_batching_config=config(return_logprobs=True, **changes),
        progress_bar=False,
    )
    found = [results[name] for name in sorted(results, key=lambda name: int(name.split("_")[1]))]
    return [each.generated_tokens for each in found], [each.logprobs for each in found]


@pytest.fixture
def layers(monkeypatch):
    """Return a list of the layers that attended, with their numbers of rows."""
    attend, seen = attn.transformers.attend_batch, []

    def counted(layer, query, *args, **named):
        seen.append((layer, query.shape[2]))
        return attend(layer, query, *args, **named)

    monkeypatch.setattr(attn.transformers, "attend_batch", counted)
    return seen


@served
@pytest.mark.parametrize(
    "name,sizes",
    [
        ("Llama", {}),
        ("Llama", {"block_size": 12}),  # pages of four tokens
        ("Gemma2", {}),  # a window, and soft caps
        ("GptOss", {}),  # sinks
    ],
)
def test_generates_what_eager_attention_does(name, sizes, layers):
    """Tokens are those of eager attention, and so are their log-probabilities, which a wrongly visible token would
    move."""
    model = build("attn", name)
    tokens, ours = serve(model, **sizes)
    assert {layer for layer, _ in layers} == {0, 1}
    assert max(rows for _, rows in layers) == 32 and min(rows for _, rows in layers) <= len(PROMPTS)
    assert model.config._attn_implementation == "attn"
    exact, theirs = serve(build("eager", name, torch.float32), **sizes)
    assert tokens == exact
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-2, rtol=1e-2)


@served
def test_one_model_serves_again_and_generates(layers):
    """A second cache gets its own plans, and after serving the model generates as before."""
    model = build("attn")
    first, _ = serve(model, PROMPTS[:2])
    again, _ = serve(model, PROMPTS[:2], block_size=32, num_blocks=8)
    assert first == again and layers
    gc.collect()
    assert not len(attn.adapters.paged_batches._states)  # nor the memory of the caches
    layers.clear()
    ids = torch.tensor(PROMPTS[1:2])
    alone = model.generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    assert alone[0, 40:].tolist() == first[1] and not layers


def refusal(model):
    """Return the error of the first layer of continuous batching, which Transformers logs in its own thread."""
    manager = model.init_continuous_batching(continuous_batching_config=config())
    try:
        manager.warmup()
        manager.start()
        manager.add_request([5, 6, 7], max_new_tokens=2)
        manager._generation_thread.join(60)
        return manager.fatal_error
    finally:
        manager.stop()


@pytest.mark.skipif(takes_paged("paged|attn"), reason="it is served by this version of Transformers")
@pytest.mark.parametrize("name", ["attn", "paged|attn"])
def test_a_version_that_would_attend_otherwise_is_named(name):
    with pytest.raises(
        attn.TensorError, match="generate_batch: Transformers .* take .attn_flash., attn.transformers.Engine"
    ):
        build(name).generate_batch(PROMPTS, continuous_batching_config=config())


@served
def test_what_it_refuses():
    assert "generate_batch: LlamaAttention: tensors of float32" in str(
        refusal(build("attn", dtype=torch.float32))
    )
    gated = build("attn")
    gates = attn.heads.Gates([[0.9, 0.1], [0.0, 0.2]])
    attn.transformers.apply_head_gates(gated, gates.select(threshold=0.5))
    assert "LlamaAttention: head gates in generate_batch (use generate)" in str(refusal(gated))
    with pytest.raises(attn.TensorError, match='"paged.attn" outside of generate_batch .use "attn"'):
        build("paged|attn")(torch.tensor([[5, 6]]))
    with pytest.raises(attn.TensorError, match="generate_batch: GPTJForCausalLM: has a class of attention"):
        build("paged|attn", "GPTJ")


def serve_padded(monkeypatch, model, **sizes):
    """Serve in steps of fixed shapes, as under graphs. Also return the planner of each plan that was made on the
    device."""
    made, plan = [], attn.adapters.planned_batches.DevicePlanner.plan
    start, kwargs_of = runner.ModelRunner.__init__, io.ContinuousBatchingIOs.get_model_kwargs

    def pads(self, *args, **named):
        start(self, *args, **named)
        self.pad_inputs = True

    def counted(self, tables):
        made.append(self)
        return plan(self, tables)

    def late(self, **named):
        """Zero the entries after the batch late, as if a copy to the device wrote its zeros after them."""
        found = kwargs_of(self, **named)
        of_keys = found["cu_seq_lens_k"]
        for starts in (
            found["cu_seq_lens_q"],
            *(of_keys.values() if isinstance(of_keys, dict) else [of_keys]),
        ):
            starts[self.true_batch_size + 1 :] = 0
        return found

    with monkeypatch.context() as patch:
        patch.setattr(runner.ModelRunner, "__init__", pads)
        patch.setattr(io.ContinuousBatchingIOs, "get_model_kwargs", late)
        patch.setattr(attn.adapters.planned_batches.DevicePlanner, "plan", counted)
        patch.setattr(attn.adapters.paged_batches, "_Step", lambda inputs: pytest.fail("asks the device"))
        return *serve(model, **sizes), made


@served
@pytest.mark.parametrize(
    "name,sizes", [("Llama", {}), ("Llama", {"block_size": 12}), ("Gemma2", {}), ("GptOss", {})]
)
def test_steps_of_fixed_shapes_are_planned_on_the_device(name, sizes, monkeypatch):
    """Tokens are those of eager attention. Layers that see the same tokens share one plan, and planners depend on
    shapes alone."""
    intervals = {"q_padding_interval_size": 8, "kv_padding_interval_size": 64, "max_requests_per_batch": 6}
    tokens, ours, made = serve_padded(monkeypatch, build("attn", name), **(sizes | intervals))
    exact, theirs = serve(build("eager", name, torch.float32), **sizes)
    assert tokens == exact
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-2, rtol=1e-2)
    assert len(made) > len({id(each) for each in made})


@served
@pytest.mark.parametrize("longest", [0, 16])  # 16: as Transformers passes it for batches of fixed shapes
@pytest.mark.parametrize(
    "reads", [True, False]
)  # False: as Transformers does when the cache has no token of any sequence yet
def test_rows_that_are_padding(longest, reads):
    """In a batch of fixed size, as compiled code and graphs need it, rows of no sequence stay 0."""
    cache = paged.PagedAttentionCache(
        model_zoo.tiny(transformers.LlamaConfig),
        config(num_blocks=8, block_size=4),
        "cpu",
        paged.DistributedHelper(device_mesh=None, cpu_group_timeout=None),
        {},
        torch.float16,
    )
    random = torch.Generator().manual_seed(0)
    trash, held = cache.trash_index, [9, 2]
    places = [list(range(9)), [12, 13]]
    q, k, v = (torch.randn(1, heads, 11, 32, generator=random).half() for heads in (4, 2, 2))
    padded = [torch.cat([each, torch.full((1, each.shape[1], 5, 32), 9.0).half()], 2) for each in (q, k, v)]
    inputs = {
        "cache": cache,
        "cu_seq_lens_q": torch.tensor([0, 9, 11, 11, 11], dtype=torch.int32),
        "cu_seq_lens_k": torch.tensor([0, 9, 11, 11, 11], dtype=torch.int32),
        "read_index": [
            torch.tensor([*places[0], *places[1], *[trash] * 5][: None if reads else 0], dtype=torch.int64)
        ],
        "write_index": [torch.tensor([*places[0], *places[1], *[trash] * 5])],
        "max_seqlen_q": longest,
    }
    layer = torch.nn.Module()
    layer.layer_idx = 1
    out, weights = attn.transformers.paged_attention_forward(layer, *padded, None, **inputs)
    assert weights is None and out.shape == (1, 16, 4, 32) and not out[:, 11:].any()
    first = 0
    for count in held:
        part = [each[:, :, first : first + count].float() for each in (q, k, v)]
        exact = torch.nn.functional.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True)
        torch.testing.assert_close(
            out[:, first : first + count].float(), exact.transpose(1, 2), atol=4e-3, rtol=4e-3
        )
        first += count
