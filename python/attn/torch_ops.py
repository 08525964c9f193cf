# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn as operators of PyTorch, so that torch.compile, torch.export and fake tensors see through it.

    torch.ops.attn.attend        dense and packed tensors: attn.attend in compiled code
    torch.ops.attn.attend_backward    its gradients
    torch.ops.attn.run           a planned kernel on the tensors of a run: Kernel.run in compiled code
    torch.ops.attn.run_with_scales    the same, with the scales of an output in e4m3
    torch.ops.attn.attend_spans  rows over the span of keys that each sequence of a padded batch has
    torch.ops.attn.attend_step   one row for each sequence, with a plan that was made on the device
    torch.ops.attn.attend_paged_step  one row for each sequence over pages; first writes the rows' keys and values there
    torch.ops.attn.spans         spans of keys, from a padding mask
    torch.ops.attn.sequences     spans of packed sequences, from their numbers
    torch.ops.attn.seen          the mask that spans stand for

CPU tensors run on the host device, tensors of a GPU on that GPU and the current stream. Only `attend` passes gradients,
and only for CPU tensors. Other operators refuse an input that requires a gradient, and a backward pass through a
result. (Source: torch.library, https://docs.pytorch.org/docs/stable/library.html.)
"""

from .adapters.rows.padded_calls import padded_kernel
from .adapters.torch_spans import attend_paged_step as attend_paged_step
from .adapters.torch_spans import attend_spans as attend_spans
from .adapters.torch_spans import attend_step as attend_step
from .adapters.torch_spans import seen as seen
from .adapters.torch_spans import sequences as sequences
from .adapters.torch_spans import spans as spans
from .run.torch_attend import attend
from .run.torch_rules import refuse_gradients
from .run.torch_run import run as run
from .run.torch_run import run_plan
from .run.torch_run import run_with_scales as run_with_scales

__all__ = ["attend", "padded_kernel", "refuse_gradients", "run_plan"]
