# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is attended: descriptions, and the score functions, visibilities, stores and head classes they consist of."""
