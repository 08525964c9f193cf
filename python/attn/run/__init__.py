# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on devices: kept, planned, run and checked; and attend, which does all of it."""
