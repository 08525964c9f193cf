# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compute-sanitizer's racecheck and memcheck have no hazard to report of any kind of kernel. Needs a GPU."""

import collections
import os
import re
import shutil
import subprocess

import pytest
from attnlab import ROOT, CacheProblem, Problem, program

SANITIZER = shutil.which("compute-sanitizer")
NVCC = shutil.which("nvcc")
pytestmark = [
    pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="this machine has no NVIDIA GPU"),
    pytest.mark.skipif(not SANITIZER, reason="compute-sanitizer is not on PATH"),
]

DECODE = ("batch=3", "q_len=1", "kv_len=70..300")
PREFILL = ("batch=2", "q_len=70", "kv_len=100..400")
TRAIN = ("batch=2", "q_len=70..150", "kv_len=150..300")
APPEND = ("layers=2", "rows=50", "pages=30")
LATENTS = ("batch=2", "q_len=1..3", "kv_len=120..400")
SHARED = ("batch=3", "q_len=20..60", "kv_len=20..60", "prompts=1", "prompt_len=100")

LATENT = (ROOT / "examples/14_latent/latent.mlir").read_text()
E4M3 = "key = !attn.quantized<f8E4M3FN, per = tensor>"
CODES = ("!attn.quantized<i8, per = 128>", "!attn.quantized<i4, per = 128>")


def backward(problem, ordered=False):
    mark = f"attn.backward, attn.ordered = {str(ordered).lower()}"
    return problem.text().replace(" {\n", f" attributes {{{mark}}} {{\n", 1)


# Name: the text of a problem, its sizes, further options. Small: racecheck takes hundreds of times as long as a launch.
KINDS = {
    "decode": (Problem(8, 2).text(), DECODE, ()),
    "decode-codes": (Problem(8, 2, key=CODES[0], value=CODES[1]).text(), DECODE, ()),
    "decode-significance": (Problem(8, 2, significance="max").text(), DECODE, ()),
    "prefill-boxes": (Problem(8, 2, store="dense").text(), PREFILL, ()),
    "prefill-pages": (Problem(8, 2).text(), PREFILL, ()),
    "prefill-gathered": (Problem(7, 1, 64, 64, store="paged<1>").text(), PREFILL, ()),
    "prefill-wide": (Problem(8, 2, 512, 512, store="dense").text(), PREFILL, ()),
    "prefill-codes": (Problem(8, 2, key=CODES[0], value=CODES[1]).text(), PREFILL, ()),
    "latents": (LATENT, LATENTS, ()),
    "latents-codes": (
        LATENT.replace("128x", "16x").replace("x128xf32", "x16xf32").replace("key = bf16", E4M3),
        LATENTS,
        (),
    ),
    "prefill-mma": (Problem(8, 2).text(), PREFILL, ("--schedule=mma",)),
    "append": (CacheProblem().text(), APPEND, ()),
    "append-codes": (CacheProblem(key=CODES[0], value=CODES[1]).text(), APPEND, ()),
    "gradients-64-fused": (backward(Problem(4, 2, 64, 64, store="packed")), TRAIN, ()),
    "gradients-64-ordered": (backward(Problem(4, 2, 64, 64, store="packed"), ordered=True), TRAIN, ()),
    "gradients-96-fused": (backward(Problem(4, 2, 96, 96, store="packed")), TRAIN, ()),
    "gradients-128-fused": (backward(Problem(4, 2, store="packed")), TRAIN, ()),
    "gradients-128-ordered": (backward(Problem(4, 2, store="packed"), ordered=True), TRAIN, ()),
    "gradients-128-windows": (backward(Problem(4, 2, store="packed", see="window(90)")), TRAIN, ()),
    "gradients-128-mma": (backward(Problem(4, 2, store="packed")), TRAIN, ("--schedule=mma",)),
    "gradients-192-fused": (backward(Problem(4, 2, 192, 128, store="packed")), TRAIN, ()),
    "gradients-192-ordered": (backward(Problem(4, 2, 192, 128, store="packed"), ordered=True), TRAIN, ()),
    "gradients-192-apart": (backward(Problem(4, 2, 192, 192, store="packed")), TRAIN, ()),
    "gradients-256-fused": (backward(Problem(4, 2, 256, 256, store="packed")), TRAIN, ()),
    "gradients-256-ordered": (backward(Problem(4, 2, 256, 256, store="packed"), ordered=True), TRAIN, ()),
    "gradients-128-ordered-three": (backward(Problem(6, 2, store="packed"), ordered=True), TRAIN, ()),
    "gradients-shared": ((ROOT / "examples/10_training/shared_backward.mlir").read_text(), SHARED, ()),
}


# In these, lanes read the numbers of a gradient's rows (LSEs, deltas, positions) from a ring that cp.async fills, and lane 0
# gives its stages back behind a barrier of the warp, which racecheck does not follow (below): it reports writes after reads
# of that ring. A wrong wait for copies is a read after a write, and tiles lie outside of the ring.
REPORTED = {
    "gradients-96-fused",
    "gradients-128-fused",
    "gradients-128-ordered",
    "gradients-128-ordered-three",
    "gradients-128-windows",
    "gradients-192-fused",
    "gradients-192-ordered",
    "gradients-192-apart",
    "gradients-256-fused",
    "gradients-256-ordered",
    "gradients-shared",
}
RING_BYTES = 8192

# Two warpgroups exchange the units of their rows in two places of 256 bytes: each arrives at a named barrier at which the other
# waits, which racecheck does not follow either (below).
ARRIVING = {"latents", "prefill-wide"}
UNIT_BYTES = 512


def sanitized(tool, *command):
    """The exit status, 9 where the tool found something, and what was printed."""
    told = subprocess.run(
        [SANITIZER, f"--tool={tool}", "--error-exitcode=9", "--show-backtrace=no", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return told.returncode, told.stdout + told.stderr


def checked(folder, kind):
    """An attn-run of the kind that checks its results."""
    text, dims, options = KINDS[kind]
    file = folder / "kind.mlir"
    file.write_text(text)
    sizes = [f"--dim={dim}" for dim in dims]
    return [program("attn-run"), file, "--device=cuda", "--check", "--seed=1", *sizes, *options]


@pytest.mark.parametrize("kind", KINDS)
def test_memcheck_finds_nothing(tmp_path, kind):
    status, said = sanitized("memcheck", *checked(tmp_path, kind))
    assert status == 0, said


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in REPORTED | ARRIVING])
def test_racecheck_finds_nothing(tmp_path, kind):
    status, said = sanitized("racecheck", *checked(tmp_path, kind))
    assert status == 0, said


@pytest.mark.parametrize("kind", sorted(REPORTED))
def test_racecheck_reports_reuse_of_one_ring_alone(tmp_path, kind):
    options = ("--racecheck-report=hazard", "--print-limit=100000")
    _, said = sanitized("racecheck", *options, *checked(tmp_path, kind))
    assert "right: within tolerance" in said
    hazard = r"Potential (\w+) hazard detected at __(\w+)__ (0x\w+).*?(attention_\w+)"
    hazards = re.findall(hazard, said, flags=re.DOTALL)
    assert {(kind, space) for kind, space, _, _ in hazards} == {("WAR", "shared")}
    places = collections.defaultdict(list)
    for _, _, place, kernel in hazards:
        places[kernel].append(int(place, 16))
    for kernel, found in places.items():
        assert max(found) - min(found) < RING_BYTES, kernel


@pytest.mark.parametrize("kind", sorted(ARRIVING))
def test_racecheck_reports_units_alone(tmp_path, kind):
    options = ("--racecheck-report=hazard", "--print-limit=100000")
    _, said = sanitized("racecheck", *options, *checked(tmp_path, kind))
    assert "right: within tolerance" in said
    places = [int(place, 16) for place in re.findall(r"hazard detected at __shared__ (0x\w+)", said)]
    assert places and max(places) - min(places) < UNIT_BYTES


@pytest.mark.skipif(not NVCC, reason="nvcc is not on PATH")
@pytest.mark.parametrize(
    ("flags", "status"), [((), 9), (("-DEVERY_LANE",), 0)], ids=["one lane", "every lane"]
)
def test_racecheck_credits_an_arrival_with_its_thread_alone(tmp_path, flags, status):
    """Lane 0 arrives behind a barrier of its warp, and racecheck reports what the other lanes have read. When this fails,
    racecheck has learnt to follow the barrier, and REPORTED can go."""
    binary = tmp_path / "racecheck"
    source = ROOT / "test/gpu/racecheck.cu"
    subprocess.run([NVCC, "-arch=sm_90", *flags, source, "-o", binary], check=True, timeout=300)
    found, said = sanitized("racecheck", binary)
    assert found == status, said


@pytest.mark.skipif(not NVCC, reason="nvcc is not on PATH")
def test_racecheck_does_not_follow_arrivals_at_named_barriers(tmp_path):
    """One group writes and arrives at a barrier, another waits there and reads: an order that PTX promises. When this fails,
    racecheck has learnt it, and ARRIVING can go."""
    binary = tmp_path / "arrivals"
    source = ROOT / "test/gpu/arrivals.cu"
    subprocess.run([NVCC, "-arch=sm_90", source, "-o", binary], check=True, timeout=300)
    status, said = sanitized("racecheck", binary)
    assert status == 9, said
