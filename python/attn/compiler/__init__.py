# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From text to code: kernels that were compiled before (bundles, the disk), or else the compiler."""
