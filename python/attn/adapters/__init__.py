# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn inside of PyTorch's and Transformers' own programs. Code that needs either is here or in torch_*.py of run."""
