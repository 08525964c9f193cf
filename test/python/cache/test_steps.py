# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that are captured once: replays against eager runs, legal replays, and refusals beyond the capacity."""

import attn
import numpy
import oracle
import pytest
import step_script
from attn.cache.batch import row_groups
from paged_model import DIM, KV_HEADS, LAYERS, Q_HEADS, Model, draw, make, spec
from step_script import DRAFTS, ROWS, SEQUENCES, TOKENS

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")

WITH_DRAFTS = dict(
    kv=[attn.Paged(name="kv"), attn.Paged(name="draft", page_size=1)], device_plan=True, numerics="row"
)


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(**WITH_DRAFTS), device="host")


class Launches:
    """Launches of two layers over buffers at fixed addresses."""

    def __init__(self, kernel, cache, **capacity):
        named = dict(sequences=SEQUENCES, rows=ROWS, tokens=TOKENS, drafts=DRAFTS) | capacity
        self.kernel, self.cache = kernel, cache
        self.steps = cache.steps(kernel, **named)
        rows = self.steps.rows
        self.q, self.out = (numpy.zeros((LAYERS, rows, Q_HEADS, DIM), numpy.float16) for _ in range(2))
        self.k, self.v = (numpy.zeros((LAYERS, rows, KV_HEADS, DIM), numpy.float16) for _ in range(2))

    def __call__(self):
        plan = self.steps.plan()
        for layer in range(LAYERS):
            self.steps.write(layer, self.k[layer], self.v[layer])
            self.kernel.run(self.q[layer], self.cache.layer(layer), plan, out=self.out[layer])


def run_eagerly(kernel, cache, groups, q):
    """Return outputs [layers, rows, …] in the order of the groups."""
    out = numpy.zeros_like(q)
    first, begins = 0, {}
    for node, rows, draft in groups:
        begins[node] = first
        first += rows + (cache.draft_tokens(node) if draft else 0)
    for batch in step_script.alone(cache, groups):
        rows = [
            begins[node] + i
            for node, count, draft in batch
            for i in range(count + (cache.draft_tokens(node) if draft else 0))
        ]
        plan = kernel.plan(cache.batch(batch))
        for layer in range(LAYERS):
            out[layer, rows] = kernel.run(numpy.ascontiguousarray(q[layer, rows]), cache.layer(layer), plan)
    return out


def test_replays_are_eager_runs_to_the_bit(kernel):
    cache, eager = make(draft_page=1), make(draft_page=1)
    launches = Launches(kernel, cache)
    captured = launches.steps.capture(launches)
    device, rng = attn.memory.devices.get_device("host"), numpy.random.default_rng(7)
    nodes, eager_nodes, arguments = {}, {}, set()
    for step in step_script.script(7, 50):
        step_script.change(cache, nodes, step)
        step_script.change(eager, eager_nodes, step)
        new = step_script.tell(launches.steps, nodes, step)
        for buffer in (launches.q, launches.k, launches.v):
            buffer[:] = draw(rng, *buffer.shape)
        launches.out[:] = 7
        captured.replay()
        work = device.work()
        arguments.add(work["arguments"])
        assert work["copies"] == work["allocations"] == 0 and launches.steps.fault == ""
        step_script.write(eager, eager_nodes, step, launches.k, launches.v, numpy.ascontiguousarray)
        groups = step_script.requests(eager_nodes, step)
        expected = run_eagerly(kernel, eager, groups, numpy.ascontiguousarray(launches.q[:, :new]))
        assert expected.tobytes() == launches.out[:, :new].tobytes()
        assert (launches.out[:, new:] == 7).all()
    assert len(arguments) == 1  # every launch had the captured arguments


def test_trees_of_drafts(kernel):
    """Each chain is a sequence, whose rows see the path to them."""
    cache = make(draft_page=1)
    model, launches = Model(cache), Launches(kernel, cache)
    captured = launches.steps.capture(launches)
    a, b = model.add(), model.add()
    model.append([a, b], [37, 20])
    parents = [-1, 0, 1, 0, 3, -1]
    launches.steps.speculate(a, parents)
    tokens = model.tokens(len(parents))
    model.drafts[a] = parents, tokens
    for part, buffer in enumerate((launches.k, launches.v)):
        buffer[:, : len(parents)] = tokens[:, :, part].swapaxes(0, 1)
    launches.q[:] = draw(model.rng, *launches.q.shape)
    assert launches.steps.update([b, (a, 2, True)]) == 9
    captured.replay()
    rows = [(b, -1, 0), (a, -1, 1), (a, -1, 0), *((a, token, 0) for token in range(6))]
    for row, (node, token, before) in enumerate(rows):
        seen = held(model, node, token)
        seen = seen[: len(seen) - before]
        for layer in range(LAYERS):
            expected, _ = oracle.attend(launches.q[layer, row], seen[:, layer, 0], seen[:, layer, 1])
            assert oracle.error(launches.out[layer, row], expected) < 2e-3, (row, layer)


def held(model, node, token):
    """Return a sequence's own tokens, and those of its draft on the path to one token."""
    own = model.held[node][1]
    if token < 0:
        return own
    parents, tokens = model.drafts[node]
    path = []
    while token >= 0:
        path.insert(0, token)
        token = parents[token]
    return numpy.concatenate([own, tokens[path]])


def test_codes_are_written_by_captured_launches():
    of_codes = spec(kv=[attn.Paged(key="int8", value="int4")], device_plan=True, numerics="row")
    kernel = attn.compile(of_codes, device="host")
    caches = [make(key="int8", value="int4") for _ in range(2)]
    launches = Launches(kernel, caches[0], drafts=0)
    captured = launches.steps.capture(launches)
    rng = numpy.random.default_rng(3)
    node, eager = (cache.add() for cache in caches)
    for count in (20, 1, 7):
        for buffer in (launches.q, launches.k, launches.v):
            buffer[:] = draw(rng, *buffer.shape)
        launches.steps.append(node, count)
        launches.steps.update([(node, count)])
        captured.replay()
        k, v = (numpy.ascontiguousarray(x[:, :count]) for x in (launches.k, launches.v))
        caches[1].append(eager, count).write_all(k, v)
        expected = run_eagerly(kernel, caches[1], [(eager, count, False)], launches.q[:, :count])
        assert expected.tobytes() == launches.out[:, :count].tobytes()


def test_learned_sinks():
    """Sink logits of each head are given with the run, as in eager runs."""
    kernel = attn.compile(spec(kv=[attn.Paged()], device_plan=True, sink_logits=True), device="host")
    cache = make()
    steps = cache.steps(kernel, sequences=2, rows=2, tokens=TOKENS)
    rng = numpy.random.default_rng(2)
    nodes = [cache.add(), cache.add()]
    cache.append(nodes, [20, 40]).write_all(*(draw(rng, LAYERS, 60, KV_HEADS, DIM) for _ in range(2)))
    q, k, v = (draw(rng, 2, heads, DIM) for heads in (Q_HEADS, KV_HEADS, KV_HEADS))
    sinks = rng.normal(size=Q_HEADS).astype(numpy.float32)
    steps.append(nodes)
    steps.update(nodes)
    plan = steps.plan()
    found = []
    for layer in range(LAYERS):
        steps.write(layer, k, v)
        found.append(kernel.run(q, cache.layer(layer), plan, sink_logits=sinks))
    steps.ran()
    eager = kernel.plan(cache.batch(nodes))
    for layer, out in enumerate(found):
        expected = kernel.run(q, cache.layer(layer), eager, sink_logits=sinks)
        assert oracle.error(out, expected.astype(numpy.float64)) < 2e-3
        assert oracle.error(out, kernel.run(q, cache.layer(layer), eager, sink_logits=sinks + 3)) > 0.1


def test_pages_of_pruned_nodes_are_left_alone(kernel):
    """New tokens of a node that is pruned before the step are not written, and its pages may belong to another node."""
    cache = make(draft_page=1)
    launches = Launches(kernel, cache)
    a, b = cache.add(), cache.add()
    launches.steps.append(a, 16)
    cache.prune(a)
    launches.steps.append(b, 8)
    launches.steps.update([(b, 8)])
    listed = numpy.asarray(launches.steps.tables["new_tokens"])
    assert listed[0] == 24 and (listed[8:24] == -1).all() and (listed[24:32] == cache.slots(b)).all()


# --- Refusals ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(kernel):
    cache = make(draft_page=1)
    return cache, cache.steps(kernel, sequences=2, rows=8, tokens=32, drafts=2)


def refuse(match, call, *arguments, **named):
    with pytest.raises(attn.PlanError, match=match):
        call(*arguments, **named)


def test_what_has_no_room(small):
    cache, steps = small
    nodes = [cache.add() for _ in range(3)]
    refuse(
        "new tokens: 9 in a step where there is room for 8; nearest legal: 8 here", steps.append, nodes[0], 9
    )
    refuse("new tokens: 9 in a step", steps.append, nodes, 3)
    assert [cache.tokens(node) for node in nodes] == [0, 0, 0]
    for node in nodes:
        cache.append(node, 4).skip()
    refuse("3 sequences up to here where there is room for 2; nearest legal: 2", steps.update, nodes)
    cache.append(nodes[0], 8).skip()
    refuse(
        r"requests\[1\]: the step has 12 rows up to here where", steps.update, [(nodes[1], 4), (nodes[0], 8)]
    )
    cache.append(nodes[0], 21).skip()
    refuse(r"requests\[0\]: node \d has 33 tokens where there is room for 32", steps.update, [nodes[0]])
    refuse("expected 1 to 4 rows on the tokens", steps.update, [(nodes[1], 5)])
    assert steps.update([(nodes[1], 4), nodes[2]]) == 5
    cache.prune(nodes[2])
    refuse("was pruned", steps.update, [nodes[2]])


def test_requests_of_any_whole_numbers(small):
    """The extension reads integers of Python in one pass; other integers and wrong values are read one by one."""
    cache, steps = small
    a, b = cache.add(), cache.add()
    cache.append(numpy.array([a, b]), numpy.array([3, 2])).skip()
    tables = []
    for requests in (
        [(a, 3), b],
        ([a, 3], numpy.int64(b)),
        (each for each in [(numpy.uint32(a), 3, False), (b, 1)]),
    ):
        assert steps.update(requests) == steps.used_rows == 4
        tables.append(numpy.array(steps._memory))
    assert (tables[0] == tables[1]).all() and (tables[0] == tables[2]).all()
    refuse(
        r"requests\[1\]: expected a node, \(node, rows\) or \(node, rows, draft\), got True",
        steps.update,
        [a, True],
    )
    refuse(r"requests\[1\]: .* got tuple", steps.update, [a, (b, 1, 1)])
    refuse("requests: expected a sequence", steps.update, a)
    assert steps.used_rows == 4
    refuse("tokens: expected one number, or one for each of 2 nodes, got 3", cache.append, [a, b], [1, 1, 1])
    refuse("append: expected whole numbers, got True", cache.append, [a, True])
    refuse("append: expected whole numbers, got -1", steps.append, [a, -1])
    refuse("tokens: expected a whole number from 0 to 2147483647, got 1.5", steps.append, [a, b], [1, 1.5])
    assert (cache.tokens(a), cache.tokens(b)) == (3, 2)
    steps.append((node for node in (a, numpy.int64(b))), (numpy.uint8(count) for count in (1, 2)))
    assert (cache.tokens(a), cache.tokens(b)) == (4, 4)


def test_tables_that_go_elsewhere_go_whole(small):
    """An update copies all tables to a new destination, which has none of the last update's."""
    cache, steps = small
    nodes = [cache.add(), cache.add()]
    cache.append(nodes, [16, 5]).skip()
    here, there = (numpy.zeros(steps.nbytes // 4 + 16, numpy.int32) for _ in range(2))
    here, there = (each[-(each.ctypes.data // 4) % 16 :][: steps.nbytes // 4] for each in (here, there))

    def update(memory):
        steps._native.update(cache._native, row_groups(nodes), memory.ctypes.data, memory.nbytes)

    first, count = steps._native.places["kv.block_table"]
    update(here)
    update(there)
    assert here.any() and (here == there).all()
    here[first : first + count] = -1
    update(here)
    assert (here == there).all()
    here[first : first + count] = -1
    cache.append(nodes[1], 1).skip()
    update(here)
    assert (here[first : first + count] == -1).all()  # no page was added
    cache.append(nodes[0], 1).skip()
    update(here)
    assert list(here[first : first + 2]) == list(cache.slots(nodes[0])[[0, -1]] // cache.page_size)


def test_what_the_device_does_not_plan(small, kernel):
    cache, steps = small
    a = cache.add()
    cache.append(a, 5).skip()
    children = cache.branch(a, 2)
    cache.append(children, 1).skip()
    refuse(
        "below node 1, whose 5 tokens do not fill their pages.*fork instead of branch", steps.update, children
    )
    b = cache.add()
    cache.append(b, 5).skip()
    steps.speculate(b, [-1, 2, 0])
    refuse(
        "token 2 of the draft of node 4 is the only child of token 0 and was not given",
        steps.update,
        [(b, 1, True)],
    )
    c = cache.add()
    cache.append(c, 1).skip()
    steps.speculate(c, [-1, 0, 1])
    refuse(
        "a path of the draft of node 5 has 3 tokens where there is room for 2", steps.update, [(c, 1, True)]
    )
    refuse("drafts: expected 1 or more", make(draft_page=1).steps, kernel, sequences=2, rows=8, tokens=32)
    refuse(
        "rows: expected at most sequences \\* tokens, 2", cache.steps, kernel, sequences=2, rows=8, tokens=1
    )
    plain = attn.compile(spec(device_plan=True), device="host")
    cache = make()
    steps = cache.steps(plain, sequences=2, rows=8, tokens=32)
    a = cache.add()
    cache.append(a, 5).skip()
    steps.speculate(a, [-1])
    refuse("no operand shows drafts", steps.update, [(a, 1, True)])
    refuse(
        "device_plan=True", make().steps, attn.compile(spec(), device="host"), sequences=2, rows=8, tokens=32
    )


def test_new_tokens_are_written_before_they_are_copied(small):
    cache, steps = small
    a = cache.add()
    steps.append(a, 3)
    refuse("was not run", cache.fork, a)
    refuse("was not run", cache.truncate, a, 1)
    steps.update([(a, 3)])
    refuse("was not run", cache.fork, a)
    refuse("the 3 new tokens of the last update were not written", steps.update, [(a, 1)])
    refuse("3 new tokens in the tables of a step were not written", cache.prune, a)
    refuse("in other tables", cache.steps(steps.kernel, sequences=1, rows=1, tokens=32, drafts=1).append, a)
    steps.ran()
    cache.fork(a)
    change = cache.append(a, 1)
    k = draw(numpy.random.default_rng(0), 1, KV_HEADS, DIM)
    change.write(0, k, k)
    refuse("some of its layers were written", steps.take, change)


@pytest.mark.parametrize("change", ["append", "truncate", "prune"])
def test_a_replay_a_step_behind_is_refused(kernel, change):
    """A replay after a change of the cache is refused, since its tables are those before the change."""
    cache = make(draft_page=1)
    launches = Launches(kernel, cache)
    captured = launches.steps.capture(launches)
    node, other = cache.add(), cache.add()
    launches.steps.append([node, other], [9, 5])
    launches.steps.update([node])
    captured.replay()
    launches.steps.append([other], [3])
    launches.steps.update([node])
    cache_change = {
        "append": lambda: cache.append([node], [1]).skip(),
        "truncate": lambda: cache.truncate(node, 1),
        "prune": lambda: cache.prune(node),
    }[change]
    captured.replay()
    cache.prune(other)
    captured.replay()
    cache_change()
    said = {"append": "has gained tokens", "truncate": "has lost tokens", "prune": "was pruned"}[change]
    for _ in range(2):
        refuse(f"replay: node .* {said} since: update the steps first", captured.replay)
    again = cache.add() if change == "prune" else node
    launches.steps.append([again], [1])
    launches.steps.update([again])
    captured.replay()


def test_a_function_that_is_no_graph_is_refused(kernel):
    cache = make(draft_page=1)
    launches, extra = Launches(kernel, cache), []

    def more():
        launches()
        for each in extra:
            each()

    captured = launches.steps.capture(more)
    a = cache.add()
    launches.steps.append(a, 3)
    launches.steps.update([(a, 3)])
    extra.append(launches)
    refuse("8 launches, other ones than the 4|launches, other ones than", captured.replay)
    extra[0] = lambda: kernel.plan(cache.batch([a]))
    refuse("allocations on the device|copies on the device", captured.replay)
    extra.clear()
    captured.replay()


def test_tokens_that_were_taken_back_are_in_no_table(small):
    cache, steps = small
    a = cache.add()
    change = cache.append(a, 4)
    cache.rollback()
    refuse("were taken back", steps.take, change)
    steps.append(a, 2)
    steps.update([(a, 2)])
    assert int(steps.tables["new_tokens"][0]) == 2
