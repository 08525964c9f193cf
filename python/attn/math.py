# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for score functions. On traced values they write code of the kernel; on numbers they compute.

The functions of these names in NumPy and PyTorch do the same on traced values.
"""

from .describe.functions import *  # noqa: F403
from .describe.functions import __all__ as __all__
from .describe.functions import inf as inf
