# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized keys and values: the tensors of a point of `bench gpu quantized`.

Quantized values and metadata are drawn, and dequantized for the bf16 side and FlashInfer: all sides compute the same
attention. Pages of all lie in the order of the same permutation.
"""

from measuring.tensors import Tensors, paged

CHUNK = 1 << 14  # Tokens that are dequantized at a time.
TENSOR_SCALE = 0.3  # The scale of an nvfp4 tensor.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def draw_codes(torch, coding, tokens, heads, dim, device):
    """Draw quantized values [tokens, heads, ...] and metadata, by line [tokens, heads, ...] if each line has some, of
    numbers with a standard deviation of about 1."""
    if coding.code == "f8E4M3FN":
        codes = torch.empty(tokens, heads, dim, dtype=torch.float8_e4m3fn, device=device)
        for part in codes.split(CHUNK):
            part.copy_(64 * torch.randn(part.shape, device=device))
    elif coding.by:
        codes = torch.randint(256, (tokens, heads, dim // 2), dtype=torch.uint8, device=device)
    if coding.by:
        shape = tokens, heads, coding.line_bytes(dim)
        if coding.has_tensor_scale:
            return codes, (0.8 + 0.4 * torch.rand(shape, device=device)).to(torch.float8_e4m3fn)
        unit = 121 if coding.bits == 8 else 126  # Scales of 2^-6 and 2^-1, and half of that.
        return codes, unit - torch.randint(2, shape, dtype=torch.uint8, device=device)
    if coding.group is None:
        shape = {"tensor": (1,), "head": (heads,), "token": (tokens, heads)}[coding.per]
        return codes, (0.8 + 0.4 * torch.rand(shape, device=device)) / 64
    codes = torch.randint(256, (tokens, heads, dim * coding.bits // 8), dtype=torch.uint8, device=device)
    levels, groups = (1 << coding.bits) - 1, dim // coding.group
    scales = (0.8 + 0.4 * torch.rand(tokens, heads, groups, device=device)) * 12**0.5 / levels
    return codes, torch.stack([scales, -scales * levels / 2], dim=-1).half()


def decode_codes(torch, coding, codes, meta):
    """Dequantize to bf16."""
    if coding.by:
        parts = zip(codes.split(CHUNK), meta.split(CHUNK), strict=True)
        return torch.cat([decode_blocks(torch, coding, *part).bfloat16() for part in parts])
    if coding.group is None:
        scales = meta.expand(codes.shape[:-1]) if coding.per != "token" else meta
        parts = zip(codes.split(CHUNK), scales.split(CHUNK), strict=True)
        return torch.cat([(code.float() * scale[..., None]).bfloat16() for code, scale in parts])
    shifts = torch.arange(0, 8, coding.bits, dtype=torch.uint8, device=codes.device)
    found = []
    for code, pairs in zip(codes.split(CHUNK), meta.float().split(CHUNK), strict=True):
        whole = (code[..., None] >> shifts & (1 << coding.bits) - 1).flatten(-2)
        grouped = whole.float().unflatten(-1, (-1, coding.group))
        found.append((grouped * pairs[..., :1] + pairs[..., 1:]).flatten(-2).bfloat16())
    return torch.cat(found)


def decode_blocks(torch, coding, codes, scales):
    """Dequantize blocks to float32."""
    if coding.bits == 4:
        table = torch.tensor([*E2M1, *(-x for x in E2M1)], device=codes.device)
        codes = table[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).int()]
    scales = scales.float() * TENSOR_SCALE if coding.has_tensor_scale else (scales.float() - 127).exp2()
    return codes.float() * scales.repeat_interleave(int(coding.per), dim=-1)[..., : codes.shape[-1]]


class CodedTensors(Tensors):
    """q, quantized values in pages, and their metadata; `plain` are the same keys and values in bf16."""

    def __init__(self, torch, point, device="cuda"):
        self.codings = (point.format.key, point.format.value)
        sizes = sum(point.lengths), point.kv_heads, point.dim, device
        self.coded = [draw_codes(torch, coding, *sizes) for coding in self.codings]
        numbers = [
            decode_codes(torch, coding, *drawn)
            for coding, drawn in zip(self.codings, self.coded, strict=True)
        ]
        self.plain = Tensors(torch, point.plain(), device, numbers)
        super().__init__(torch, point, device, numbers)
        self.q = self.plain.q

    def make_pages(self, page):
        """Make quantized keys and values, then their metadata. Pages of lines with metadata lie head by head."""
        if self.point.unified:
            return self.make_unified_pages(page)
        codes, metas = [], []
        heads_first = any(coding.line_bytes(self.point.dim) for coding in self.codings)
        for coding, (code, meta) in zip(self.codings, self.coded, strict=True):
            pool, self.table = paged(self.torch, self.sequences(code.view(self.torch.uint8)), page)
            pool = pool.transpose(1, 2).contiguous() if heads_first else pool
            codes.append(pool.view(code.dtype))
            if coding.line_bytes(self.point.dim):
                meta = paged(self.torch, self.sequences(meta), page)[0].transpose(1, 2).contiguous()
            metas.append(meta)
        scales = [
            self.torch.tensor([TENSOR_SCALE], device=self.device)
            for coding in self.codings
            if coding.has_tensor_scale
        ]
        self.pages = (*codes, *metas, *scales)
        del self.coded

    def make_unified_pages(self, page):
        """Make each head's part of a page a page, in the order of another random permutation."""
        import attn
        from attn.memory.page_views import page_views

        torch, heads = self.torch, self.point.kv_heads
        store = attn.Unified(page_size=page, **self.formats())
        found = store.description(heads, self.point.dim, self.point.dim)
        pools = [paged(torch, self.sequences(code.view(torch.uint8)), page)[0] for code, _ in self.coded]
        metas = [paged(torch, self.sequences(meta), page) for _, meta in self.coded]
        self.table = metas[0][1]
        count = len(pools[0]) * heads
        place = torch.randperm(count, device=self.device)
        memory = torch.zeros(count, found.page_bytes, dtype=torch.uint8, device=self.device)
        views = page_views(memory, found)
        self.pages = tuple(views[name.removeprefix("kv.")] for name in self.names())
        for view, pool in zip(self.pages, (*pools, *(meta for meta, _ in metas)), strict=True):
            view[place] = pool.transpose(1, 2).flatten(0, 1).view(view.dtype)
        head = torch.arange(heads, device=self.device)[:, None]
        pages = place[(self.table[:, None] * heads + head).clamp(min=0).long()].int()
        self.table = pages.where(self.table[:, None] >= 0, -1)
        del self.coded

    def formats(self):
        return {
            word: value
            for part, coding in zip(("key", "value"), self.codings, strict=True)
            for word, value in ((part, f"int{coding.bits}"), (f"{part}_group", coding.group))
        }

    def batch(self):
        found = super().batch()
        if self.point.unified:
            found["kv.lengths"] = [[tokens] * self.point.kv_heads for tokens in self.lengths]
        return found

    def names(self):
        metas = [
            f"kv.{part}_{'meta' if c.group else 'scales'}" for part, c in zip("kv", self.codings, strict=True)
        ]
        scales = [
            f"kv.{part}_tensor_scale"
            for part, c in zip("kv", self.codings, strict=True)
            if c.has_tensor_scale
        ]
        return ("kv.k_pages", "kv.v_pages", *metas, *scales)

    def fp8(self):
        """Return pages of e4m3, as FlashInfer reads them; numbers are about 1."""
        return tuple(x.to(self.torch.float8_e4m3fn) for x in self.plain.pages)
