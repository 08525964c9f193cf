"""PagedCache against lists of tokens: whatever happens to sequences, attention sees what they hold."""

import random

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.paged import CacheClass, PagedCache  # noqa: E402

LAYERS, KV_HEADS, Q_HEADS, DIM = 2, 2, 4, 64


def spec(**changes):
    given = dict(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", kv=[attn.Paged()])
    return attn.Spec(**(given | dict(see=attn.causal(), name="decode") | changes))


def make(**changes):
    given = dict(layers=LAYERS, pages=64, kv_heads=KV_HEADS, head_dim=DIM, dtype="float16", device="host")
    return PagedCache(**(given | changes))


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


def raw(memory):
    """Bytes of an array or of a tensor: which it is depends on whether PyTorch was imported."""
    return numpy.asarray(memory).tobytes()


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(numpy.float16)


class Model:
    """A cache beside plain lists of what each node holds."""

    def __init__(self, cache, seed=0):
        self.cache, self.rng = cache, numpy.random.default_rng(seed)
        self.held = {}  # node: (parent, keys and values of its own tokens [tokens, layers, 2, heads, dim])
        self.drafts = {}  # leaf: (parents, tokens)

    def tokens(self, count):
        return draw(self.rng, count, LAYERS, 2, KV_HEADS, DIM)

    def write(self, change, tokens):
        for layer in range(LAYERS):
            k, v = (numpy.ascontiguousarray(tokens[:, layer, part]) for part in (0, 1))
            change.write(layer, k, v)

    def add(self):
        node = self.cache.add()
        self.held[node] = (None, self.tokens(0))
        return node

    def append(self, nodes, counts):
        new = [self.tokens(count) for count in counts]
        self.write(self.cache.append(nodes, counts), numpy.concatenate(new))
        for node, tokens in zip(nodes, new, strict=True):
            parent, own = self.held[node]
            self.held[node] = parent, numpy.concatenate([own, tokens])

    def branch(self, node, children):
        for child in self.cache.branch(node, children):
            self.held[child] = node, self.tokens(0)

    def fork(self, leaf):
        twin = self.cache.fork(leaf)
        self.held[twin] = self.held[leaf]
        return twin

    def prune(self, node):
        self.cache.prune(node)
        self.held = {n: held for n, held in self.held.items() if self.cache.contains(n)}

    def speculate(self, leaf, parents):
        tokens = self.tokens(len(parents))
        self.write(self.cache.speculate(leaf, parents), tokens)
        self.drafts[leaf] = parents, tokens

    def chain(self, leaf, token):
        """The draft's tokens on the path to one of them."""
        parents, tokens = self.drafts[leaf]
        found = []
        while token >= 0:
            found.insert(0, tokens[token])
            token = parents[token]
        return numpy.array(found).reshape(-1, LAYERS, 2, KV_HEADS, DIM)

    def commit(self, leaf, token):
        self.cache.commit(leaf, token)
        parent, own = self.held[leaf]
        self.held[leaf] = parent, numpy.concatenate([own, self.chain(leaf, token)])
        del self.drafts[leaf]

    def path(self, node):
        parent, own = self.held[node]
        return own if parent is None else numpy.concatenate([self.path(parent), own])

    def leaves(self):
        parents = {parent for parent, _ in self.held.values()}
        return [node for node in self.held if node not in parents]

    def expected(self, requests, q, layer):
        row, results = 0, []
        for request in requests:
            node, rows, draft = (
                (*request, False, False)[:3] if isinstance(request, tuple) else (request, 1, False)
            )
            path = self.path(node)
            seen = [path[: len(path) - rows + 1 + i] for i in range(rows)]
            if draft:
                seen += [
                    numpy.concatenate([path, self.chain(node, token)])
                    for token in range(len(self.drafts[node][0]))
                ]
            for tokens in seen:
                results.append(oracle.attend(q[row], tokens[:, layer, 0], tokens[:, layer, 1]))
                row += 1
        assert row == len(q)
        return numpy.array([o for o, _ in results]), numpy.array([lse for _, lse in results])

    def check(self, kernel, requests, batch=None, plan=None):
        batch = batch or self.cache.batch(requests)
        plan = plan or kernel.plan(batch)
        q = draw(self.rng, batch.rows, Q_HEADS, DIM)
        for layer in range(LAYERS):
            o, lse = kernel.run(q, self.cache.layer(layer), plan, return_lse=True)
            expected, of_rows = self.expected(requests, q, layer)
            assert oracle.error(o, expected) < 2e-3
            assert numpy.abs(lse - of_rows).max() < 2e-3
        return batch, plan


def test_prompts_then_decoding(kernel):
    """One batch and one plan, updated from step to step."""
    model = Model(make())
    nodes = [model.add() for _ in range(3)]
    model.append(nodes, [37, 5, 16])
    model.check(kernel, [(nodes[0], 37), (nodes[1], 5), (nodes[2], 16)])
    batch = plan = None
    for step in range(20):
        model.append(nodes, [1, 1, 1])
        if batch:
            batch.update()
            plan.update()
        if step % 5 == 0 or step == 19:
            batch, plan = model.check(kernel, nodes, batch, plan)


def test_rows_come_in_the_users_order(kernel):
    """Two branches of each of two prompts, named in an order that is not depth first."""
    model = Model(make())
    first, second = model.add(), model.add()
    model.append([first, second], [20, 33])
    model.branch(first, 2)
    model.branch(second, 2)
    a, b, c, d = model.leaves()
    model.append([a, b, c, d], [3, 4, 5, 6])
    requests = [a, c, b, d]
    batch, plan = model.check(kernel, requests)
    user_row, batch_row = batch.user_row(kernel), batch.batch_row(kernel)
    assert user_row.tolist() != [0, 1, 2, 3] and sorted(user_row) == [0, 1, 2, 3]
    assert user_row[batch_row].tolist() == [0, 1, 2, 3]
    # In the batch's own order nothing is copied: the caller gathers.
    q = draw(model.rng, 4, Q_HEADS, DIM)
    o = kernel.run(q, model.cache.layer(0), plan)
    of_batch = kernel.run(numpy.ascontiguousarray(q[user_row]), model.cache.layer(0), plan, rows="batch")
    assert numpy.array_equal(o[user_row], of_batch)
    out, lse = numpy.empty_like(q), numpy.empty((4, Q_HEADS), numpy.float32)
    assert kernel.run(q, model.cache.layer(0), plan, out=out, lse=lse) is out
    assert numpy.array_equal(out, o)
    with pytest.raises(attn.TensorError, match=r"out: expected float16 \[4, 4, 64\], got float32"):
        kernel.run(q, model.cache.layer(0), plan, out=out.astype(numpy.float32))


def test_drafts_are_verified_and_committed(kernel):
    model = Model(make())
    node, other = model.add(), model.add()
    model.append([node, other], [19, 40])
    model.speculate(node, [-1, 0, 0, 2, -1])
    assert model.cache.draft_tokens(node) == 5
    model.check(kernel, [(node, 1, True), other])
    model.commit(node, 3)
    assert model.cache.tokens(node) == 22
    model.append([node], [1])
    model.check(kernel, [node, other])


def test_drafts_in_pages_of_one():
    """An operand of their own over the same memory."""
    kernel = attn.compile(
        spec(kv=[attn.Paged(name="nodes"), attn.Paged(name="drafts", page_size=1)]), device="host"
    )
    model = Model(make(draft_page=1))
    node = model.add()
    model.append([node], [21])
    before = model.cache.free_pages()
    model.speculate(node, [-1, -1, -1, 0, 1, 1])
    model.check(kernel, [(node, 2, True)])
    model.commit(node, 5)
    assert model.cache.free_pages() >= before - 1
    model.check(kernel, [(node, 3)])


def test_forks_go_on_alone(kernel):
    model = Model(make())
    node = model.add()
    model.append([node], [21])
    twin = model.fork(node)
    model.append([node, twin], [3, 14])
    model.check(kernel, [node, twin])


@pytest.mark.parametrize("seed", range(4))
def test_any_history(kernel, seed):
    model, chance = Model(make(pages=40), seed), random.Random(seed)
    model.add()
    for _ in range(30):
        leaves = model.leaves()
        free = [leaf for leaf in leaves if leaf not in model.drafts]
        act = chance.choice(
            ["add", "append", "append", "append", "branch", "fork", "prune", "speculate", "commit", "check"]
        )
        pages = model.cache.free_pages()
        held = dict(model.held)
        try:
            if act == "add":
                model.add()
            elif act == "append" and free:
                nodes = chance.sample(free, chance.randint(1, len(free)))
                model.append(nodes, [chance.randint(1, 40) for _ in nodes])
            elif act == "branch" and free:
                model.branch(chance.choice(free), chance.randint(1, 3))
            elif act == "fork" and free:
                model.fork(chance.choice(free))
            elif act == "prune" and len(leaves) > 2:
                victim = chance.choice(free or leaves)
                model.prune(victim)
                model.drafts.pop(victim, None)
            elif act == "speculate" and free:
                count = chance.randint(1, 9)
                model.speculate(chance.choice(free), [chance.randint(-1, t - 1) for t in range(count)])
            elif act == "commit" and model.drafts:
                leaf = chance.choice(list(model.drafts))
                model.commit(leaf, chance.randint(-1, len(model.drafts[leaf][0]) - 1))
            elif act == "check":
                rows = [
                    (leaf, chance.randint(1, min(4, len(model.held[leaf][1]))), leaf in model.drafts)
                    for leaf in leaves
                    if len(model.held[leaf][1]) and model.cache.own_tokens(leaf)
                ]
                rows = [(leaf, min(n, model.cache.own_tokens(leaf)), draft) for leaf, n, draft in rows]
                if rows:
                    chance.shuffle(rows)
                    model.check(kernel, rows)
        except attn.OutOfPages as error:
            assert "page" in str(error)
            assert model.cache.free_pages() == pages and model.held.keys() == held.keys(), "changed something"
            free = [leaf for leaf in model.leaves() if leaf not in model.drafts]
            if len(model.held) > 1 and free:
                model.prune(chance.choice(free))
                if not model.held:
                    model.add()
        model.cache._native.check_invariants()


def test_head_classes_have_stores_of_their_own():
    """Streaming heads keep their first and last tokens only; how many there are differs between layers."""
    kernel = attn.compile(
        spec(
            kv_heads=4,
            q_heads=8,
            kv=[
                attn.Paged(name="full", head_class="retrieval"),
                attn.Paged(name="last", head_class="streaming"),
            ],
            heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(4) | attn.recent(16)),
        ),
        device="host",
    )
    classes = [
        CacheClass(name="retrieval", pages=32, heads=[1, 2]),
        CacheClass(name="streaming", pages=16, heads=[3, 2], recent=16, sink=4),
    ]
    cache = make(pages=None, kv_heads=4, classes=classes)
    of_layer = [[1, 0, 1, 1], [0, 1, 1, 0]]
    rng = numpy.random.default_rng(5)
    node, held = cache.add(), []
    for count in (50, 1, 1, 30, 1):
        change = cache.append(node, count)
        k, v = draw(rng, LAYERS, count, 4, DIM), draw(rng, LAYERS, count, 4, DIM)
        held.append((k, v))
        for layer in range(LAYERS):
            change.write(layer, k[layer], v[layer], classes=of_layer[layer])
    q = draw(rng, 1, 8, DIM)
    for layer in range(LAYERS):
        plan = kernel.plan(cache.batch([node], classes=of_layer[layer]))
        o = kernel.run(q, cache.layer(layer), plan)
        k, v = (numpy.concatenate([part[which][layer] for part in held]) for which in (0, 1))
        for head in range(4):
            tokens = numpy.arange(len(k))
            if of_layer[layer][head] == 1:
                tokens = tokens[(tokens < 4) | (tokens > len(k) - 1 - 16)]
            mine = slice(2 * head, 2 * head + 2)
            expected, _ = oracle.attend(q[0, mine], k[tokens, head : head + 1], v[tokens, head : head + 1])
            assert oracle.error(o[0, mine], expected) < 2e-3
    with pytest.raises(attn.PlanError, match="classes: expected the class of each KV head"):
        cache.append(node).write(0, k[:1], v[:1])


def test_bfloat16_in_memory_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kernel = attn.compile(spec(dtype="bfloat16"), device="cpu")
    cache = make(dtype=torch.bfloat16, device=torch.device("cpu"))
    assert cache.layer(1).k.dtype == torch.bfloat16 and cache.layer(1).k.shape == (64, 16, KV_HEADS, DIM)
    k, v = (torch.randn(LAYERS, 40, KV_HEADS, DIM, dtype=torch.bfloat16) for _ in range(2))
    node = cache.add()
    change = cache.append(node, 40)
    slots = change.slots()
    change.write_all(k, v)
    assert torch.equal(cache.layer(1).v.flatten(0, 1)[slots], v[1]), "the pages themselves"
    assert cache.slots(node).tolist() == slots.tolist()
    q = torch.randn(1, Q_HEADS, DIM, dtype=torch.bfloat16)
    o = kernel.run(q, cache.layer(1), kernel.plan(cache.batch([node])))
    expected, _ = oracle.attend(*(x.float().numpy() for x in (q[0], k[1], v[1])))
    assert oracle.error(o[0].float().numpy(), expected) < 8e-3


def test_who_writes_himself_says_so(kernel):
    """Rows scattered by the caller, to the slots that the change names."""
    cache = make()
    node = cache.add()
    change = cache.append(node, 20)
    rng = numpy.random.default_rng(8)
    k, v = (draw(rng, 20, KV_HEADS, DIM) for _ in range(2))
    for pages, rows in ((cache.layer(0).k, k), (cache.layer(0).v, v)):
        numpy.asarray(pages).reshape(-1, KV_HEADS, DIM)[change.slots()] = rows
    change.skip()
    q = draw(rng, 1, Q_HEADS, DIM)
    o = kernel.run(q, cache.layer(0), kernel.plan(cache.batch([node])))
    assert oracle.error(o[0], oracle.attend(q[0], k, v)[0]) < 2e-3


def test_one_plan_serves_layers_whose_heads_have_other_classes():
    kernel = attn.compile(
        spec(
            kv_heads=4,
            q_heads=8,
            heads=attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(4) | attn.recent(16)),
        ),
        device="host",
    )
    cache = make(kv_heads=4)
    rng = numpy.random.default_rng(6)
    node = cache.add()
    k, v = draw(rng, LAYERS, 60, 4, DIM), draw(rng, LAYERS, 60, 4, DIM)
    cache.append(node, 60).write_all(k, v)
    plan = kernel.plan(cache.batch([node], classes=[0, 1, 1, 0]))
    q = draw(rng, 1, 8, DIM)
    for classes in (None, [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]):
        o = kernel.run(q, cache.layer(1), plan, classes=classes)
        for head, of_class in enumerate(classes or [0, 1, 1, 0]):
            tokens = numpy.arange(60)
            if of_class:
                tokens = tokens[(tokens < 4) | (tokens > 59 - 16)]
            mine = slice(2 * head, 2 * head + 2)
            expected, _ = oracle.attend(
                q[0, mine], k[1][tokens, head : head + 1], v[1][tokens, head : head + 1]
            )
            assert oracle.error(o[0, mine], expected) < 2e-3
    with pytest.raises(attn.TensorError, match="classes: expected as many heads of each class"):
        kernel.run(q, cache.layer(1), plan, classes=[0, 0, 0, 1])


def test_kernels_write_what_copies_write():
    """The way a GPU's cache is written, on the host device."""
    from attn.pages import _Mover

    rng = numpy.random.default_rng(1)
    caches = [make(), make()]

    def through_kernels(run):
        def move(movement, head_class, layer, layers, rows, stream):
            mover = run._kernels.setdefault((layer, layers), _Mover(run, head_class, layer, layers))
            mover.execute(movement, rows, stream)

        return move

    for run in caches[1]._runs[0]:
        run.move = through_kernels(run)
        run.k[:], run.v[:] = caches[0]._runs[0][0].k, caches[0]._runs[0][0].v
    tokens = draw(rng, LAYERS, 100, KV_HEADS, DIM)
    for cache in caches:
        node = cache.add()
        change = cache.append(node, 21)
        for layer in range(LAYERS):
            change.write(layer, tokens[layer, :21], tokens[layer, 21:42])
        twin = cache.fork(node)
        k, v = numpy.ascontiguousarray(tokens[:, :70]), numpy.ascontiguousarray(tokens[:, 30:])
        cache.append([node, twin], [30, 40]).write_all(k, v)
        k, v = numpy.ascontiguousarray(tokens[:, :4]), numpy.ascontiguousarray(tokens[:, 4:8])
        cache.speculate(twin, [-1, 0, 0, 2]).write_all(k, v)
        cache.commit(twin, 3)
    for part in ("keys", "values"):
        for layer in range(LAYERS):
            of_copies, of_kernels = (getattr(cache.layer(layer), part)() for cache in caches)
            assert raw(of_copies) == raw(of_kernels)


# --- What is refused -----------------------------------------------------------------------------------------


def test_exhaustion_changes_nothing():
    cache = make(pages=4)
    node = cache.add()
    cache.append(node, 40).skip()
    with pytest.raises(attn.OutOfPages, match=r"\b1\b.*page"):
        cache.append(node, 30)
    assert cache.tokens(node) == 40 and cache.free_pages() == 1
    with pytest.raises(attn.OutOfPages):
        cache.apply(append=[node], tokens=[8], branch=[(cache.add(), 2, 1)])
    assert cache.tokens(node) == 40 and cache.free_pages() == 1
    cache.append(node, 8).skip()


def test_changes_are_written_before_the_next():
    cache = make()
    node = cache.add()
    change = cache.append(node, 3)
    tokens = numpy.zeros((3, KV_HEADS, DIM), numpy.float16)
    change.write(1, tokens, tokens)
    for act in (lambda: cache.append(node), lambda: cache.fork(node), lambda: cache.prune(node)):
        with pytest.raises(attn.PlanError, match=r"not written in layers \[0\]"):
            act()
    with pytest.raises(attn.PlanError, match=r"written before in layers \[1\]"):
        change.write(1, tokens, tokens)
    change.write(0, tokens, tokens)
    cache.append(node).skip()


@pytest.mark.parametrize(
    "argument,value,message",
    [
        (
            "k",
            numpy.zeros((3, KV_HEADS, DIM), numpy.float32),
            r"k: expected float16 \[3, 2, 64\], got float32",
        ),
        (
            "v",
            numpy.zeros((2, KV_HEADS, DIM), numpy.float16),
            r"v: expected float16 \[3, 2, 64\], got float16 \[2",
        ),
        ("k", numpy.zeros((KV_HEADS, 3, DIM), numpy.float16).transpose(1, 0, 2), "k: expected a contiguous"),
        ("v", None, "v: expected a tensor"),
        ("layer", 2, "layer: expected a number from 0 to 1, got 2; nearest legal: 1"),
        ("layer", -1, "layer: expected a number from 0 to 1, got -1; nearest legal: 0"),
        ("layer", "x", "layer: expected"),
    ],
)
def test_wrong_rows_are_refused_before_anything_moves(argument, value, message):
    cache = make()
    change = cache.append(cache.add(), 3)
    tokens = numpy.ones((3, KV_HEADS, DIM), numpy.float16)
    before = raw(cache._runs[0][0].k), raw(cache._runs[0][0].v)
    with pytest.raises(attn.Error, match=message):
        change.write(**(dict(layer=0, k=tokens, v=tokens) | {argument: value}))
    assert (raw(cache._runs[0][0].k), raw(cache._runs[0][0].v)) == before
    change.write(0, tokens, tokens)


def test_pruned_nodes_stay_refused():
    cache = make()
    node = cache.add()
    cache.prune(node)
    again = cache.add()
    assert node != again and not cache.contains(node)
    for act in (
        cache.append,
        cache.branch,
        cache.fork,
        cache.evict,
        cache.prune,
        cache.tokens,
        cache.children,
    ):
        with pytest.raises(attn.PlanError, match="node"):
            act(node)
    for act in (cache.append, cache.branch, cache.fork, cache.contains):
        for odd in (None, "a", 1.5, -1, 2**63, 2**200, True):
            if act == cache.contains and odd == 2**63:
                continue
            with pytest.raises(attn.PlanError):
                act(odd)


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(pages=0), "pages: expected a whole number from 1"),
        (dict(pages=2**31 - 1, layers=10_000), "cache: .* are not to be had"),
        (dict(pages=2**31), "pages: expected a whole number"),
        (dict(layers=0), "layers"),
        (dict(page_size=48), "page_size: expected a power of two .*nearest legal: 32"),
        (dict(page_size=512), "page_size"),
        (dict(page_size=True), "page_size"),
        (dict(draft_page=3), "draft"),
        (dict(dtype="int8"), "dtype"),
        (dict(kv_heads=-1), "kv_heads"),
        (dict(head_dim=2.5), "head_dim"),
        (dict(pages=None), "pages: give either"),
        (dict(device="tpu"), "device"),
        (dict(pages=None, classes=["a"]), "classes"),
        (
            dict(pages=None, classes=[CacheClass(name="a", pages=1, heads=[1])]),
            "heads: expected a number, or one",
        ),
    ],
)
def test_caches_that_cannot_be(changes, message):
    with pytest.raises(attn.Error, match=message):
        make(**changes)


def test_kernels_of_other_caches_are_refused(kernel):
    cache, other = make(), make()
    node = cache.add()
    cache.append(node, 3).skip()
    plan = kernel.plan(cache.batch([node]))
    q = numpy.zeros((1, Q_HEADS, DIM), numpy.float16)
    with pytest.raises(attn.TensorError, match="another cache"):
        kernel.run(q, other.layer(0), plan)
    for changes, message in (
        (dict(head_dim=128), "head_dim 64, and the cache 128"),
        (dict(kv_heads=4), "kv_heads 2, and the cache 4"),
        (dict(dtype="bfloat16"), "dtype f16, and the cache bf16"),
        (dict(page_size=32), "the kernel's store is paged<16>, and the cache is paged<32>"),
        (
            dict(
                pages=None,
                classes=[CacheClass(name="a", pages=9, heads=2), CacheClass(name="b", pages=9, heads=0)],
            ),
            "shows no class",
        ),
    ):
        odd = make(**changes)
        node = odd.add()
        odd.append(node, 1).skip()
        with pytest.raises(attn.PlanError, match=message):
            kernel.plan(odd.batch([node]))


@pytest.mark.parametrize(
    "requests", [[], [None], ["a"], [(1,)], [(1, -1)], [(1, 1, 1)], [(1, 2**40)], [2**70], [1.5]]
)
def test_odd_requests(kernel, requests):
    cache = make()
    cache.append(cache.add(), 3).skip()
    with pytest.raises(attn.PlanError):
        kernel.plan(cache.batch(requests))


def test_rows_that_are_not_there(kernel):
    cache = make()
    node = cache.add()
    cache.append(node, 3).skip()
    for request in ((node, 4), (node, 1, True), (node, 0)):
        with pytest.raises(attn.PlanError):
            kernel.plan(cache.batch([request]))
    batch = cache.batch([node])
    plan = kernel.plan(batch)
    cache.prune(node)
    with pytest.raises(attn.PlanError, match="pruned"):
        batch.update()
    assert plan.rows == 1
