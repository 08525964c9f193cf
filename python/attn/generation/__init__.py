# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation by models of Transformers in steps that are recorded once."""
