# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention of a layer of vLLM in float64, over the same pages and tables as attn's kernels read."""

import torch


def _scaled(impl, layer, kv_cache):
    """Return a function that reads pages of keys and values of 16 bits, or of 8-bit floats: [pages, size, heads, dim]."""
    pools = impl._pages(layer, kv_cache)[:2]
    scales = (1, 1) if impl.format is None else (layer._k_scale.double(), layer._v_scale.double())
    return lambda pages: [pool[pages].double() * scale for pool, scale in zip(pools, scales, strict=True)]


def _dequantized(impl, layer, kv_cache):
    """Return a function that reads pages whose metadata lie beside the codes."""
    import attn
    from attn.serving.formats import PACKED

    packed = impl._pages(layer, kv_cache)
    heads = torch.arange(impl.num_kv_heads)
    scales = [dict(tensor_scale=float(x)) for name, x in packed.named.items() if "tensor_scale" in name] or [
        {},
        {},
    ]

    def read(pages):
        blocks = pages[:, None] * packed.apart + heads
        return [
            attn.dequantize(codes[blocks], meta[blocks], format, **scale).double().transpose(1, 2)
            for codes, meta, format, scale in zip(
                packed[:2], packed[2:4], PACKED[impl.format], scales, strict=True
            )
        ]

    return read


def attend(impl, layer, query, kv_cache, step, output):
    """Compute a step's rows of a layer into `output`."""
    read = (_dequantized if impl.layer.is_packed else _scaled)(impl, layer, kv_cache)
    starts, size, groups = step.q_start.tolist(), impl.layer.page_size, impl.num_heads // impl.num_kv_heads
    for row, (length, table) in enumerate(zip(step.lengths.tolist(), step.block_table, strict=True)):
        begin, end = starts[row : row + 2]
        pages = torch.tensor(table[: -(-length // size)], dtype=torch.long)
        k, v = (part.flatten(0, 1)[:length].repeat_interleave(groups, 1) for part in read(pages))
        scores = torch.einsum("qhd,khd->hqk", query[begin:end].double(), k) * impl.scale
        if impl.logits_soft_cap:
            scores = impl.logits_soft_cap * torch.tanh(scores / impl.logits_soft_cap)
        far = torch.arange(length - (end - begin), length)[:, None] - torch.arange(length)
        if "slopes" in impl.tensors:
            scores = scores - impl.tensors["slopes"].double()[:, None, None] * far
        scores = scores.masked_fill((far < 0) | (far >= (impl.sliding_window or length)), -torch.inf)
        if "sink_logits" in impl.tensors:
            sinks = impl.tensors["sink_logits"].double()[:, None, None].expand(-1, end - begin, 1)
            scores = torch.cat([scores, sinks], -1)
        found = torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], v)
        output[begin:end] = found.to(output.dtype)
    return output


def attend_latents(impl, layer, query, kv_cache, step):
    """Return a step's rows of a layer over latents, of absorbed queries."""
    lines = impl._lines(kv_cache)
    scale = 1 if impl.format is None else float(layer._k_scale)
    found = query.new_empty(*query.shape[:2], impl.kv_lora_rank)
    starts, size = step.q_start.tolist(), impl.layer.page_size
    for row, (length, table) in enumerate(zip(step.lengths.tolist(), step.block_table, strict=True)):
        begin, end = starts[row : row + 2]
        pages = torch.tensor(table[: -(-length // size)], dtype=torch.long)
        keys = lines[pages].double().flatten(0, 1)[:length] * scale
        scores = torch.einsum("qhd,kd->hqk", query[begin:end].double(), keys) * impl.scale
        far = torch.arange(length - (end - begin), length)[:, None] - torch.arange(length)
        weights = scores.masked_fill(far < 0, -torch.inf).softmax(-1)
        values = keys[:, : impl.kv_lora_rank]
        found[begin:end] = torch.einsum("hqk,kd->qhd", weights, values).to(found.dtype)
    return found
