# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn-run on tensors of a test's own: made as it makes them, changed, and given back."""

import os
import subprocess

import numpy as np
from attnlab import attn_run, program
from safetensors.numpy import load_file, save_file

DEVICE = os.environ.get("ATTN_DEVICE", "host")


def generate(file, folder, *options):
    """Tensors as attn-run makes them."""
    saved = folder / "generated.safetensors"
    command = [program("attn-run"), str(file), f"--device={DEVICE}", "--save-inputs", str(saved), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return load_file(saved)


def launch(file, folder, tensors, *options):
    """What attn-run makes of these tensors: status, results, report, errors."""
    inputs, outputs = folder / "in.safetensors", folder / "out.safetensors"
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, inputs)
    arguments = ["--inputs", inputs, "--outputs", outputs, "--check", f"--device={DEVICE}", *options]
    status, report, errors = attn_run(file, *arguments)
    return status, load_file(outputs) if status == 0 else {}, report, errors
