# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors and devices: whose memory it is, what lies there in which order, and what may be bound to a kernel."""
