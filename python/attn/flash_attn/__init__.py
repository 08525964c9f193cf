# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash-attn's functions, with its signatures, over attn's kernels: on GPUs, and for CPU tensors on the host device.

    from attn.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

Names, orders and defaults of arguments are those of flash-attn 2.8, and so are the shapes of results, LSEs and masks:
causal masks and windows end at the bottom right, and rows that see nothing are 0. What differs:

- dropout is refused by name.
- The LSE of a row that sees nothing is -inf, as in flash-attn 3. Gradients pass through LSEs, too.
- The third result of `return_attn_probs` is always empty, as flash-attn's is without dropout.
- Pages have any number of tokens, not multiples of 256. Heads of no multiple of 8 are padded, as in flash-attn.
- Tables (`cu_seqlens`, `cache_seqlens`, `block_table` and the like) may be on the CPU, where no call waits for a GPU.

`attn.flash_attn.version3` has the signatures of flash-attn 3.

It needs PyTorch. (Source: flash-attn 2.8, flash_attn_interface.py, whose signatures it has.)"""

from __future__ import annotations

from .dense import flash_attn_func as flash_attn_func
from .dense import flash_attn_kvpacked_func as flash_attn_kvpacked_func
from .dense import flash_attn_qkvpacked_func as flash_attn_qkvpacked_func
from .kvcache import flash_attn_with_kvcache as flash_attn_with_kvcache
from .varlen import flash_attn_varlen_func as flash_attn_varlen_func
from .varlen import flash_attn_varlen_kvpacked_func as flash_attn_varlen_kvpacked_func
from .varlen import flash_attn_varlen_qkvpacked_func as flash_attn_varlen_qkvpacked_func

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
