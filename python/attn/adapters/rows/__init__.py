# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the rows of a padded batch see, and calls of attention over them. No module of Transformers is read here."""
