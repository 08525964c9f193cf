# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Paged caches: sequences that grow, branch and speculate, and their rows as kernels take them."""
