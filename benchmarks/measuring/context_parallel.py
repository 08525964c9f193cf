# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's context_parallel, the peer of `bench distributed`."""


def timed_context_parallel(timer, timed, tensors, gradients, backend):
    """Return the milliseconds of causal attention within context_parallel over all ranks, as a row's facts.

    Its ring takes as many heads of keys as of queries in some versions; keys and values are then repeated, and the row says so.

    timer    a RankTimer
    timed    function of (attend, [q, k, v], d_out, gradients) that returns what is timed
    tensors  q, k, v, d_out [batch, tokens, heads, dim], whole on each rank
    backend  "cudnn" or "flash", the kernels of scaled_dot_product_attention
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mesh = init_device_mesh("cuda", (timer.ranks,))
    chosen = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
    problems = []
    for repeated in (False, True):
        whole = [each.transpose(1, 2).contiguous() for each in tensors]
        if repeated:
            group = whole[0].shape[1] // whole[1].shape[1]
            whole[1:3] = [each.repeat_interleave(group, dim=1) for each in whole[1:3]]

        def attend(q, k, v, gqa=not repeated):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)

        try:
            with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 4), sdpa_kernel(chosen):
                *qkv, d_out = (each.clone() for each in whole)
                milliseconds = timer(timed(attend, qkv, d_out, gradients))
            return {"ms": milliseconds, "repeated_keys": repeated}
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
    raise RuntimeError("; ".join(problems))
