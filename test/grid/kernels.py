# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests over many kernels share: running in the background, and assembling."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

from attnlab import program, ptxas


class Background:
    """Runs a function over many arguments in the background; results are fetched by argument."""

    def __init__(self, function, arguments):
        self.pool = ThreadPoolExecutor(2)
        self.futures = {argument: self.pool.submit(function, argument) for argument in arguments}

    def __getitem__(self, argument):
        return self.futures[argument].result()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown(cancel_futures=True)


def assemble(folder, text, target, *options):
    """A problem's PTX, and the resources of its kernels as ptxas gives them."""
    ptx = folder / f"{abs(hash((text, target, options)))}.ptx"
    command = [program("attn-opt"), "-", f"--target={target}", *options, "--emit=ptx", "-o", str(ptx)]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return ptx.read_text(), ptxas(ptx, target)


def assert_nothing_spilled(kernels):
    assert kernels
    for kernel in kernels:
        assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0), kernel
