"""Paged caches: sequences that grow, branch and speculate, and their rows as kernels take them."""
