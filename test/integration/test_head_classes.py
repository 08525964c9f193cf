# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Head classes: the assignment of KV heads is data, and streaming heads do not read tokens that they cannot
see."""

import numpy as np
import pytest
from attnlab import Problem, attn_run
from safetensors.numpy import save_file
from seeds import of_seeds
from tensorlab import DEVICE, generate, launch

SINK, RECENT = 20, 70
CLASSES = f"causal heads {{retrieval: see all, streaming: see sink({SINK}) | recent({RECENT})}}"
SHAPES = [("mma", 1), ("mma", 40), ("wgmma", 40)]
STORES = ["paged<16>", "dense", "packed"]


def write(folder, store="paged<16>", q_heads=8, kv_heads=4, text=lambda text: text):
    file = folder / "problem.mlir"
    file.write_text(text(Problem(q_heads, kv_heads, 64, 64, "f16", store, CLASSES).text()))
    return file


def run(file, folder, tensors, *options):
    """Return the results for these tensors, and the report."""
    status, results, report, errors = launch(file, folder, tensors, *options)
    assert status == 0, errors
    return results, report


def tokens_of(tensors, sequence):
    """Return the positions of a sequence's tokens: the index in keys and values without their last two
    axes."""
    tokens = np.arange(tensors["kv.lengths"][sequence])
    if "kv.k_pages" in tensors:
        page = tensors["kv.k_pages"].shape[1]
        return tensors["kv.block_table"][sequence][tokens // page], tokens % page
    if "kv.start" in tensors:
        return (tensors["kv.start"][sequence] + tokens,)
    return np.full_like(tokens, sequence), tokens


def keys_and_values(tensors):
    return [tensors[f"kv.{part}{'_pages' if 'kv.k_pages' in tensors else ''}"] for part in "kv"]


def sees(tensors, head, row, tokens):
    distance = tensors["q_pos"][row] - tokens
    streaming = tensors["classes"][head] == 1
    return (distance >= 0) & ((tokens < SINK) | (distance < RECENT) | (not streaming))


def attention(tensors):
    q = tensors["q"].astype(np.float64)
    group = q.shape[1] // len(tensors["classes"])
    o = np.zeros(q.shape)
    keys, values = keys_and_values(tensors)
    for s in range(len(tensors["kv.lengths"])):
        place = tokens_of(tensors, s)
        k, v = keys[place].astype(np.float64), values[place].astype(np.float64)
        for row in range(tensors["q_start"][s], tensors["q_start"][s + 1]):
            for head in range(q.shape[1]):
                seen = sees(tensors, head // group, row, np.arange(len(k)))
                if seen.any():
                    scores = k[seen, head // group] @ q[row, head] / np.sqrt(q.shape[2])
                    weights = np.exp(scores - scores.max())
                    o[row, head] = weights @ v[seen, head // group] / weights.sum()
    return o


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("store", STORES)
def test_numpy_agrees(tmp_path, store, schedule, q_len):
    file = write(tmp_path, store)
    tensors = generate(file, tmp_path, "--dim=batch=3", "--dim=kv_len=0..400", f"--dim=q_len={q_len}")
    assert list(tensors["classes"]) == [0, 1, 0, 1]
    got, _ = run(file, tmp_path, tensors, f"--schedule={schedule}")
    o = attention(tensors)
    error = np.linalg.norm(got["o"].astype(np.float64) - o, axis=-1)
    assert np.all(error <= 1e-3 * np.linalg.norm(o, axis=-1))


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("store", STORES)
def test_what_streaming_heads_do_not_see_is_not_read(tmp_path, store, schedule, q_len):
    """NaN fills the pages in which no row sees a token through a head and, without pages, tokens further than
    a tile from visible ones. If one were read, it would reach the result, because a weight of zero times NaN
    is NaN."""
    file = write(tmp_path, store)
    tensors = generate(file, tmp_path, "--dim=batch=3", "--dim=kv_len=100..900", f"--dim=q_len={q_len}")
    spoilt = 0
    for s in range(len(tensors["kv.lengths"])):
        place = tokens_of(tensors, s)
        length, rows = len(place[0]), range(tensors["q_start"][s], tensors["q_start"][s + 1])
        for head in range(len(tensors["classes"])):
            seen = np.any([sees(tensors, head, row, np.arange(length)) for row in rows], axis=0)
            near = [
                seen[t // 16 * 16 :][:16] if store == "paged<16>" else seen[max(t - 128, 0) :][:257]
                for t in range(length)
            ]
            unread = np.array([not some.any() for some in near], dtype=bool)
            spoilt += unread.sum()
            for part in keys_and_values(tensors):
                part[(*(axis[unread] for axis in place), head)] = np.nan
    assert spoilt > 500
    run(file, tmp_path, tensors, f"--schedule={schedule}")


@pytest.mark.parametrize("schedule,q_len", SHAPES)
def test_heads_may_trade_places(tmp_path, schedule, q_len):
    """Another layer with equally many heads in each class runs the same plan: results move with the heads, to
    the bit. Heads of a class keep their order, and so their slots."""
    file = write(tmp_path)
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=kv_len=500..900", f"--dim=q_len={q_len}")
    first, _ = run(file, tmp_path, tensors, f"--schedule={schedule}", "--blocks=7")
    order = [1, 0, 2, 3]  # streaming, retrieval, retrieval, streaming
    group = tensors["q"].shape[1] // len(order)
    queries = [head * group + member for head in order for member in range(group)]
    moved = dict(tensors, classes=tensors["classes"][order], q=tensors["q"][:, queries])
    for name in ("kv.k_pages", "kv.v_pages"):
        moved[name] = tensors[name][:, :, order]
    second, _ = run(file, tmp_path, moved, f"--schedule={schedule}", "--blocks=7")
    for name in ("o", "lse"):
        assert np.array_equal(first[name][:, queries], second[name])


def test_numbers_of_heads(tmp_path):
    file = write(tmp_path, kv_heads=8)
    for options, expected in [
        ([], (4, 4)),
        (["--dim=streaming=6"], (2, 6)),
        (["--dim=retrieval=0"], (0, 8)),
        (["--dim=retrieval=3", "--dim=streaming=5"], (3, 5)),
    ]:
        status, report, errors = attn_run(file, f"--device={DEVICE}", "--check", "--dim=kv_len=300", *options)
        assert status == 0, errors
        assert report["head_classes"] == dict(zip(("retrieval", "streaming"), expected, strict=True))


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
def test_bytes_follow_the_classes(tmp_path):
    file = write(tmp_path, kv_heads=8)
    keys = {}
    for streaming in (0, 6, 8):
        status, report, errors = attn_run(
            file, "--device=host", "--dim=batch=2", "--dim=kv_len=4000", f"--dim=streaming={streaming}"
        )
        assert status == 0, errors
        keys[streaming] = report["bytes_read"]
        assert report["amplification"] <= 1.03
    full = 2 * 4000 * 8 * 64 * 2 * 2
    assert keys[0] >= full
    assert keys[6] <= 1.05 * full * (2 + 6 * (SINK + RECENT) / 4000) / 8
    assert keys[8] <= 1.3 * full * (SINK + RECENT) / 4000


def test_classes_that_see_the_same_vanish(tmp_path):
    """The tensor stays an argument; its content has no effect."""
    same = f"see sink({SINK}) | recent({RECENT})"
    file = write(tmp_path, text=lambda text: text.replace("see all", same))
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=kv_len=300")
    first, report = run(file, tmp_path, tensors)
    assert "head_classes" not in report
    second, _ = run(file, tmp_path, dict(tensors, classes=np.array([7, -1, 0, 3], dtype=np.int32)))
    assert first["o"].tobytes() == second["o"].tobytes()


def write_apart(folder, store="paged<16>", kv_heads=4):
    """Write a problem with a store for each class, the one of the streaming heads shorter."""
    file = folder / "apart.mlir"
    text = Problem(2 * kv_heads, kv_heads, 64, 64, "f16", store, CLASSES + " apart").text()
    dims = '"streaming_kv", attn.dims = ["batch", "'
    assert dims + "kv_len" in text
    file.write_text(text.replace(dims + "kv_len", dims + "recent_len"))
    return file


def attention_apart(tensors):
    """Compute attention by head: over the tokens in the store of its class that the class sees."""
    q = tensors["q"].astype(np.float64)
    classes = tensors["classes"]
    group = q.shape[1] // len(classes)
    o = np.zeros(q.shape)
    for c, name in enumerate(["retrieval_kv", "streaming_kv"]):
        store = {key.replace(name, "kv"): value for key, value in tensors.items() if key.startswith(name)}
        keys, values = keys_and_values(store)
        members = np.flatnonzero(classes == c)
        assert keys.shape[-2] == len(members)
        for s, first in enumerate(store["kv.pos0"]):
            place = tokens_of(store, s)
            k, v = keys[place].astype(np.float64), values[place].astype(np.float64)
            positions = first + np.arange(len(k))
            for row in range(tensors["q_start"][s], tensors["q_start"][s + 1]):
                for at, head in enumerate(members):
                    seen = sees(tensors, head, row, positions)
                    for query in range(head * group, head * group + group if seen.any() else 0):
                        scores = k[seen, at] @ q[row, query] / np.sqrt(q.shape[2])
                        weights = np.exp(scores - scores.max())
                        o[row, query] = weights @ v[seen, at] / weights.sum()
    return o


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("store", STORES)
def test_stores_apart(tmp_path, store, schedule, q_len):
    file = write_apart(tmp_path, store)
    sizes = ["--dim=batch=3", "--dim=kv_len=100..700", "--dim=recent_len=90..130", f"--dim=q_len={q_len}"]
    for options in ([], ["--dim=streaming=3"], ["--dim=streaming=4"], ["--dim=streaming=0"]):
        tensors = generate(file, tmp_path, *sizes, *options)
        ends = [
            tensors[f"{name}.pos0"] + tensors[f"{name}.lengths"] for name in ("retrieval_kv", "streaming_kv")
        ]
        assert np.array_equal(*ends) and np.array_equal(
            ends[0], tensors["q_pos"][tensors["q_start"][1:] - 1] + 1
        )
        got, report = run(file, tmp_path, tensors, f"--schedule={schedule}", "--shuffle")
        o = attention_apart(tensors)
        error = np.linalg.norm(got["o"].astype(np.float64) - o, axis=-1)
        assert np.all(error <= 1e-3 * np.linalg.norm(o, axis=-1))
        if DEVICE == "host":
            assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


def test_heads_of_one_class_only(tmp_path):
    """A store must hold as many heads as `classes` assigns."""
    file = write_apart(tmp_path)
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=kv_len=200", "--dim=recent_len=100")
    tensors["classes"] = np.array([0, 1, 1, 1], np.int32)
    inputs = tmp_path / "in.safetensors"
    save_file(tensors, inputs)
    status, _, errors = attn_run(file, "--inputs", inputs, f"--device={DEVICE}")
    assert status == 2
    assert "tensor 'retrieval_kv.k_pages': expected shape" in errors
    assert "16, retrieval heads = 1, 64], got" in errors


def composition(rng):
    """Return two regions, the first one shared, whose visibilities and those of the classes have separate
    sizes. The second may be one region per class, with separate stores, except for the last class."""

    def see(*sizes):
        size = rng.choice([*sizes, 1, 7, 64, 65, 200, 1000])
        other = rng.choice([1, 30, 500])
        return rng.choice(
            [
                "all",
                "causal",
                f"window({size})",
                f"causal and (sink({other}) | recent({size}))",
                f"sink({size})",
            ]
        )

    heads, group = rng.choice([(3, 4), (2, 7), (4, 2), (6, 1)])
    dim, dtype = rng.choice([32, 64, 80, 128]), rng.choice(["f16", "bf16"])
    query = f"tensor<?x{heads * group}x{dim}x{dtype}>"
    stores = [rng.choice(["dense", "packed", "paged<16>", "paged<1>"]) for _ in range(2)]
    sinks = rng.random() < 0.5
    sink_argument = f', %s: tensor<{heads * group}xf32> {{attn.name = "sink_logits"}}' if sinks else ""
    sink_type = f", tensor<{heads * group}xf32>" if sinks else ""
    names = ["first", "second", "third"][: rng.randint(2, min(heads, 3))]
    classes = ", ".join(f"{name}: see {see() if name == 'first' else see(0)}" for name in names)
    own = names[: rng.randint(1, len(names))] if rng.random() < 0.4 else []
    types = [
        f"!attn.kv<{store}, heads = {count}, dim = {dim}, key = {dtype}, value = {dtype}>"
        for store, count in zip(stores, (heads, "?" if own else heads), strict=True)
    ]
    kv = [(f"{name}_kv", f" for {name}") for name in own] or [("kv", "")]
    arguments = ", ".join(f'%{name}: {types[1]} {{attn.name = "{name}"}}' for name, _ in kv)
    shown = [f"(%{name} see {rng.choice(['causal', 'window(300)'])}{of_class})" for name, of_class in kv]
    regions = f"(%context see {see()}), {', '.join(shown)}"
    types[1:] = types[1:] * len(kv)
    return f"""
func.func @composition(%q: {query} {{attn.name = "q"}},
    %context: {types[0]} {{attn.name = "context", attn.dims = ["contexts", "context_len"]}},
    {arguments},
    %classes: tensor<{heads}xi32> {{attn.name = "classes"}}{sink_argument}) -> ({query}, tensor<?x?xf32>) {{
  %o, %lse = attn.attend %q over {regions} heads %classes {{{classes}}}{" sinks %s" if sinks else ""}
      : {query}, {", ".join(types)}, tensor<{heads}xi32>{sink_type} -> {query}, tensor<?x?xf32>
  return %o, %lse : {query}, tensor<?x?xf32>
}}
"""


def test_compositions(tmp_path):
    of_seeds(24, lambda rng: run_composition(tmp_path, rng))


def run_composition(tmp_path, rng):
    file = tmp_path / "composition.mlir"
    file.write_text(composition(rng))
    contexts = rng.randint(1, 5)
    sizes = {
        "batch": 5,
        "contexts": contexts,
        "context_len": 150 if contexts > 1 else rng.choice([0, 40, 300]),
        "q_len": rng.choice([1, 3, 40, "1..70"]),
        "kv_len": rng.choice(["70..90", "70..900"]),
    }
    options = [f"--dim={name}={size}" for name, size in sizes.items()]
    options += [f"--schedule={rng.choice(['mma', 'wgmma'])}", f"--seed={rng.randrange(1000)}", "--shuffle"]
    status, report, errors = attn_run(file, f"--device={DEVICE}", "--check", *options)
    assert status == 0, (file.read_text(), options, errors)
    assert report["passed"]
