# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ragged operands: each KV head has its own lengths and pages, in combination with other features."""

import numpy as np
import pytest
from attnlab import ROOT, Problem, attn_run
from tensorlab import DEVICE, generate, launch

SHAPES = [("mma", 1), ("mma", 40), ("wgmma", 40)]
STORES = ["paged<16>", "paged<1>", "dense", "packed"]
HEADS, GROUP, DIM = 4, 2, 64
SEE = "causal and (sink(20) | recent(70))"


def problem(store, see="causal", ragged=True):
    return Problem(GROUP * HEADS, HEADS, DIM, DIM, "f16", store + ", ragged" if ragged else store, see).text()


def write(folder, text, name="problem.mlir"):
    file = folder / name
    file.write_text(text)
    return file


def run(file, folder, tensors, *options):
    status, results, report, errors = launch(file, folder, tensors, *options)
    assert status == 0, errors
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)
    return results, report


def tokens_of(tensors, instance, head, name="kv"):
    """Return the positions of a head's tokens: the index in keys and values without their last two axes."""
    lengths = tensors[f"{name}.lengths"]
    tokens = np.arange(lengths[instance, head] if lengths.ndim == 2 else lengths[instance])
    if f"{name}.k_pages" in tensors:
        page, table = tensors[f"{name}.k_pages"].shape[1], tensors[f"{name}.block_table"][instance]
        return (table[head] if table.ndim == 2 else table)[tokens // page], tokens % page
    if f"{name}.start" in tensors:
        return (tensors[f"{name}.start"][instance] + tokens,)
    return np.full_like(tokens, instance), tokens


def sees(see, q, positions):
    if see == "all":
        return np.full(len(positions), True)
    distance = q - positions
    narrow = (positions < 20) | (distance < 70) if see == SEE else True
    return (distance >= 0) & narrow


def attention(tensors, regions):
    """Compute attention by head over its own lists. `regions`: the visibility of each operand."""
    q = tensors["q"].astype(np.float64)
    o = np.zeros(q.shape)
    for row in range(len(q)):
        for query in range(q.shape[1]):
            head = query // (q.shape[1] // HEADS)
            keys, values = [], []
            for name, see in regions.items():
                pages = "_pages" if f"{name}.k_pages" in tensors else ""
                for i, (first, last) in enumerate(tensors[f"{name}.rows"]):
                    if not first <= row < last:
                        continue
                    place = tokens_of(tensors, i, head, name)
                    positions = tensors[f"{name}.pos0"][i] + np.arange(len(place[0]))
                    seen = sees(see, tensors["q_pos"][row], positions)
                    keys.append(tensors[f"{name}.k{pages}"][place][seen, head].astype(np.float64))
                    values.append(tensors[f"{name}.v{pages}"][place][seen, head].astype(np.float64))
            k, v = np.concatenate(keys), np.concatenate(values)
            if len(k):
                scores = k @ q[row, query] / np.sqrt(q.shape[2])
                weights = np.exp(scores - scores.max())
                o[row, query] = weights @ v / weights.sum()
    return o


def with_rows(tensors, *names):
    """Return the tensors with the rows of instances that are private to a sequence, which files may omit."""
    starts = tensors["q_start"]
    private = np.stack([starts[:-1], starts[1:]], axis=1)
    return dict(tensors, **{f"{name}.rows": tensors.get(f"{name}.rows", private) for name in names})


def close(got, o):
    error = np.linalg.norm(got["o"].astype(np.float64) - o, axis=-1)
    return np.all(error <= 1e-3 * np.linalg.norm(o, axis=-1))


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("see", ["causal", SEE])
@pytest.mark.parametrize("store", STORES)
def test_numpy_agrees(tmp_path, store, see, schedule, q_len):
    file = write(tmp_path, problem(store, see))
    tensors = generate(file, tmp_path, "--dim=batch=3", "--dim=kv_len=0..400", f"--dim=q_len={q_len}")
    lengths = tensors["kv.lengths"]
    assert lengths.shape == (3, HEADS) and len(np.unique(lengths)) > 6
    assert np.array_equal(tensors["q_pos"][tensors["q_start"][1:] - 1] + 1, lengths.max(axis=1))
    got, _ = run(file, tmp_path, tensors, f"--schedule={schedule}", "--shuffle")
    assert close(got, attention(with_rows(tensors, "kv"), {"kv": see}))


@pytest.mark.parametrize("strategy", ["by-query", "by-node", "by-node-chunk", "flatten"])
def test_what_heads_do_not_list_is_not_read(tmp_path, strategy):
    """NaN fills all of the pool except the head's own list, including the slices of other heads' pages."""
    file = write(tmp_path, problem("paged<16>"))
    tensors = generate(file, tmp_path, "--dim=batch=3", "--dim=kv_len=0..900")
    keys = tensors["kv.k_pages"]
    listed = np.zeros(keys.shape[:3], dtype=bool)
    for instance, head in np.ndindex(3, HEADS):
        pages, slots = tokens_of(tensors, instance, head)
        listed[pages, slots, head] = True
    assert np.array_equal(np.isnan(keys).any(axis=-1), ~listed)
    pages = listed.any(axis=1)
    assert (pages.any(axis=1) & ~pages.all(axis=1)).sum() > 10  # pages that some heads use and others do not
    run(file, tmp_path, tensors, f"--strategy={strategy}", "--blocks=11")


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("store", STORES)
def test_equal_heads_are_as_if_they_shared(tmp_path, store, schedule, q_len):
    """A ragged operand whose heads list the same pages equals one with a single list, to the bit."""
    shared = write(tmp_path, problem(store, ragged=False), "shared.mlir")
    own = write(tmp_path, problem(store), "own.mlir")
    tensors = generate(shared, tmp_path, "--dim=batch=3", "--dim=kv_len=100..700", f"--dim=q_len={q_len}")
    ragged = dict(tensors)
    for name in {"kv.lengths", "kv.block_table"} & tensors.keys():
        ragged[name] = np.repeat(tensors[name][:, None], HEADS, axis=1)
    options = [f"--schedule={schedule}", "--fixed-split=1280"]  # multiples of tiles of 64, 128 and 160 keys
    expected, _ = run(shared, tmp_path, tensors, *options)
    got, _ = run(own, tmp_path, ragged, *options)
    for name in ("o", "lse"):
        assert np.array_equal(got[name], expected[name])


@pytest.mark.parametrize("schedule,q_len", SHAPES)
def test_heads_may_trade_places(tmp_path, schedule, q_len):
    """Heads move with their lengths, pages and queries. The split of work may then change, and so rounding,
    and nothing else."""
    file = write(tmp_path, problem("paged<16>"))
    tensors = generate(file, tmp_path, "--dim=batch=2", "--dim=kv_len=0..900", f"--dim=q_len={q_len}")
    first, _ = run(file, tmp_path, tensors, f"--schedule={schedule}", "--fixed-split=1280")
    order = [2, 0, 3, 1]
    queries = [head * GROUP + member for head in order for member in range(GROUP)]
    moved = dict(tensors, q=tensors["q"][:, queries])
    for name in ("kv.lengths", "kv.block_table"):
        moved[name] = tensors[name][:, order]
    for name in ("kv.k_pages", "kv.v_pages"):
        moved[name] = tensors[name][:, :, order]
    second, _ = run(file, tmp_path, moved, f"--schedule={schedule}", "--fixed-split=1280")
    for name in ("o", "lse"):
        assert np.array_equal(first[name][:, queries], second[name])


@pytest.mark.skipif(DEVICE != "host", reason="counters exist on the host device only")
def test_bytes_follow_the_heads(tmp_path):
    """One long head and seven short ones cost as much as their tokens, and blocks are equally busy."""
    file = write(tmp_path, Problem(32, 8, store="paged<16>, ragged").text())
    lengths = write(tmp_path, "tokens\n" + "16000\n" + "600\n" * 7, "lengths.csv")
    status, report, errors = attn_run(
        file, "--check", "--device=host", "--dim=batch=2", f"--dim=kv_len=@{lengths}:tokens", "--blocks=132"
    )
    assert status == 0, errors
    assert report["kv_bytes"] == 2 * (16000 + 7 * 600) * 2 * 128 * 2
    assert report["amplification"] <= 1.03
    assert report["balance"] <= 1.15  # with shares of two or three tiles
    assert report["sector_efficiency"] >= 0.97
    assert report["bank_conflicts"] <= 0.02


# Two kinds of pages, as in DiffKV, a shared prompt, and classes with separate stores.
COMPOSITIONS = {
    "diffkv": (
        """!q = tensor<?x8x64xf16>
!high = !attn.kv<paged<16>, ragged, heads = 4, dim = 64, key = f16, value = f16>
!low = !attn.kv<paged<8>, ragged, heads = 4, dim = 64, key = f16, value = f16>
func.func @f(%q: !q {attn.name = "q"}, %a: !high {attn.name = "high", attn.dims = ["batch", "high_len"]},
             %b: !low {attn.name = "low", attn.dims = ["batch", "low_len"]}) -> (!q, tensor<?x8xf32>) {
  %o, %lse = attn.attend %q over (%a see all), (%b see all) : !q, !high, !low -> !q, tensor<?x8xf32>
  return %o, %lse : !q, tensor<?x8xf32>
}
""",
        {"high": "all", "low": "all"},
        ["--dim=high_len=0..300", "--dim=low_len=0..500"],
    ),
    "prompt": (
        """!q = tensor<?x8x64xf16>
!prompt = !attn.kv<dense, ragged, heads = 4, dim = 64, key = f16, value = f16>
!rest = !attn.kv<paged<16>, heads = 4, dim = 64, key = f16, value = f16>
func.func @f(%q: !q {attn.name = "q"}, %a: !prompt {attn.name = "prompt", attn.dims = ["prompts", "prompt_len"]},
             %b: !rest {attn.name = "rest", attn.dims = ["batch", "kv_len"]}) -> (!q, tensor<?x8xf32>) {
  %o, %lse = attn.attend %q over (%a see all), (%b see causal) : !q, !prompt, !rest -> !q, tensor<?x8xf32>
  return %o, %lse : !q, tensor<?x8xf32>
}
""",
        {"prompt": "all", "rest": "causal"},
        ["--dim=prompt_len=0..2000", "--dim=kv_len=50..90"],
    ),
}


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(tmp_path, name, schedule, q_len):
    text, regions, sizes = COMPOSITIONS[name]
    file = write(tmp_path, text)
    tensors = generate(file, tmp_path, "--dim=batch=5", f"--dim=q_len={q_len}", *sizes)
    tensors = with_rows(tensors, *regions)
    for strategy in ("flatten", "by-query"):
        got, _ = run(file, tmp_path, tensors, f"--schedule={schedule}", f"--strategy={strategy}")
        assert close(got, attention(tensors, regions))


@pytest.mark.parametrize("schedule,q_len", SHAPES)
@pytest.mark.parametrize("store", STORES)
def test_classes(tmp_path, store, schedule, q_len):
    """Ragged stores that all heads share, and stores of a class, one of which may have no heads."""
    duo = "causal heads {retrieval: see all, streaming: see sink(4) | recent(64)}"
    for see in (duo, duo + " apart"):
        file = write(tmp_path, problem(store, see))
        for streaming in (1, 4):
            status, report, errors = attn_run(
                file,
                f"--device={DEVICE}",
                "--check",
                "--dim=batch=3",
                "--dim=kv_len=0..600",
                f"--dim=q_len={q_len}",
                f"--dim=streaming={streaming}",
                f"--schedule={schedule}",
            )
            assert status == 0, errors
            if DEVICE == "host":
                assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@pytest.mark.parametrize("strategy", ["by-query", "by-node", "flatten"])
@pytest.mark.parametrize("draft", ["paged<1>, ragged", "paged<1>"])
def test_trees(tmp_path, draft, strategy):
    """Every node and every draft, with heads that keep some of the tokens."""
    file = write(tmp_path, Problem(16, 4, dtype="f16", store="paged<16>, ragged", draft_store=draft).text())
    trees = ROOT / "examples/08_composed/trees.json"
    status, report, errors = attn_run(
        file, "--check", f"--device={DEVICE}", "--workload", trees, f"--strategy={strategy}"
    )
    assert status == 0, errors
    if DEVICE == "host":
        assert (report["races"], report["uninitialized"], report["out_of_bounds"]) == (0, 0, 0)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    file = write(folder, problem("paged<16>"))
    return file, generate(file, folder, "--dim=batch=2", "--dim=kv_len=100..200")


def edit(name, index, value):
    def change(tensors):
        tensors[name] = tensors[name].copy()
        tensors[name][index] = value

    return change


def replace(name, function):
    def change(tensors):
        tensors[name] = function(tensors[name])

    return change


BAD = {
    "rank of lengths": (
        replace("kv.lengths", lambda lengths: lengths.max(axis=1)),
        ["'kv.lengths': expected shape [kv.instances, 4], got [2]"],
    ),
    "too few heads": (
        replace("kv.lengths", lambda lengths: lengths[:, :3]),
        ["'kv.lengths': expected shape", "4], got [2, 3]"],
    ),
    "rank of the table": (
        replace("kv.block_table", lambda table: table[:, 0]),
        ["'kv.block_table': expected shape", "2, 4, kv.max_pages]"],
    ),
    "length": (edit("kv.lengths", (1, 2), 9999), ["'kv.lengths'[1][2]: expected between 0 and", "9999"]),
    "negative": (edit("kv.lengths", (0, 3), -4), ["'kv.lengths'[0][3]: expected between 0 and", "-4"]),
    "page": (edit("kv.block_table", (1, 3, 2), 9999), ["'kv.block_table'[1][3][2]: expected a page", "9999"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(good, tmp_path, case):
    file, tensors = good
    change, words = BAD[case]
    tensors = dict(tensors)
    change(tensors)
    status, _, _, errors = launch(file, tmp_path, tensors)
    assert status == 2, errors
    for word in words:
        assert word in errors
