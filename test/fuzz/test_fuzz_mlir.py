"""Mutated programs through attn-opt and attn-run: whatever the text, an exit status and words, never a signal.

Mutations are drawn from fixed seeds, so a failure names its seed and repeats.
"""

import os
import random
import re
import subprocess

import pytest
from attnlab import ROOT, program

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
    if result.returncode == 2:
        assert "error" in errors, f"exit status 2 without a word\n{text}"


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_mutated(seed):
    rng = random.Random(seed)
    text = mutate(EXAMPLES[seed % len(EXAMPLES)].read_text(), rng)
    check([program("attn-opt"), "-", "--target=sm_90a", "--emit=ptx"], text)
    check(
        [
            program("attn-run"),
            "-",
            "--device=host",
            "--check",
            "--dim=batch=2",
            "--dim=kv_len=9",
            "--dim=q_len=1",
        ],
        text,
    )


@pytest.mark.parametrize("seed", range(ROUNDS // 4))
def test_bytes(seed):
    rng = random.Random(seed)
    data = bytearray(rng.choice(EXAMPLES).read_bytes())
    for _ in range(rng.randint(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    check([program("attn-opt"), "-", "--target=sm_90a", "--emit=ptx"], data.decode("latin-1"))
