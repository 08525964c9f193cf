# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Descriptions of attentions, and their parts: score functions, visibilities, stores and head classes."""
