# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From text to code: what was compiled before (bundles, the disk), and else the compiler."""
