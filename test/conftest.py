# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent / "grid"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: measures time, so that nothing may run beside it")
