# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlashInfer for the same attention, if it is installed (it compiles its kernels with nvcc on first use).

Decoding is its paged wrapper with tensor cores, which it advises for grouped heads, over the same pages that attn
reads; beside quantized attn over pages of e4m3. Prefill is its wrapper for ragged sequences, on Hopper its
FlashAttention-3, and for one sequence also its call for that. Planning is timed in the part `planning` alone.
"""

WORKSPACE_BYTES = 512 << 20


def workspace(torch, tensors):
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=tensors.device)


def output(torch, tensors):
    """Return a tensor for results, and its view by sequence."""
    problem = tensors.point.problem
    out = torch.empty(
        len(tensors.q), problem.q_heads, problem.value_dim, dtype=tensors.q.dtype, device=tensors.device
    )
    return out, lambda: tensors.by_sequence(out)


def decode_planner(flashinfer, torch, tensors, pages):
    """Return its wrapper for decoding, and a function that plans one row of each sequence over pages of keys and values, from
    tables of the host but for the pages' numbers."""
    problem, page = tensors.point.problem, pages[0].shape[1]
    counts = [-(-tokens // page) for tokens in tensors.lengths]
    last = [tokens - (count - 1) * page for tokens, count in zip(tensors.lengths, counts, strict=True)]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace(torch, tensors), "NHD", use_tensor_cores=True
    )
    tables = (
        torch.tensor(tensors.starts(counts), dtype=torch.int32),
        tensors.table[tensors.table >= 0],
        torch.tensor(last, dtype=torch.int32),
    )
    sizes = problem.q_heads, problem.kv_heads, problem.dim, page
    types = dict(q_data_type=tensors.q.dtype, kv_data_type=pages[0].dtype)
    return wrapper, lambda: wrapper.plan(*tables, *sizes, **types)


def decode(flashinfer, torch, tensors, pages):
    """Return a function that decodes one row of each sequence over pages of keys and values, and its result."""
    wrapper, plan = decode_planner(flashinfer, torch, tensors, pages)
    plan()
    out, result = output(torch, tensors)
    return lambda: wrapper.run(tensors.q, pages, out=out), result


def prefill(flashinfer, torch, tensors, causal):
    """Return a function for several sequences, and its result."""
    problem = tensors.point.problem
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(torch, tensors), "NHD")
    wrapper.plan(
        torch.tensor(tensors.starts(tensors.rows), dtype=torch.int32),
        torch.tensor(tensors.starts(tensors.lengths), dtype=torch.int32),
        problem.q_heads,
        problem.kv_heads,
        problem.dim,
        head_dim_vo=problem.value_dim,
        causal=causal,
        q_data_type=tensors.q.dtype,
        kv_data_type=tensors.k.dtype,
    )
    out, result = output(torch, tensors)
    return lambda: wrapper.run(tensors.q, tensors.k, tensors.v, out=out), result
