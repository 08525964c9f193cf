# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PagedCache against lists of tokens: after any history of its sequences, attention sees their tokens."""

from dataclasses import replace

import attn
import numpy
import oracle
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn.cache.state import CacheClass
from paged_model import DIM, KV_HEADS, LAYERS, Q_HEADS, Model, draw, make, raw, spec  # noqa: E402
from seeds import of_seeds  # noqa: E402


@pytest.fixture(scope="module")
def kernel():
    return attn.compile(spec(), device="host")


def test_prompts_then_decoding(kernel):
    """Prompts and decoding steps share one batch and one plan, updated from step to step."""
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
    """Two branches of each of two prompts, named in an order that is not depth-first."""
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
    # Rows in the batch's order are not copied: the caller gathers them.
    q = draw(model.rng, 4, Q_HEADS, DIM)
    o = kernel.run(q, model.cache.layer(0), plan)
    of_batch = kernel.run(numpy.ascontiguousarray(q[user_row]), model.cache.layer(0), plan, rows="batch")
    assert numpy.array_equal(o[user_row], of_batch)
    out, lse = numpy.empty_like(q), numpy.empty((4, Q_HEADS), numpy.float32)
    assert kernel.run(q, model.cache.layer(0), plan, out=out, lse=lse) is out
    assert numpy.array_equal(out, o)
    pages = numpy.asarray(model.cache.layer(0).k).reshape(-1)[: q.size].reshape(q.shape)
    for over in (q, pages):
        with pytest.raises(attn.TensorError, match="out: overlaps '(q|kv.k_pages)'"):
            kernel.run(q, model.cache.layer(0), plan, out=over)
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
    """Drafts in pages of one token are a second operand over the same memory."""
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


SLOPES = numpy.linspace(0.1, 1, Q_HEADS, dtype=numpy.float32)
BIAS = numpy.linspace(-2, 2, 64, dtype=numpy.float32)


@pytest.mark.parametrize(
    "score, tensors",
    [
        (lambda s, h, qi, ki, slopes: s + slopes[h] * (ki - qi), {"slopes": SLOPES}),
        (lambda s, h, qi, ki, bias: s + bias[abs(qi - ki)], {"bias": BIAS}),
        (lambda s, h, qi, ki: numpy.where(ki // 4 == qi // 4, s, s - 9.0), {}),
        (lambda s, h, qi, ki, slopes: s * slopes[h] * (qi * 0.02), {"slopes": SLOPES}),
    ],
    ids=["alibi", "relative bias", "blocks", "of the row's position only"],
)
@pytest.mark.parametrize("strategy", ["flatten", "by-query"])
def test_scores_of_drafts_in_pages_of_one(score, tensors, strategy):
    """A key's position is its place in the sequence, however the planner groups tokens."""
    kernel = attn.compile(
        spec(
            kv=[attn.Paged(name="nodes"), attn.Paged(name="drafts", page_size=1)],
            score=score,
            tensors={name: values.shape for name, values in tensors.items()} or None,
        ),
        device="host",
    )
    model = Model(make(draft_page=1))
    node = model.add()
    model.append([node], [40])
    model.speculate(node, [-1, -1, 0, 0, 1, 2, 4])
    requests = [(node, 0, True)]
    plan = kernel.plan(model.cache.batch(requests), strategy=strategy)

    def of_arrays(s, h, qi, ki):
        return score(s, h, qi, ki, *(values.astype(float) for values in tensors.values()))

    model.check(kernel, requests, plan=plan, score=of_arrays, **tensors)


def test_operands_that_nobody_sees():
    """An operand that no row sees is no part of the batch, whatever its page size is."""
    model = Model(make())
    node = model.add()
    model.append([node], [21])
    for unseen in (attn.Paged(name="a", page_size=1), attn.Paged(name="z")):
        stores = sorted([attn.Paged(name="kv"), unseen], key=lambda store: store.name)
        stores = [replace(store, see=attn.window(0)) if store is unseen else store for store in stores]
        kernel = attn.compile(spec(kv=stores), device="host")
        batch, _ = model.check(kernel, [(node, 2)])
        shown = dict(zip((store.name for store in stores), batch.operands(kernel), strict=True))
        assert shown["kv"] == (0, True, True, 16) and shown[unseen.name] is None


def test_a_plan_of_pages_that_were_given_back(kernel):
    """A plan is refused after one of its nodes is pruned, and after no other change of the cache."""
    model = Model(make())
    a, b, other = model.add(), model.add(), model.add()
    model.append([a, b, other], [40, 21, 30])
    batch, plan = model.check(kernel, [a, b])
    model.prune(other)
    c = model.add()
    model.append([c], [50])
    model.check(kernel, [a, b], batch, plan)
    q = draw(model.rng, 2, Q_HEADS, DIM)
    kernel.run(q, model.cache.layer(0), plan)
    model.prune(b)
    for _ in range(2):
        with pytest.raises(attn.PlanError, match="plan: node .* was pruned since: update the batch"):
            kernel.run(q, model.cache.layer(0), plan)
    with pytest.raises(attn.PlanError, match=r"requests\[1\]: node .* was pruned"):
        model.cache.batch([a, b])
    plan.update(model.cache.batch([a, c]))
    kernel.run(q, model.cache.layer(0), plan)


def test_a_plan_of_a_draft_that_was_committed():
    kernel = attn.compile(
        spec(kv=[attn.Paged(name="nodes"), attn.Paged(name="drafts", page_size=1)]), device="host"
    )
    model = Model(make(draft_page=1))
    node = model.add()
    model.append([node], [21])
    model.speculate(node, [-1, 0, 0])
    _, plan = model.check(kernel, [(node, 0, True)])
    model.commit(node, 1)
    model.append([node], [40])
    with pytest.raises(attn.PlanError, match="plan: node .* has gained tokens since"):
        kernel.run(draw(model.rng, 3, Q_HEADS, DIM), model.cache.layer(0), plan)


@pytest.mark.parametrize("change", ["append", "truncate", "prune"])
def test_a_plan_that_is_a_step_behind(kernel, change):
    """A plan is refused after a change to one of its nodes, also a fixed plan, and also while its pages are not reused."""
    for fixed in (False, True):
        model = Model(make())
        node, other = model.add(), model.add()
        model.append([node, other], [20, 9])
        batch, plan = model.check(kernel, [node])
        if fixed:
            plan.fix()
        model.append([other], [3])
        twin = model.cache.fork(node)
        q = draw(model.rng, 1, Q_HEADS, DIM)
        kernel.run(q, model.cache.layer(0), plan)
        if change == "append":
            model.append([node], [1])
        else:
            getattr(model.cache, change)(*((node, 1) if change == "truncate" else (node,)))
        said = {"append": "has gained tokens", "truncate": "has lost tokens", "prune": "was pruned"}[change]
        with pytest.raises(attn.PlanError, match=f"plan: node .* {said} since"):
            kernel.run(q, model.cache.layer(0), plan)
        plan.update(model.cache.batch([twin]))
        kernel.run(q, model.cache.layer(0), plan)


def test_a_plan_of_a_batch_that_went_on(kernel):
    """A plan is refused after its batch is updated, whether the batch was extended or made anew."""
    for more in (1, 40):
        model = Model(make())
        node = model.add()
        model.append([node], [20])
        batch, plan = model.check(kernel, [node])
        model.append([node], [more])
        batch.update()
        with pytest.raises(attn.PlanError, match="plan: its batch has changed since it was planned"):
            kernel.run(draw(model.rng, 1, Q_HEADS, DIM), model.cache.layer(0), plan)
        plan.update()
        model.check(kernel, [node], batch, plan)


def test_a_fixed_plan_of_sequences_that_grow(kernel):
    """A fixed plan serves growing sequences when its table has enough columns from the start; an error tells when it
    has too few."""
    room = dict(rows=3, groups=3, tokens_per_row=128)
    for columns, limits, refused_at in ((0, room, 11), (8, room, None), (0, room | dict(pages=8), None)):
        model = Model(make())
        nodes = [model.add() for _ in range(3)]
        model.append(nodes, [37, 5, 16])
        batch = model.cache.batch(nodes, max_pages=columns)
        plan = kernel.plan(batch, limits=limits)
        plan.fix()
        for step in range(60):
            model.append(nodes, [1, 1, 1])
            batch.update()
            if step == refused_at:
                with pytest.raises(
                    attn.PlanError, match=r"has room for 3 pages .* up to 4: plan with limits=\{'pages': 4\}"
                ):
                    plan.update()
                break
            plan.update()
            if step % 12 == 0 or step == 59:
                model.check(kernel, nodes, batch, plan)
    for wrong in (-1, 1.5, "8"):
        with pytest.raises(attn.PlanError, match="max_pages: expected a whole number from 0"):
            model.cache.batch(nodes, max_pages=wrong)


def test_a_fixed_plan_says_what_is_missing(kernel):
    """Sequences come and grow after launches were fixed, within the limits and beyond them."""
    model = Model(make())
    nodes = [model.add() for _ in range(4)]
    model.append(nodes, [37, 5, 16, 60])
    room = dict(groups=4, instances=4, pages=4, tokens_per_row=64)
    for missing, less in (("instances", 3), ("pages", 3), (None, 0)):
        first = model.cache.batch([(nodes[1], 3), (nodes[2], 2)])
        plan = kernel.plan(first, limits=room | ({missing: less} if missing else {}))
        plan.fix()
        batch = model.cache.batch([*nodes[:2], (nodes[2], 2), nodes[3]])
        if missing is None:
            plan.update(batch)
            model.check(kernel, [*nodes[:2], (nodes[2], 2), nodes[3]], batch, plan)
            continue
        with pytest.raises(attn.PlanError, match=rf"limits=\{{'{missing}': 4\}} or more"):
            plan.update(batch)


def test_forks_go_on_alone(kernel):
    model = Model(make())
    node = model.add()
    model.append([node], [21])
    twin = model.fork(node)
    model.append([node, twin], [3, 14])
    model.check(kernel, [node, twin])


def test_truncated_sequences_go_on(kernel):
    """Sequences continue after truncation within their own tokens, and into tokens that they share with a twin."""
    model = Model(make())
    node = model.add()
    model.append([node], [41])
    twin = model.fork(node)
    free = model.cache.free_pages()
    model.append([node], [17])
    model.truncate(node, 9)
    model.check(kernel, [node, twin])
    model.truncate(node, 30)  # into the twin's second page of 16 tokens
    assert model.cache.tokens(node) == 19 and model.cache.free_pages() == free
    model.check(kernel, [(node, 3), twin])
    model.append([node, twin], [3, 14])
    model.check(kernel, [node, twin])
    with pytest.raises(attn.PlanError, match="truncation of 23 tokens from node .*: it has 22 tokens"):
        model.cache.truncate(node, 23)


def test_any_history(kernel):
    of_seeds(4, lambda chance: run_history(kernel, chance))


def run_history(kernel, chance):
    model = Model(make(pages=40), chance.randrange(1000))
    model.add()
    for _ in range(30):
        leaves = model.leaves()
        free = [leaf for leaf in leaves if leaf not in model.drafts]
        act = chance.choice(
            ["add", *3 * ["append"], "branch", "fork", "truncate", "prune", "speculate", "commit", "check"]
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
            elif act == "truncate" and free:
                leaf = chance.choice(free)
                if len(model.held[leaf][1]):
                    model.truncate(leaf, chance.randint(1, len(model.held[leaf][1])))
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
    """Streaming heads keep their first and last tokens only; the number of streaming heads differs between layers."""
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
    """The caller scatters rows itself, to the slots that the change names."""
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
    """Kernels, which write a GPU's cache, write on the host device the bytes that copies write."""
    rng = numpy.random.default_rng(1)
    caches = [make(), make()]

    def through_kernels(run):
        def move(movement, head_class, layer, layers, rows, stream):
            run.mover(head_class).execute(movement, layer, layers, rows, stream)

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
