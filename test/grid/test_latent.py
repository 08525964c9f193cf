# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels over values that are a part of their keys (latent attention), and of heads longer than 256, under all
detectors against float64: over stores, masks, chips and schedules. Bytes of their plans. --full takes more."""

import itertools
import json
import os
import re
import subprocess

import attn
import numpy
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import Dense, Packed, Paged, causal, first  # noqa: E402
from attnlab import program  # noqa: E402

FULL = bool(os.environ.get("ATTN_FULL"))
DIMS = {"head_dim": 576, "dtype": "bfloat16"}


def spec(store=None, *, features=512, **changes):
    store = store or Paged(page_size=16, value=first(features))
    given = dict(q_heads=16, kv_heads=1, see=causal(), kv=[store]) | DIMS
    return attn.Spec(**(given | changes))


# --- Kernels -------------------------------------------------------------------------------------------------

STORES = (
    Paged(page_size=16, value=first(512)),
    Paged(page_size=64, value=first(512)),
    Packed(value=first(512)),
    Dense(value=first(512)),
    Paged(page_size=1, value=first(512)),
)
# Query heads, rows, tokens, visibility, dtype, and the options of the description.
POINTS = (
    (16, 1, (40, 130), causal(), "bfloat16", {}),
    (128, 1, 50, causal(), "float16", {}),
    (1, 3, (4, 97), attn.window(33), "bfloat16", {"sink_logits": True}),
    (16, 4, (40, 75), causal(), "float16", {}),
    (4, 37, 70, attn.all_tokens(), "bfloat16", {"return_lse": False}),
)
TARGETS = ("sm_90a", "sm_80", "sm_89")


def points():
    every = list(itertools.product(POINTS, STORES, TARGETS)) if FULL else []
    few = [(point, STORES[i % 5], TARGETS[i % 3]) for i, point in enumerate(POINTS)]
    return few + [each for each in every if each not in few]


@pytest.mark.parametrize("point,store,target", points())
def test_kernels(point, store, target):
    heads, rows, tokens, see, dtype, options = point
    described = spec(store, q_heads=heads, see=see, dtype=dtype, **options)
    report = attn.check(described, batch=2, q_len=rows, kv_len=tokens, target=target)
    assert report.right and not report.findings


@pytest.mark.parametrize(
    "store,dims",
    [
        (Paged(page_size=16, value=first(64)), {"head_dim": 80}),
        (Packed(value=first(256)), {"head_dim": 320, "dtype": "float16"}),
        (Dense(value=first(64)), {"head_dim": 64}),
        (Dense(value=first(40)), {"head_dim": 48}),
        (Paged(page_size=8, value=first(72), ragged=True), {"head_dim": 104}),
    ],
)
def test_small_latents(store, dims):
    """One warp holds all value features: the usual schedules, wgmma among them."""
    described = spec(store, q_heads=8, kv_heads=2, **dims)
    for rows, tokens in ((1, (30, 90)), (70, 90)):
        assert attn.check(described, batch=2, q_len=rows, kv_len=tokens).right


@pytest.mark.parametrize(
    "dims",
    [
        {"head_dim": 512},
        {"head_dim": 288, "value_dim": 128},
        {"head_dim": 64, "value_dim": 384, "dtype": "float16"},
    ],
)
def test_long_heads(dims):
    """Values of their own, of more features than an accumulator of one warp has."""
    described = spec(
        Paged(page_size=16), q_heads=4, kv_heads=2, see=attn.window(40), sink_logits=True, **dims
    )
    assert attn.check(described, batch=2, q_len=1, kv_len=(20, 70)).right
    assert attn.check(described, batch=1, q_len=40, kv_len=50, schedule="mma", target="sm_80").right
    assert attn.check(described, batch=2, q_len=40, kv_len=(50, 90)).right


def test_a_prefix_in_an_operand_of_its_own():
    """Sequences share a prefix in latent form; speculated rows see it and their own tokens."""
    prefix = Dense(name="prefix", see=attn.all_tokens(), value=first(512), dims=("prefixes", "prefix_len"))
    own = Paged(name="own", see=causal(), value=first(512))
    described = attn.Spec(q_heads=16, kv_heads=1, kv=[prefix, own], **DIMS)
    report = attn.check(described, batch=2, q_len=2, prefixes=1, prefix_len=65, kv_len=(20, 35))
    assert report.right


def test_stores_of_both_kinds_meet():
    """A latent operand beside one whose values lie apart."""
    kv = [
        Packed(name="a", value=first(64), dims=("batch", "a_len")),
        Packed(name="b", dims=("batch", "b_len")),
    ]
    described = attn.Spec(q_heads=4, kv_heads=2, head_dim=64, dtype="float16", kv=kv, see=attn.all_tokens())
    assert attn.check(described, batch=2, q_len=3, a_len=50, b_len=40).right


def test_scores_and_classes():
    """A soft cap, and heads that see less."""
    cap = lambda s, h, qi, ki: 30 * attn.math.tanh(s / 30)  # noqa: E731
    assert attn.check(spec(score=cap, q_heads=8), batch=1, q_len=2, kv_len=70).right
    heads = attn.heads(all=attn.all_tokens(), near=attn.recent(20))
    described = spec(Packed(value=first(64)), head_dim=80, q_heads=4, kv_heads=2, heads=heads)
    assert attn.check(described, batch=2, q_len=1, kv_len=50).right


# --- Weights that warps share ------------------------------------------------------------------------------------

SHARED = """
!query = tensor<?x{heads}x576xbf16>
!output = tensor<?x{heads}x512xbf16>
!latents = !attn.kv<{store}, heads = {kv_heads}, dim = 576, key = {key}, value = first<512>>
func.func @shared(%q: !query {{attn.name = "q", attn.dims = ["rows"]}}, %kv: !latents {{attn.name = "kv"}}{more})
    -> (!output, tensor<?x{heads}xf32>) attributes {{{attributes}}} {{
  %o, %lse = attn.attend %q over (%kv see {see}) {classes}scale 0.07 : !query, !latents{types} -> !output, tensor<?x{heads}xf32>
  return %o, %lse : !output, tensor<?x{heads}xf32>
}}
"""
E4M3 = "!attn.quantized<f8E4M3FN, per = {per}>"
CLASSES = {
    "more": ', %c: tensor<2xi32> {attn.name = "classes"}',
    "see": "causal for near",
    "classes": "heads %c {near: see all, far: see all} ",
    "types": ", tensor<2xi32>",
}


def check_shared(folder, *options, workload=None, **changes):
    """Run a problem whose kernels share weights on the host device."""
    given = dict(heads=128, kv_heads=1, store="paged<64>", key="bf16", see="causal", attributes="")
    file = folder / "shared.mlir"
    file.write_text(SHARED.format(**dict(more="", classes="", types="") | given | changes))
    if workload:
        (folder / "workload.json").write_text(json.dumps(workload))
        options += ("--workload", folder / "workload.json")
    command = [
        program("attn-run"),
        file,
        "--device=host",
        "--target=sm_90a",
        "--check",
        "--shuffle",
        *options,
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def tree(*nodes, heads, bytes_of_token):
    """A workload of one step; a node is its parent, rows and tokens."""
    return {
        "kv_heads": 1,
        "q_heads": heads,
        "dim": 576,
        "layers": 1,
        "bytes_per_token_per_head": bytes_of_token,
        "steps": [
            {
                "repeat": 1,
                "nodes": [dict(zip(("parent", "rows", "tokens"), node, strict=True)) for node in nodes],
            }
        ],
    }


@pytest.mark.parametrize(
    "heads,key,size",
    [(16, E4M3.format(per="tensor"), 1), (128, E4M3.format(per="tensor"), 1), (128, "bf16", 2)],
)
def test_shared_weights_over_several_segments(tmp_path, heads, key, size):
    """Queries are narrowed once for a task of several segments, and sums are exchanged once."""
    workload = tree((-1, 0, 300), (0, 1, 5), (0, 2, 70), heads=heads, bytes_of_token=576 * size)
    check_shared(tmp_path, heads=heads, key=key, workload=workload)


@pytest.mark.parametrize("per", ["tensor", "head"])
def test_scales_of_stores_of_classes(tmp_path, per):
    """The heads of a class have scales that weights take: warps then share none."""
    sizes = ("--dim=batch=2", "--dim=q_len=1", "--dim=kv_len=100")
    key = E4M3.format(per=per)
    check_shared(tmp_path, *sizes, heads=32, kv_heads="?", store="paged<16>", key=key, **CLASSES)


@pytest.mark.parametrize("page", [16, 64, 128])
@pytest.mark.parametrize("see", ["window(4)", "window(150)"])
def test_halves_in_front_of_a_contracts_first_token(tmp_path, page, see):
    sizes = ("--dim=batch=2", "--dim=q_len=1", "--dim=kv_len=200")
    check_shared(tmp_path, *sizes, store=f"paged<{page}>", see=see, attributes='attn.numerics = "row"')


@pytest.mark.parametrize("key", ["bf16", E4M3.format(per="tensor")])
def test_a_half_behind_the_last_token_is_not_read(tmp_path, key):
    sizes = ("--dim=batch=1", "--dim=q_len=1", "--dim=kv_len=1088", "--blocks=1")
    told = check_shared(tmp_path, *sizes, heads=64, key=key)
    assert float(re.search(r"memory .*: (\S+) times the floor", told).group(1)) < 1.01


# --- Plans ---------------------------------------------------------------------------------------------------


def test_a_plan_counts_each_line_once():
    described = spec(q_heads=16)
    report = attn.check(described, batch=1, q_len=1, kv_len=128)
    assert report.plan["kv_bytes"] == 128 * 576 * 2
    # Queries, lines and outputs; tables and the plan itself are little beside them.
    least = 128 * 576 * 2 + 16 * 576 * 2
    assert least <= report.counters["bytes_read"] <= 1.05 * least


@pytest.mark.parametrize("heads", (16, 128))
def test_one_long_sequence_keeps_all_blocks_busy(heads):
    kernel = attn.compile(spec(Paged(page_size=64, value=first(512)), q_heads=heads), device="host")
    tokens = 65536
    batch = {
        "q": ("bfloat16", (1, heads, 576)),
        "q_start": [0, 1],
        "kv.k_pages": ("bfloat16", (tokens // 64, 64, 1, 576)),
        "kv.lengths": [tokens],
        "kv.block_table": numpy.arange(tokens // 64, dtype=numpy.int32)[None],
    }
    assert kernel.plan(batch, blocks=132).stats["blocks"] >= 120


def test_strided_lines():
    """Lines of 576 features in rows of 640, as an engine may pad them."""
    described = spec(Paged(page_size=16, value=first(512)), q_heads=4)
    tensors = attn.sample(described, batch=2, q_len=1, kv_len=40)
    pages = tensors["kv.k_pages"]
    wide = numpy.zeros((*pages.shape[:-1], 640), pages.dtype)
    wide[..., :576] = pages
    kernel = attn.compile(described, device="host")
    plan = kernel.plan(tensors)
    dense = kernel.run(tensors["q"], (pages,), plan)
    assert numpy.array_equal(kernel.run(tensors["q"], (wide[..., :576],), plan), dense)


def test_a_plan_of_the_device():
    described = spec(q_heads=16, device_plan=True, numerics="row")
    tensors = attn.sample(described, batch=3, q_len=1, kv_len=(5, 90, 40))
    kernel = attn.compile(described, device="host")
    host = kernel.run(tensors["q"], (tensors["kv.k_pages"],), kernel.plan(tensors))
    planner = kernel.device_planner(tensors)
    tables = {name: tensors[name] for name in ("kv.lengths", "kv.block_table")}
    plan = planner.plan(tables | {"q_start": numpy.arange(4, dtype=numpy.int32)})
    assert plan.fault == ""
    assert numpy.array_equal(kernel.run(tensors["q"], (tensors["kv.k_pages"],), plan), host)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("rows", [2, 20])
def test_parts_are_folded(rows, target):
    """A block folds the parts of a long row, of 4,096 tokens each; warps that share rows share their LSEs."""
    described = spec(Paged(page_size=64, value=first(512)), q_heads=4, numerics="row")
    report = attn.check(described, batch=1, q_len=rows, kv_len=8300, blocks=1, target=target)
    assert report.right


def test_values_are_no_operand():
    described = spec(q_heads=4)
    tensors = attn.sample(described, batch=1, q_len=1, kv_len=20)
    assert [name for name in tensors if "pages" in name] == ["kv.k_pages"]
    kernel = attn.compile(described, device="host")
    pages = tensors["kv.k_pages"]
    with pytest.raises(attn.TensorError):
        kernel.run(tensors["q"], (pages, pages), kernel.plan(tensors))


# --- A cache of lines ----------------------------------------------------------------------------------------

ROWS, SLOTS = "tensor<?x?x1x576xbf16>", "tensor<?xi32>"
CACHE = "!attn.kv<{store}, heads = 1, dim = 576, key = bf16, value = first<512>>"
OPERATIONS = {
    "append": f"""func.func @append(%k: {ROWS} {{attn.name = "k"}}, %kv: !cache {{attn.name = "kv"}},
                                 %slots: {SLOTS} {{attn.name = "slots"}}) {{
  attn.append %k to %kv at %slots : {ROWS}, !cache, {SLOTS}
  return
}}""",
    "gather": f"""func.func @gather(%kv: !cache {{attn.name = "kv"}},
                                 %slots: {SLOTS} {{attn.name = "slots"}}) -> {ROWS} {{
  %k = attn.gather %kv at %slots : !cache, {SLOTS} -> {ROWS}
  return %k : {ROWS}
}}""",
    "move": f"""func.func @move(%kv: !cache {{attn.name = "kv"}}, %from: {SLOTS} {{attn.name = "from"}},
                               %to: {SLOTS} {{attn.name = "to"}}) {{
  attn.move %kv from %from to %to : !cache, {SLOTS}, {SLOTS}
  return
}}""",
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("store", ["paged<16>", "packed"])
def test_lines_are_written_once(operation, store):
    """Append, gather and move copy lines of 576 features to the bit, and move no bytes twice."""
    text = f"!cache = {CACHE.format(store=store)}\n{OPERATIONS[operation]}\n"
    command = [program("attn-run"), "-", "--dim", "rows=37", "--dim", "layers=3", "--check"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr + result.stdout
    assert (
        "0 races, 0 uninitialized, 0 out of bounds" in result.stdout and "right: every bit" in result.stdout
    )
