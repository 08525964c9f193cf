"""FlashInfer for the same attention, where it is installed (it compiles its kernels with nvcc on first use).

Decoding is its paged wrapper with tensor cores, which is what it advises for grouped heads, over pages that lie as
scattered as attn-run's; planning is not timed, ours is not either. Prefill is the call for one sequence, whose
backend FlashInfer chooses: on Hopper its FlashAttention-3.
"""

WORKSPACE_BYTES = 512 << 20
PAGE = 16


def paged(torch, tokens, page=PAGE):
    """[batch, heads, tokens, dim] as pages [pages, page, heads, dim] in the order of a random permutation, and where
    each of them went."""
    batch, heads, length, dim = tokens.shape
    per_sequence = -(-length // page)
    padded = torch.nn.functional.pad(tokens, (0, 0, 0, per_sequence * page - length))
    pages = padded.transpose(1, 2).reshape(batch * per_sequence, page, heads, dim)
    generator = torch.Generator(device=tokens.device).manual_seed(1)
    place = torch.randperm(len(pages), generator=generator, device=tokens.device)
    pool = torch.empty_like(pages)
    pool[place] = pages
    return pool, place.int()


def decode(flashinfer, torch, q, k, v):
    """A function that decodes one row of each sequence; q [batch, heads, 1, dim]."""
    batch, tokens = q.shape[0], k.shape[2]
    keys, place = paged(torch, k)
    values, _ = paged(torch, v)
    per_sequence = -(-tokens // PAGE)
    starts = torch.arange(batch + 1, dtype=torch.int32) * per_sequence
    last = torch.full((batch,), tokens - (per_sequence - 1) * PAGE, dtype=torch.int32)
    workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
    wrapper.plan(
        starts,
        place,
        last,
        q.shape[1],
        k.shape[1],
        q.shape[3],
        PAGE,
        q_data_type=q.dtype,
        kv_data_type=k.dtype,
    )
    rows, out = q[:, :, 0].contiguous(), torch.empty_like(q[:, :, 0])
    return lambda: wrapper.run(rows, (keys, values), out=out)


def prefill(flashinfer, q, k, v, causal):
    """A function for one sequence; tensors [1, heads, tokens, dim]."""
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    return lambda: flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal)
