# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn inside of PyTorch's and Transformers' own programs. What needs either stands here or in torch_*.py of run."""
