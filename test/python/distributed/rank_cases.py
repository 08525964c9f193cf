# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of attention over ranks: what ranks compute, and what one process computes in float64."""

from dataclasses import dataclass, field
from typing import Any

import attn
import torch
from attn import distributed

NAMES = ("out", "lse", "dq", "dk", "dv", "dsinks")


@dataclass(frozen=True)
class Case:
    """One call. `lengths`: of packed sequences, or of dense ones if `batch` is set; `parents`: of a forest's nodes."""

    form: str = "all_gather"
    lengths: tuple[int, ...] = (150,)
    batch: int = 0
    parents: tuple[int, ...] = ()
    see: Any = field(default_factory=attn.causal)
    heads: tuple[int, int] = (4, 2)
    dims: tuple[int, int] = (64, 64)
    dtype: torch.dtype = torch.bfloat16
    sinks: bool = False
    softcap: float | None = None
    method: str = "balanced"
    block: int | None = 16
    mesh: tuple[int, int] | None = None
    ordered: bool = False
    numerics: str | None = None
    scale: float = 1.0
    seed: int = 0

    def tokens(self):
        """Return the first argument of `split`."""
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths) + 1)]
        if self.parents:
            return attn.Forest(starts, list(self.parents))
        return self.lengths[0] if self.batch else starts

    def options(self):
        """Return options of both calls."""
        tokens = self.tokens()
        where = {} if self.batch else {"forest": tokens} if self.parents else {"cu_seqlens": tokens}
        causal = {"causal": True} if self.see == attn.causal() else {"see": self.see}
        return where | causal | {"softcap": self.softcap, "return_lse": True}

    def tensors(self):
        """Return q, k, v, the gradients of out and lse, and sinks."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = (self.batch, self.lengths[0]) if self.batch else (sum(self.lengths),)

        def made(*shape):
            return torch.randn(*rows, *shape, generator=generator) * self.scale

        heads, kv_heads = self.heads
        q, k = made(heads, self.dims[0]), made(kv_heads, self.dims[0])
        v, d_out = made(kv_heads, self.dims[1]), made(heads, self.dims[1])
        d_lse, sinks = made(heads), torch.randn(heads, generator=generator)
        return *(each.to(self.dtype) for each in (q, k, v, d_out)), d_lse, sinks if self.sinks else None

    def of_ranks(self, ranks, group=None):
        """Compute on this rank; returns the whole results, the same on every rank."""
        *tensors, d_out, d_lse, sinks = self.tensors()
        dim = 1 if self.batch else 0
        block = {"block": self.block} if self.method == "balanced" and not self.ordered else {}
        split = distributed.split(
            self.tokens(), ranks, see=self.see, method=self.method, ordered=self.ordered, **block
        )
        own = [distributed.shard(each, split, group, dim=dim).requires_grad_() for each in tensors]
        own_sinks = None if sinks is None else sinks.clone().requires_grad_()
        results = distributed.attend(
            *own,
            group,
            form=self.form,
            split=split,
            sink_logits=own_sinks,
            ordered=self.ordered,
            numerics=self.numerics,
            **self.options(),
        )
        torch.autograd.backward(
            results, [distributed.shard(each, split, group, dim=dim) for each in (d_out, d_lse)]
        )
        found = [
            distributed.unshard(each, split, group, dim=dim)
            for each in (*results, *(each.grad for each in own))
        ]
        if own_sinks is not None:
            torch.distributed.all_reduce(own_sinks.grad, group=None if self.mesh else group)
            found.append(own_sinks.grad)
        return found

    def of_row(self):
        """Compute out and lse with numerics="row" in this process."""
        return attn.attend(*self.tensors()[:3], numerics="row", **self.options())

    def of_one(self):
        """Compute in float64 in this process."""
        *tensors, d_out, d_lse, sinks = self.tensors()
        given = [each.double().requires_grad_() for each in tensors]
        own_sinks = None if sinks is None else sinks.clone().requires_grad_()
        results = attn.attend(*given, sink_logits=own_sinks, reference=True, **self.options())
        torch.autograd.backward(results, [d_out.double(), d_lse.double()])
        return [*results, *(each.grad for each in given), *([] if sinks is None else [own_sinks.grad])]

    def check(self, found):
        """Compare with float64."""
        least = 4e-3 if self.dtype == torch.float16 else 1.2e-2
        for name, got, want in zip(NAMES, found, self.of_one(), strict=False):
            got, want = got.double(), want.double()
            assert torch.equal(got.isinf(), want.isinf()), (name, self)
            got, want = (torch.where(each.isinf(), 0, each) for each in (got, want))
            if name == "out":  # The tolerance of one GPU's results, in the worst row and head.
                # Sinks leave some rows numbers below float16's normal ones, which are 2^-24 apart.
                rounding = want.shape[-1] ** 0.5 * 2**-25 if self.dtype == torch.float16 else 0.0
                beyond = ((got - want).norm(dim=-1) - rounding).clamp_min(0)
                errors = beyond / want.norm(dim=-1).clamp_min(1e-30)
                assert errors.max() < (1e-3 if self.dtype == torch.float16 else 8e-3), (errors.max(), self)
            if name == "lse":
                assert (got - want).abs().max() < 2e-3, (name, self)
            else:
                error = float((got - want).norm() / want.norm().clamp_min(1e-30))
                assert error < least, (name, error, self)


def compute(rank, ranks, cases):
    """Compute cases on a rank. The last process of a mesh gets its coordinates from the mesh."""
    from torch.distributed.device_mesh import init_device_mesh

    meshes = {
        shape: init_device_mesh("cpu", shape) for shape in sorted({case.mesh for case in cases if case.mesh})
    }
    found = [case.of_ranks(ranks, meshes.get(case.mesh)) for case in cases]
    return found if rank == ranks - 1 else None
