# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutated programs through attn-opt and attn-run: whatever the text, a result or an error: never both, never neither,
never a signal.

Mutations are drawn from fixed seeds, so a failure names its seed and repeats.
"""

import os
import re
import subprocess

from attnlab import ROOT, program
from seeds import of_seeds

EXAMPLES = sorted((ROOT / "examples").glob("*/*.mlir"))
ROUNDS = 2000 if os.environ.get("ATTN_FULL") else 40
INTERESTING = [
    "0",
    "-1",
    "1",
    "24",
    "100",
    "257",
    "4096",
    "99999999999999999999",
    "?",
    "f64",
    "i8",
    "nan",
    "1e400",
]


def tokens_of(text):
    return re.findall(r"[%!#@]?[\w.]+|\s+|.", text, flags=re.S)


def mutate(text, rng):
    tokens = tokens_of(text)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(tokens))
        action = rng.randrange(6)
        if action == 0:
            del tokens[i]
        elif action == 1:
            tokens.insert(i, tokens[rng.randrange(len(tokens))])
        elif action == 2:
            j = rng.randrange(len(tokens))
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif action == 3:
            numbers = [k for k, token in enumerate(tokens) if token[0].isdigit()]
            if numbers:
                tokens[rng.choice(numbers)] = rng.choice(INTERESTING)
        elif action == 4:
            tokens[i] = rng.choice(INTERESTING)
        else:
            tokens = tokens[:i] if rng.random() < 0.3 else tokens
            tokens.append(chr(rng.randrange(1, 256)))
        if not tokens:
            tokens = ["\0"]
    return "".join(tokens)


def check(command, text):
    result = subprocess.run(command, input=text.encode("utf-8", "replace"), capture_output=True, timeout=120)
    errors = result.stderr.decode(errors="replace")
    assert result.returncode in (0, 1, 2), (
        f"status {result.returncode}\n{' '.join(command)}\n{text}\n{errors[-3000:]}"
    )
    assert "PLEASE submit a bug report" not in errors and "Stack dump" not in errors, (
        f"{text}\n{errors[-3000:]}"
    )
    # 0 and 1 are results: right, and, of attn-run, wrong, as where a changed program overflows.
    refused = result.returncode == 2
    assert refused == bool(re.search(r"\berror: ", errors)), (
        f"status {result.returncode}\n{text}\n{errors[-3000:]}"
    )
    assert refused != bool(result.stdout.strip()), (
        f"status {result.returncode}\n{text}\n{result.stdout[:300]}"
    )
    return refused


def test_mutated():
    refused = of_seeds(ROUNDS, compile_and_run)
    assert ROUNDS / 4 < refused < ROUNDS


def compile_and_run(rng):
    text = mutate(rng.choice(EXAMPLES).read_text(), rng)
    compiles = [program("attn-opt"), "-", "--target=sm_90a", "--emit=ptx"]
    runs = [program("attn-run"), "-", "--device=host", "--check"]
    refused = check(compiles, text)
    check([*runs, "--dim=batch=2", "--dim=kv_len=9", "--dim=q_len=1"], text)
    return refused


def test_bytes():
    assert of_seeds(ROUNDS // 4, compile_bytes) > 0


def compile_bytes(rng):
    data = bytearray(rng.choice(EXAMPLES).read_bytes())
    for _ in range(rng.randint(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return check([program("attn-opt"), "-", "--target=sm_90a", "--emit=ptx"], data.decode("latin-1"))
