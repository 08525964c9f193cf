# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A seeded script of an engine's changes to a cache: requests come and go, prompts are read in chunks beside decoding,
sequences fork, drafts are verified and committed. Each step goes to captured launches and to eager runs."""

import random
from dataclasses import dataclass, field

SEQUENCES, ROWS, TOKENS, DRAFTS = 6, 24, 192, 5


@dataclass
class Step:
    """Changes before the rows of a step, and the rows."""

    commits: list = field(default_factory=list)  # (name, token of the draft or -1)
    leave: list = field(default_factory=list)
    fork: list = field(default_factory=list)  # (name, name of the twin)
    arrive: list = field(default_factory=list)
    rows: list = field(default_factory=list)  # (name, new tokens, tokens of a draft after them)


def script(seed, count):
    """Yield steps within the capacity. Names are those of requests."""
    rng = random.Random(seed)
    tokens, prompts, drafts = {}, {}, {}  # tokens of a request; tokens of its prompt to come; its draft
    names = iter(range(1 << 30))
    for _ in range(count):
        step = Step()
        for name, length in drafts.items():
            kept = rng.randrange(-1, length)
            step.commits.append((name, kept))
            tokens[name] += kept + 1
        drafts.clear()
        for name in list(tokens):
            if rng.random() < 0.04 or tokens[name] > TOKENS - 30:
                step.leave.append(name)
                del tokens[name]
                prompts.pop(name, None)
        ready = [name for name in tokens if name not in prompts]
        if ready and len(tokens) < SEQUENCES and rng.random() < 0.15:
            name, twin = rng.choice(ready), next(names)
            step.fork.append((name, twin))
            tokens[twin] = tokens[name]
        while len(tokens) < SEQUENCES and (not tokens or rng.random() < 0.4):
            name = next(names)
            step.arrive.append(name)
            tokens[name], prompts[name] = 0, rng.randint(1, 90)
        rows, order = ROWS, list(tokens)
        rng.shuffle(order)
        for name in order:
            if rows == 0 or rng.random() < 0.1:  # some requests wait
                continue
            new = min(rows, prompts.get(name, 1), rng.randint(4, 20))
            draft = 0
            if name not in prompts and rows > new and rng.random() < 0.4:
                draft = drafts[name] = min(rows - new, rng.randint(1, DRAFTS))
            elif name in prompts:
                prompts[name] -= new
                if not prompts[name]:
                    del prompts[name]
            step.rows.append((name, new, draft))
            tokens[name] += new
            rows -= new + draft
        yield step


def change(cache, nodes, step):
    """Apply the changes before the step's rows; `nodes` are those of the requests."""
    for name, token in step.commits:
        cache.commit(nodes[name], token)
    for name in step.leave:
        cache.prune(nodes.pop(name))
    for name, twin in step.fork:
        nodes[twin] = cache.fork(nodes[name])
    for name in step.arrive:
        nodes[name] = cache.add()


def requests(nodes, step):
    return [(nodes[name], new, draft > 0) for name, new, draft in step.rows]


def tell(steps, nodes, step):
    """Give the step to the tables of captured launches."""
    steps.append([nodes[name] for name, _, _ in step.rows], [new for _, new, _ in step.rows])
    for name, _, draft in step.rows:
        if draft:
            steps.speculate(nodes[name], list(range(-1, draft - 1)))
    return steps.update(requests(nodes, step))


def write(cache, nodes, step, k, v, contiguous):
    """Write the same tokens of all layers, in the same order, to an eager cache."""
    drafts = [(nodes[name], draft) for name, _, draft in step.rows if draft]
    counts = [new for _, new, _ in step.rows]
    changes = [(lambda: cache.append([nodes[name] for name, _, _ in step.rows], counts), sum(counts))]
    changes += [
        (lambda leaf=leaf, draft=draft: cache.speculate(leaf, list(range(-1, draft - 1))), draft)
        for leaf, draft in drafts
    ]
    first = 0
    for make, count in changes:
        make().write_all(*(contiguous(x[:, first : first + count]) for x in (k, v)))
        first += count


def alone(cache, groups):
    """Return batches in which no two requests share tokens. Tokens that two requests see are an instance that fixed
    splits cut on its own; the tokens of one request's path are one instance."""
    batches = []
    for node, rows, draft in groups:
        roots = {path(cache, node)}
        for batch in batches:
            if not batch[0] & roots:
                batch[0].update(roots)
                batch[1].append((node, rows, draft))
                break
        else:
            batches.append((roots, [(node, rows, draft)]))
    return [batch for _, batch in batches]


def path(cache, node):
    """Return the root above the node."""
    while (above := cache.parent(node)) is not None:
        node = above
    return node
