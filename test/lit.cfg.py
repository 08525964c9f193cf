# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# lit's configuration. Plain lit works too: lit -v test --param build=build-dev
import ctypes
import os
import subprocess
from pathlib import Path

import lit.formats

root = Path(__file__).resolve().parent.parent
build = root / lit_config.params.get("build", "build")
bin_dir = build / "bin"

config.name = "attn"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "lint", "grid", "host"]
config.test_source_root = str(root / "test")
config.test_exec_root = str(build / "test" / "lit")
config.environment["PATH"] = os.pathsep.join(
    [str(bin_dir), str(root / ".venv" / "bin"), "/usr/lib/llvm-22/bin", os.environ["PATH"]]
)
config.substitutions.append(("%examples", str(root / "examples")))
config.substitutions.append(("%python", str(root / ".venv" / "bin" / "python")))

# ptxas is no feature on purpose: where it is absent, its tests fail rather than vanish.
try:
    ctypes.CDLL("libcuda.so.1")
    config.available_features.add("cuda")
except OSError:
    pass

# A build without NDEBUG has an option more (test/Pipelines/debug.test).
program = bin_dir / "attn-opt"
shown = subprocess.run([program, "--help"], capture_output=True, text=True).stdout if program.exists() else ""
if "--debug-only" in shown:
    config.available_features.add("debug-output")
