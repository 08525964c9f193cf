# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of Transformers whose heads or tokens ranks share, and the same models in one process.

Models are float32 with keys and values in float16, so that results of several ranks differ by attn's rounding alone."""

import contextlib
import inspect

import attn
import torch

COLUMNS = 150
CASES = {
    "all_gather": ("llama", "all_gather", {}),
    "ring over a window": ("mistral", "ring", {}),
    "heads": ("llama", "heads", {}),
}
"""The model, form and formats of prompts that are read by parts."""
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
INT8 = {"key": "int8", "value": "int8"}
SHORT = 12  # Columns of a prompt of one chunk, so that one of two ranks has none.
SHARDED = {"pages": 40, "chunk": 16, "dtype": torch.float16}
STEPS = 6


def save(folder, seed=0, window=None, **more):
    """Save a small decoder with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    sizes = {"vocab_size": 96, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2}
    sizes |= {"max_position_embeddings": 512, "initializer_range": 0.2} | HEADS | more
    torch.manual_seed(seed)
    if window is None:
        LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
    else:
        MistralForCausalLM(MistralConfig(**sizes, sliding_window=window)).save_pretrained(folder)


def parallel(mesh=None):
    """Return the options of from_pretrained that divide a model's heads: newer versions of Transformers have another name."""
    with contextlib.suppress(ImportError):
        from transformers.distributed import DistributedConfig

        if "tp_size" in inspect.signature(DistributedConfig).parameters:
            ranks = torch.distributed.get_world_size() if mesh is None else mesh.size()
            return {"distributed_config": DistributedConfig(tp_size=ranks)}
    return {"tp_plan": "auto"} if mesh is None else {"tp_plan": "auto", "device_mesh": mesh}


def load(folder, dtype=torch.float32, **options):
    import attn.transformers  # noqa: F401  registers "attn"
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="attn", **options
    ).eval()


def prompt(columns, batch=2):
    """Return the sequences of a padded batch, and their mask."""
    ids = (torch.arange(2 * columns).view(2, columns) * 7 + torch.tensor([[0], [3]])) % 96
    mask = torch.ones_like(ids)
    mask[0, : columns // 4] = 0
    return ids[:batch], mask[:batch]


def generated(model, cache, columns, batch=2):
    """Return tokens, and the logits that chose them, [steps, batch, vocabulary]."""
    from attn.adapters.transformers_config import CACHE

    ids, mask = prompt(columns, batch)
    options = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = model.generate(
        ids,
        attention_mask=mask,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
        **{CACHE: cache},
    )
    return found.sequences.tolist(), torch.stack(found.logits)


def alone(folder, columns, batch=2, **formats):
    """Generate in one process over pages."""
    from attn.transformers import PagedCache

    model = load(folder)
    return generated(
        model, PagedCache(model.config, pages=64, dtype=torch.float16, **formats), columns, batch
    )


def answered(model):
    """Return the tokens of two requests of an engine."""
    from attn.transformers import Engine, PagedCache

    cache = PagedCache(model.config, pages=64, dtype=torch.float16)
    engine = Engine(model, cache=cache, sequences=2, tokens=64, rows=16, compile=False)
    names = [engine.add_request(ids, max_new_tokens=STEPS) for ids in ([5, 7, 11], [2, 3] * 12)]
    found = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output.token_ids for output in engine.step()}
    return [found[name] for name in names]


def by_heads(folder, gates, columns):
    """Generate with the heads of this rank, by `generate` and by an engine; then with some of the heads streaming."""
    from attn.transformers import PagedCache, apply_head_gates

    model = load(folder, **parallel())
    cache = PagedCache(model.config, pages=64, dtype=torch.float16)
    found = {"generate": generated(model, cache, columns), "kv_heads": cache.pages.kv_heads}
    found["engine"] = answered(model)
    apply_head_gates(model, gates)
    gated = PagedCache(model.config, pages=64, dtype=torch.float16)
    found["gates"] = generated(model, gated, columns)
    try:
        attn.heads.identify(model, None, method="ablation", sink=4, recent=16)
    except attn.Error as error:
        found["identify"] = str(error)
    return found


def by_tokens(folder, columns, form, formats, batch=2, reads=True):
    """Read a prompt of which ranks have parts, and generate over a cache whose tokens they share. Returns also how many
    rows went through the model in each pass, and the tokens that this rank keeps."""
    from attn.transformers import ShardedCache

    model, rows = load(folder), []
    cache = ShardedCache(model.config, **SHARDED, **formats)

    def note(module, given, named):
        rows.append((given[0] if given else named["hidden_states"]).shape[:2].numel())

    model.model.layers[0].register_forward_pre_hook(note, with_kwargs=True)
    if reads:
        cache.read(model, *prompt(columns, batch), form=form)
    found = generated(model, cache, columns, batch)
    kept = sum(each.tokens for chunks in cache.pages._chunks.values() for each in chunks)
    return {"generate": found, "rows": rows, "kept": kept}


def by_both(rank, folder, columns):
    """Generate on a mesh of two by two: ranks of a row share heads, ranks of a column share tokens."""
    from attn.transformers import ShardedCache
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("cp", "tp"))
    model = load(folder, **parallel(mesh["tp"]))
    cache = ShardedCache(model.config, group=mesh["cp"], **SHARDED)
    cache.read(model, *prompt(columns))
    return {"generate": generated(model, cache, columns), "kv_heads": cache.pages.cache.kv_heads}


def refused(rank, folder, columns):
    """Return the messages of what a cache that ranks share does not serve."""
    from attn.transformers import PagedCache, ShardedCache, apply_head_gates

    model = load(folder)
    ids, mask = prompt(columns)
    found = {}

    def note(name, call, *arguments, **options):
        try:
            call(*arguments, **options)
        except attn.Error as error:
            found[name] = f"{type(error).__name__}: {error}"

    cache = ShardedCache(model.config, **SHARDED)
    note("crop", cache.crop, 3)
    note("beams", cache.reorder_cache, torch.tensor([0]))
    note("padding", cache.read, model, ids, mask.flip(1))
    note("form", cache.read, model, ids, mask, form="tree")
    note("shape", cache.read, model, ids[0])
    note("other prompt", cache.read, model, ids + rank, mask)
    note("pages", ShardedCache(model.config, **SHARDED | {"pages": 3}).read, model, ids, mask)
    cache.read(model, ids, mask)
    note("twice", cache.read, model, ids, mask)
    cache.reset()
    cache.read(model, ids, mask)  # An empty cache takes another prompt.
    model.set_attn_implementation("eager")
    note("eager", ShardedCache(model.config, **SHARDED).read, model, ids, mask)
    model.set_attn_implementation("attn")
    note("group", PagedCache, model.config, pages=4, group=None)
    apply_head_gates(model, attn.heads.HeadChoice([[0, 1], [1, 0]], sink=4, recent=16))
    note("gates", generated, model, ShardedCache(model.config, **SHARDED), columns)
    model.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    note("rope", ShardedCache(model.config, **SHARDED).read, model, ids, mask)
    return found


def heads_that_ranks_divide(folder):
    """Return the message of a model whose KV heads the ranks do not divide."""
    try:
        load(folder, **parallel())
    except attn.PlanError as error:
        return str(error)
    return None


def on_two_ranks(rank, folders, gates):
    """Return the results of all cases of two ranks, which import Transformers once."""
    llama = folders["llama"]
    found = {
        name: by_tokens(folders[model], COLUMNS, form, formats)
        for name, (model, form, formats) in CASES.items()
    }
    found["int8"] = by_tokens(llama, COLUMNS, "all_gather", INT8, reads=False)
    found["short"] = by_tokens(llama, SHORT, "all_gather", {}, batch=1)
    found["refused"] = refused(rank, llama, COLUMNS)
    if gates is not None:
        found["by heads"] = by_heads(llama, gates, COLUMNS)
        found["three heads"] = heads_that_ranks_divide(folders["three"])
    return found
