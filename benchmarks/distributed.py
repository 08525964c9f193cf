# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over several GPUs of one machine, beside one of them and beside PyTorch's context_parallel.

  links      bytes a second that a rank sends: all-gather, and to the next rank of a ring
  prefill    128K tokens, causal, forward; every form
  training   64K tokens, causal, forward and backward; every form, and ordered gradients
  decode     1M tokens shared by tokens, 64 x 32K by heads, and a small batch whose latency counts
  ordered    one SHA-256 of outputs and gradients on one rank and on all
  documents  128K tokens of packed sequences of skewed lengths, forward, and 64K forward and backward; splits
  forest     16 responses of 2K behind a prompt of 32K, forward and backward

32 query heads and 8 KV heads of 128, bf16. Each process group has as many ranks as GPUs (--ranks N: fewer), by NCCL. Where
there is no GPU, gloo ranks on the host device run the same code on a few hundred tokens, which times nothing. A row that fails
says so, and the next one runs. Under torchrun the script takes the ranks that it finds.

  PYTHONPATH=DIR python benchmarks/distributed.py --json distributed.json
"""

import argparse
import contextlib
import datetime
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from measuring.rank_sizes import Sizes
from measuring.report import commit, import_attn, save

PAGE = 16
PARTS = ("links", "prefill", "training", "decode", "ordered", "documents", "forest")
FORMS = ("all_gather", "ring", "heads")
SKEWED = (0.5, 0.15, 0.12, 0.08, 0.05, 0.04, 0.03, 0.02, 0.01)


class Bench:
    """A process of the benchmark."""

    def __init__(self, args, host):
        import torch
        import torch.distributed as dist

        try:
            import attn
            from attn import _attn  # noqa: F401  of this Python
        except ImportError:
            attn = import_attn()
        from measuring.ranks import RankTimer, predicted_ms

        self.torch, self.dist, self.attn, self.args, self.host = torch, dist, attn, args, host
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cpu" if host else f"cuda:{torch.cuda.current_device()}")
        self.sizes, self.timer = Sizes(host, self.ranks, args.large), RankTimer(self.device)
        self.rows, self.began = [], time.monotonic()
        self.where = "host" if host else str(self.device)
        self.model = functools.partial(predicted_ms, self.rows, self.ranks, self.sizes)

    # --- Rows --------------------------------------------------------------------------------------------------

    def row(self, part, side, function, **facts):
        """Add what a function returns, a dict or milliseconds, or its error. A rank that fails fails on all: each says
        whether it got through before the next row."""
        if self.rank == 0:
            print(f"{time.monotonic() - self.began:6.1f} s  {part:10} {side:34}", end="", flush=True)
        found, error = None, ""
        if time.monotonic() - self.began > self.args.budget:
            error = "skipped: no time left"
        errors = self.said(error)
        if not any(errors):
            try:
                found = function()
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
                if self.args.trace:
                    traceback.print_exc()
            errors = self.said(error)
        found = {"ms": found} if isinstance(found, float) else found or {}
        if wrong := next((f"rank {rank}: {each}" for rank, each in enumerate(errors) if each), ""):
            found = {"error": wrong}
        self.rows.append({"part": part, "side": side, **facts, **found})
        if self.rank == 0:
            shown = {
                k: round(v, 4) if isinstance(v, float) else v for k, v in found.items() if k != "timeline_us"
            }
            print("  ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
            self.write()
        if not self.host:
            self.torch.cuda.empty_cache()
        return found.get("ms")

    def said(self, error):
        """Return each rank's error."""
        found = [None] * self.ranks
        self.dist.all_gather_object(found, error)
        return found

    def write(self):
        if self.args.json:
            name = "host" if self.host else self.torch.cuda.get_device_name()
            head = {
                "benchmark": "distributed",
                "date": datetime.date.today().isoformat(),
                "commit": commit(),
                "device": name,
                "ranks": self.ranks,
                "torch": self.torch.__version__,
                "seconds": time.monotonic() - self.began,
            }
            save(self.args.json, {**head, "rows": self.rows})

    def against(self, part, one, sides, **facts):
        """Add rows of one GPU and of sides of all, with the speed of each over one GPU's."""
        alone = self.row(part, "one GPU", one, **facts) if one else None
        for side, function in sides.items():
            self.row(part, side, function, **facts)
            row = self.rows[-1]
            if not alone or "ms" not in row:
                continue
            row["times_one"], said = alone / row["ms"], ""
            if found := self.model(part, side, alone, facts):
                row["predicted_ms"], said = found, f"; the model says {found:.4f} ms"
            if self.rank == 0:
                print(f"{'':20}{row['times_one']:.3f} x one GPU{said}", flush=True)

    def tensors(self, *rows, seed=0, dtype=None):
        torch, dim = self.torch, self.sizes.dim
        generator = torch.Generator(self.device).manual_seed(seed)
        heads, kv_heads = self.sizes.heads
        return [
            torch.randn(*rows, h, dim, generator=generator, device=self.device).to(dtype or torch.bfloat16)
            for h in (heads, kv_heads, kv_heads, heads)
        ]

    # --- Links -------------------------------------------------------------------------------------------------

    def links(self):
        from attn.distributed import groups

        group, size = groups.groups_of(None)[0], self.sizes.bytes
        lines = self.torch.zeros(size // 4096, 512, dtype=self.torch.int64, device=self.device)

        def rate(function, sent):
            milliseconds = self.timer(function, runs=3)
            return {"ms": milliseconds, "bytes_sent": sent, "gb_per_s": sent / milliseconds / 1e6}

        total = size * (self.ranks - 1)
        self.row(
            "links", "all-gather", lambda: rate(lambda: groups.all_gather(group, lines, len(lines)), total)
        )
        small = lines[:2]
        self.row(
            "links",
            "all-gather, small",
            lambda: self.timer.replayed(lambda: groups.all_gather(group, small, 2), 20),
        )
        self.row(
            "links", "ring", lambda: rate(lambda: groups.Exchange(group, lines, len(lines)).wait(), size)
        )

    # --- Prefill and training ----------------------------------------------------------------------------------

    def call(self, tensors, gradients=False, **options):
        """Return a call of attend on a split of these tensors, and its split."""
        ad = self.attn.distributed
        split, dim = options["split"], 1 if tensors[0].ndim == 4 else 0
        *qkv, d_out = (ad.shard(each, split, dim=dim).contiguous() for each in tensors)
        return self.timed(lambda *given: ad.attend(*given, **options), qkv, d_out, gradients)

    def timed(self, function, qkv, d_out, gradients):
        """Return a function that calls another, and takes its gradients."""
        qkv = [each.detach().requires_grad_(gradients) for each in qkv]

        def run():
            out = function(*qkv)
            if gradients:
                self.torch.autograd.grad(out, qkv, d_out)

        return run

    def forms(self, part, tokens, gradients):
        from measuring.ranks import context_parallel_time, overlap

        ad, attn = self.attn.distributed, self.attn
        tensors = self.tensors(1, tokens)
        split = ad.split(tokens, self.ranks, see=attn.causal())
        facts = {"tokens": tokens, "gradients": gradients}

        def one():
            function = self.timed(
                lambda *given: attn.attend(*given, causal=True), tensors[:3], tensors[3], gradients
            )
            return self.timer(function, alone=True)

        def side(form):
            return lambda: self.timer(self.call(tensors, gradients, causal=True, form=form, split=split))

        sides = {form: side(form) for form in FORMS}
        if not self.host and not self.args.alone:
            sides |= {
                f"PyTorch context_parallel, {name}": functools.partial(
                    context_parallel_time, self.timer, self.timed, tensors, gradients, name
                )
                for name in ("cudnn", "flash")
            }
            from measuring.ring_flash_peer import zigzag

            if (ring := zigzag()) is not None:
                sides["ring-flash-attn, zigzag"] = lambda: self.ring_flash(ring, tensors, gradients)
        self.against(part, one, sides, **facts)
        if not self.host:

            def timeline():
                function = self.call(tensors, gradients, causal=True, form="ring", split=split)
                function()
                self.timer.wait()
                return overlap(function)

            self.row(part, "ring, timeline", timeline, **facts)

    def ring_flash(self, ring, tensors, gradients):
        ad = self.attn.distributed
        split = ad.split(tensors[0].shape[1], self.ranks, method="zigzag")
        *qkv, d_out = (ad.shard(each, split, dim=1) for each in tensors)
        return self.timer(self.timed(lambda *given: ring(*given, causal=True), qkv, d_out, gradients))

    def prefill(self):
        for tokens in self.sizes.prefill:
            self.forms("prefill", tokens, False)

    def training(self):
        ad, attn, tokens = self.attn.distributed, self.attn, self.sizes.training[0]
        for each in self.sizes.training:
            self.forms("training", each, True)
        tensors = self.tensors(1, tokens)
        split = ad.split(tokens, self.ranks, see=attn.causal(), ordered=True)

        def one():
            function = self.timed(
                lambda *given: attn.attend(*given, causal=True, ordered=True), tensors[:3], tensors[3], True
            )
            return self.timer(function, alone=True)

        side = {
            "ordered": lambda: self.timer(self.call(tensors, True, causal=True, split=split, ordered=True))
        }
        self.against("training", one, side, tokens=tokens, gradients=True, ordered=True)

    # --- Documents ---------------------------------------------------------------------------------------------

    def packed(self, part, given, gradients, sides, **facts):
        """Add rows of packed tokens: `given` are offsets of sequences, or a forest."""
        ad, attn = self.attn.distributed, self.attn
        where = {"forest" if isinstance(given, attn.Forest) else "cu_seqlens": given}
        tokens = given.tokens if isinstance(given, attn.Forest) else given[-1]
        tensors = self.tensors(tokens)

        def one():
            function = self.timed(
                lambda *qkv: attn.attend(*qkv, causal=True, **where), tensors[:3], tensors[3], gradients
            )
            return self.timer(function, alone=True)

        def side(form, method):
            split = ad.split(given, self.ranks, see=attn.causal(), method=method)
            options = dict(causal=True, form=form, split=split, **where)
            milliseconds = self.timer(self.call(tensors, gradients, **options))
            costs = split.costs(given, attn.causal())
            return {"ms": milliseconds, "balance": max(costs) * len(costs) / sum(costs)}

        made = {f"{form}, {method}": functools.partial(side, form, method) for form, method in sides}
        self.against(part, one, made, tokens=tokens, gradients=gradients, **facts)

    def documents(self):
        sides = [("all_gather", "balanced"), ("ring", "balanced"), ("all_gather", "zigzag")]
        for tokens, gradients in ((self.sizes.documents, False), (self.sizes.training[0], True)):
            lengths = [int(tokens * share) for share in SKEWED]
            lengths[0] += tokens - sum(lengths)
            starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
            self.packed("documents", starts, gradients, [*sides, ("all_gather", "contiguous")])

    def forest(self):
        for prompt in self.sizes.prompts:
            ends = [prompt + prompt // 16 * i for i in range(17)]
            forest = self.attn.Forest([0, *ends], [-1, *[0] * 16])
            self.packed(
                "forest", forest, True, [("all_gather", "balanced"), ("ring", "balanced")], prompt=prompt
            )

    # --- Decode ------------------------------------------------------------------------------------------------

    def kernel(self, heads, kv_heads):
        attn, store = self.attn, self.attn.Paged(page_size=PAGE)
        sizes = dict(q_heads=heads, kv_heads=kv_heads, head_dim=self.sizes.dim, dtype="bfloat16")
        return attn.compile(attn.Spec(**sizes, kv=[store], see=attn.causal()), device=self.where)

    def one_cache(self, sequences, tokens, heads, kv_heads):
        """Return a step over a cache of this rank alone, and the plan."""
        attn = self.attn
        pages = sequences * -(-tokens // PAGE)
        cache = attn.PagedCache(
            layers=1,
            pages=pages,
            page_size=PAGE,
            kv_heads=kv_heads,
            head_dim=self.sizes.dim,
            device=self.where,
        )
        cache.layer(0).k.normal_()
        cache.layer(0).v.normal_()
        numbers = [cache.add() for _ in range(sequences)]
        cache.append(numbers, tokens).skip()
        kernel = self.kernel(heads, kv_heads)
        plan = kernel.plan(cache.batch(numbers))
        q = self.torch.randn(sequences, heads, self.sizes.dim, device=self.device).bfloat16()
        out = self.torch.empty_like(q)
        return lambda: kernel.run(q, cache.layer(0), plan, out=out), plan

    def by_tokens(self, sequences, tokens, *, gathered=False):
        """Return a step over a cache whose tokens ranks share, and the plan. `gathered`: results of ranks are gathered by a
        collective, where they could write them into each other's memory."""
        ad, (heads, kv_heads) = self.attn.distributed, self.sizes.heads
        chunks = -(-tokens // self.sizes.chunk)
        pages = (sequences * chunks // self.ranks + sequences) * (self.sizes.chunk // PAGE)
        cache = ad.ShardedCache(
            layers=1,
            pages=pages,
            page_size=PAGE,
            chunk=self.sizes.chunk,
            kv_heads=kv_heads,
            head_dim=self.sizes.dim,
            device=self.where,
        )
        cache.cache.layer(0).k.normal_()
        cache.cache.layer(0).v.normal_()
        numbers = [cache.add() for _ in range(sequences)]
        cache.append(numbers, tokens).skip()
        plan = cache.plan(self.kernel(heads, kv_heads), numbers)
        q = self.torch.randn(sequences, heads, self.sizes.dim, device=self.device).bfloat16()
        shape = sequences, heads, self.sizes.dim, q
        partial = ad.Partial(*shape) if gathered else ad.Partial.shared(*shape)
        if not gathered and partial.why_gathered:
            raise RuntimeError(partial.why_gathered)
        return lambda: plan.run(q, 0, partial=partial), plan.plan

    def by_heads(self, sequences, tokens):
        ad, (heads, kv_heads) = self.attn.distributed, self.sizes.heads
        step, plan = self.one_cache(sequences, tokens, heads // self.ranks, kv_heads // self.ranks)
        return lambda: ad.gather_heads(step()), plan

    def steps(self, make, *, alone=False):
        """Time a step, started by Python and replayed from a graph."""
        called = not alone or self.rank == 0
        step, plan = self.timer.together(make, called) or (None, None)
        found = {"eager_ms": self.timer(step, runs=1 if self.host else 20, alone=alone)}
        found["ms"] = found["eager_ms"]
        if not self.host:
            from measuring.ranks import recorded

            def record():
                if plan is not None:
                    plan.fix()
                return recorded(step, 10)

            replay = self.timer.together(record, called)
            found["ms"] = self.timer(replay, runs=3, alone=alone) / 10
        return found

    def decode(self):
        heads, kv_heads = self.sizes.heads
        points = [("tokens", self.by_tokens, 1, tokens) for tokens in self.sizes.long]
        points += [("heads", self.by_heads, *batch) for batch in self.sizes.batches]
        points += [("tokens, small", self.by_tokens, *self.sizes.small)]
        for name, make, sequences, tokens in points:
            if name == "heads" and kv_heads % self.ranks:
                continue
            facts = {"sequences": sequences, "tokens": tokens}

            def one(sequences=sequences, tokens=tokens):
                return self.steps(lambda: self.one_cache(sequences, tokens, heads, kv_heads), alone=True)

            def side(make=make, sequences=sequences, tokens=tokens, **path):
                found = self.steps(lambda: make(sequences, tokens, **path))
                alone = next(row.get("ms") for row in reversed(self.rows) if row["side"] == "one GPU")
                return found | ({"us_above_share": 1e3 * (found["ms"] - alone / self.ranks)} if alone else {})

            sides = {f"by {name}": side}
            if make == self.by_tokens:
                sides[f"by {name}, all-gather"] = functools.partial(side, gathered=True)
            self.against("decode", one, sides, **facts)

    # --- Ordered -----------------------------------------------------------------------------------------------

    def ordered(self):
        ad, attn, torch, tokens = self.attn.distributed, self.attn, self.torch, self.sizes.ordered
        alone = self.dist.new_group([0])
        starts = [0, tokens * 5 // 8, tokens * 5 // 8 + 1, tokens]
        tensors = self.tensors(tokens)

        def digest(see, group, ranks):
            split = ad.split(starts, ranks, see=see, ordered=True)
            *qkv, d_out = (ad.shard(each, split, group).requires_grad_() for each in tensors)
            options = dict(see=see, split=split, cu_seqlens=starts, ordered=True, return_lse=True)
            out, lse = ad.attend(*qkv, group, **options)
            found = [out, lse, *torch.autograd.grad(out, qkv, d_out)]
            whole = [ad.unshard(each, split, group).contiguous() for each in found]
            return hashlib.sha256(
                b"".join(each.view(torch.uint8).cpu().numpy().tobytes() for each in whole)
            ).hexdigest()

        def compare(see):
            one = digest(see, alone, 1) if self.rank == 0 else None
            everyone = digest(see, None, self.ranks)
            if self.rank == 0 and one != everyone:
                raise AssertionError(f"one rank has {one[:16]}, {self.ranks} have {everyone[:16]}")
            return {"sha256": everyone}

        for see in (attn.causal(), attn.causal() & (attn.sink(64) | attn.recent(1000))):
            self.row("ordered", repr(see)[:34], lambda see=see: compare(see), tokens=tokens)


def work(rank, args, ranks, store):
    """Run one process."""
    import torch
    import torch.distributed as dist

    host = not torch.cuda.is_available()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast stays off.
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    if not host:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    else:
        torch.set_num_threads(1)
    place = {} if store is None else dict(init_method=f"file://{store}", rank=rank, world_size=ranks)
    more = {} if host else {"device_id": torch.device("cuda", torch.cuda.current_device())}
    limit = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo" if host else "nccl", timeout=limit, **place, **more)
    bench = Bench(args, host)
    if bench.rank == 0:
        name = "host device, gloo" if host else f"{torch.cuda.get_device_name()}, NCCL"
        print(f"{bench.ranks} ranks: {name}; PyTorch {torch.__version__}", flush=True)
    for part in args.parts or PARTS:
        with contextlib.suppress(KeyboardInterrupt):
            getattr(bench, part)()
    if bench.rank == 0:
        bench.write()
        failed = [row for row in bench.rows if "error" in row]
        print(f"{len(bench.rows)} rows, {len(failed)} failed, {time.monotonic() - bench.began:.1f} s")
    dist.barrier()
    dist.destroy_process_group()


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="bench distributed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="processes (GPUs of this machine; 2 where there is none)"
    )
    parser.add_argument("--alone", action="store_true", help="without PyTorch's context_parallel")
    parser.add_argument(
        "--budget", type=float, default=540, metavar="SECONDS", help="begin no row after this (540)"
    )
    parser.add_argument(
        "--large", action="store_true", help="four times the tokens, too: for four and eight GPUs"
    )
    parser.add_argument("--trace", action="store_true", help="print the traceback of a row that fails")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the numbers")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"there is no part '{part}'; there are {', '.join(PARTS)}")
    return args


def main(argv):
    import torch

    args = arguments(argv)
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), args, None, None)
        return
    ranks = args.ranks or torch.cuda.device_count() or 2
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (args, ranks, f"{folder}/store"), ranks)
    if args.json:
        failed = [row for row in json.loads(args.json.read_text())["rows"] if "error" in row]
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
