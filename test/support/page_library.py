# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python package with a compiler library that a page of docs has changed."""

import shutil

from attnlab import BUILD, ROOT


def package_over(library, folder):
    """Make a copy of the package below `folder`, whose extension finds that library beside itself."""
    package = folder / "attn"
    shutil.copytree(ROOT / "python" / "attn", package)
    for built in (BUILD / "python" / "attn").glob("_attn*.so"):
        shutil.copy(built, package)
    (package / library.name).symlink_to(library)
