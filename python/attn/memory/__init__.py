# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors and devices: the memory of tensors, its layout, and the checks before a kernel binds it."""
