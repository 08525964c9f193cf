# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.compile: the sources of kernels, each compiled once, and never where compiling is forbidden."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import attn
import pytest

pytest.importorskip("attn._attn", reason="the extension is not built: ninja -C build python")
from attn import _attn  # noqa: E402
from attn.compiler import artifacts, bundle, disk, progress, requests  # noqa: E402
from attn.run import kernels  # noqa: E402
from fresh_process import PYTHON, forget, seen, spec  # noqa: E402

# --- Sources of kernels --------------------------------------------------------------------------------------


def test_memory_then_disk_then_compiler(fresh):
    kernel = attn.compile(spec(), device="host")
    assert seen() == (1, 0, 0)
    assert attn.compile(spec(), device="host") is kernel
    assert attn.compile(spec().mlir(), device="host") is kernel, "the same text is the same description"
    assert attn.compile(spec(), device="cpu", target="sm_90a") is kernel
    forget()
    again = attn.compile(spec(), device="host")
    assert again is not kernel and again.key == kernel.key and again.manifest == kernel.manifest
    assert seen() == (1, 1, 0)


def test_what_decides_the_code_decides_the_key(fresh):
    keys = [
        attn.compile(spec(), device="host", **options).key
        for options in ({}, {"target": "sm_80"}, {"schedule": "mma"}, {"checked": True})
    ]
    keys += [
        attn.compile(spec(**change), device="host").key for change in ({"head_dim": 32}, {"name": "other"})
    ]
    assert len(set(keys)) == 6
    request = requests.request_for(spec(), target="sm_90a", form="host")
    assert request.key() == keys[0] != request._replace(form="cuda").key()
    cuda = request._replace(form="cuda")
    assert len({cuda.key(), cuda.key("one assembler"), cuda.key("another")}) == 3


def test_the_compilers_identity_is_part_of_the_key(fresh, monkeypatch):
    attn.compile(spec(), device="host")
    other = dict(requests.build_info(), producer="another build")
    monkeypatch.setattr(requests, "build_info", lambda: other)
    forget()
    attn.compile(spec(), device="host")
    assert seen() == (2, 0, 0)


def test_entries_that_do_not_load_are_built_anew(fresh):
    kernel = attn.compile(spec(), device="host")
    for payload in (b"", b"nonsense", bytes(200_000)):
        forget()
        artifacts.disk_cache().store(kernel.key, disk.Entry(payload, {}))
        attn.compile(spec(), device="host")
    assert seen()[0] == 4


def test_the_compilers_words_reach_the_user(fresh):
    with pytest.raises(attn.CompileError, match="error"):
        attn.compile("func.func @f() { return }", device="host")
    with pytest.raises(attn.CompileError, match=r"spec:\d+:\d+: error"):
        attn.compile(spec().mlir().replace("attn.attend", "attn.attened"), device="host")
    assert seen()[0] == 0


def test_places_are_told_in_texts_of_the_user_only():
    said = "spec:6:14: error: first\n  %o = attn.attend\n       ^\nspec:7:1: note: second\nthird"
    assert kernels._without_places(said) == "first\nnote: second\nthird"
    assert kernels._without_places("no place at 6:14: error") == "no place at 6:14: error"


@pytest.mark.parametrize(
    "arguments,message",
    [
        (dict(spec=None), "spec: expected an attn.Spec or MLIR text, got None"),
        (dict(spec=attn.Spec), "spec: expected"),
        (dict(spec=b"text"), "spec: expected"),
        (dict(target="sm_90"), "target: expected .*got 'sm_90'; nearest legal: 'sm_90a'"),
        (dict(schedule="wgma"), "schedule: expected .*nearest legal: 'wgmma'"),
        (dict(schedule=None), "schedule: expected"),
        (dict(device="gpu"), "device: expected"),
        (dict(device=7), "device: expected"),
        (dict(entry=3), "entry: expected"),
        (dict(entry="nobody"), "nobody"),
    ],
)
def test_bad_arguments(fresh, arguments, message):
    with pytest.raises(attn.Error, match=message):
        attn.compile(**(dict(spec=spec(), device="host") | arguments))


def test_without_a_driver_cuda_says_so(fresh):
    if _attn.cuda_devices():
        pytest.skip("there is a GPU")
    assert attn.compile(spec()).device == "host", "the default"
    with pytest.raises(attn.DeviceError, match="libcuda|driver"):
        attn.compile(spec(), device="cuda")


# --- Compiling forbidden -------------------------------------------------------------------------------------


def test_after_warm_up_compiling_is_an_error(fresh):
    attn.compile(spec(), device="host")
    with attn.forbid_compiling():
        attn.compile(spec(), device="host")
        forget()
        attn.compile(spec(), device="host")  # from disk
        other = requests.request_for(spec(name="newcomer"), target="sm_90a", form="host")
        with pytest.raises(attn.CacheMiss) as caught:
            attn.compile(spec(name="newcomer"), device="host")
        assert other.key() in str(caught.value) and "newcomer for sm_90a" in str(caught.value)
        assert "attn.attend" in str(caught.value)
        with attn.forbid_compiling():
            pass
        with pytest.raises(attn.CacheMiss):
            attn.compile(spec(name="newcomer"), device="host")
    attn.compile(spec(name="newcomer"), device="host")
    assert seen()[0] == 2


def test_for_good(fresh, monkeypatch):
    monkeypatch.setattr(artifacts, "_forbidden", 0)
    attn.forbid_compiling()
    with pytest.raises(attn.CacheMiss):
        attn.compile(spec(), device="host")


def child(code, *arguments, **environment):
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, sys.argv[1])\n{code}",
            PYTHON,
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, **environment),
    )


def finish(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out


def test_forbidden_by_the_environment(fresh):
    code = """
import attn
try:
    attn.compile(sys.argv[2], device="host")
except attn.CacheMiss:
    print("miss")
"""
    assert finish(child(code, spec().mlir(), ATTN_FORBID_COMPILING="1")) == "miss\n"
    assert finish(child(code, spec().mlir(), ATTN_FORBID_COMPILING="0")) == ""


# --- Many at once --------------------------------------------------------------------------------------------

CROWD = """
import json, os, time, attn
from attn.compiler import artifacts
names = [f"k{number}" for number in range(20)]
while not os.path.exists(sys.argv[2]):
    time.sleep(0.001)
first = int(sys.argv[3])
for name in names[first:] + names[:first]:
    attn.compile(attn.Spec(name=name, q_heads=2, kv_heads=1, head_dim=32, dtype="float16", kv=[attn.Dense()],
                           see=attn.causal()), device="host")
print(json.dumps([artifacts.counts.compiled, artifacts.counts.from_disk]))
"""


def test_eight_processes_compile_twenty_kernels_once(fresh):
    processes = [child(CROWD, fresh / "go", 2 * number) for number in range(8)]
    time.sleep(0.5)
    (fresh / "go").touch()
    counts = [json.loads(finish(process)) for process in processes]
    assert sum(compiled for compiled, _ in counts) == 20, "each once, over all processes"
    assert all(compiled + loaded == 20 for compiled, loaded in counts)
    names = [file.name for file in (fresh / "cache" / "kernels").iterdir()]
    assert len(names) == 21 and "lock" in names, "twenty entries and nothing else"


def test_a_process_killed_while_compiling_holds_nobody_up(fresh):
    code = """
import time
from attn import _attn
import attn
def compile(*arguments, **named):
    print("compiling", flush=True)
    time.sleep(60)
_attn.compile = compile
attn.compile(sys.argv[2], device="host")
"""
    process = child(code, spec().mlir())
    assert process.stdout.readline() == "compiling\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = time.monotonic()
    attn.compile(spec(), device="host")
    assert seen() == (1, 0, 0) and time.monotonic() - before < 5


def test_threads_compile_the_same_once_and_others_at_once(fresh):
    kernels, barrier = [], threading.Barrier(8)

    def work(number):
        barrier.wait()
        kernels.append(attn.compile(spec(name=f"k{number % 2}"), device="host"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 8 and len(set(kernels)) == 2
    assert seen() == (2, 0, 0)


def test_a_forked_child_gets_kernels_of_its_own(fresh):
    kernel = attn.compile(spec(), device="host")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                kernel.plan({})
            except attn.DeviceError as error:
                mine = attn.compile(spec(), device="host")
                status = 0 if "forked" in str(error) and mine is not kernel else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert attn.compile(spec(), device="host") is kernel


# --- Bundles -------------------------------------------------------------------------------------------------


def write(path, *names):
    asked = [requests.request_for(spec(name=name), target="sm_90a", form="host") for name in names]
    bundle.write_bundle(path, [(request, artifacts.artifact(request)[1]) for request in asked])


def test_bundles_serve_where_nothing_may_be_compiled(fresh, monkeypatch):
    write(fresh / "two.attn", "a", "b")
    monkeypatch.setenv("ATTN_CACHE_DIR", str(fresh / "empty"))
    artifacts.disk_cache.cache_clear()
    loaded = attn.load_bundle(fresh / "two.attn")
    assert loaded.kernels == ("a for sm_90a on the host device", "b for sm_90a on the host device")
    with attn.forbid_compiling():
        assert attn.compile(spec(name="a"), device="host").entry == "a"
        with pytest.raises(attn.CacheMiss):
            attn.compile(spec(name="c"), device="host")
    assert artifacts.counts.from_bundle == 1
    assert not (fresh / "empty").exists()


def test_damaged_and_foreign_bundles(fresh, monkeypatch):
    path = fresh / "bundle.attn"
    write(path, "a")
    content = path.read_bytes()
    for odd in (b"", b"attn bundle 1\n", content[:-1], content + b"x", content[:200], b"y" + content[1:]):
        path.write_bytes(odd)
        with pytest.raises(attn.Error, match="bundle"):
            attn.load_bundle(path)
    for place in range(14, len(content), 997):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(attn.Error, match="damaged"):
            attn.load_bundle(path)
    path.write_bytes(content)
    info = requests.build_info()
    monkeypatch.setattr(requests, "build_info", lambda: dict(info, producer="another"))
    with pytest.raises(attn.Error, match="made by .* and this is another"):
        attn.load_bundle(path)
    monkeypatch.setattr(requests, "build_info", lambda: dict(info, host_target="x86-64-v9"))
    loaded = attn.load_bundle(path)
    assert loaded.kernels == () and "x86-64-v9" in loaded.skipped[0]


@pytest.mark.parametrize(
    "note",
    ["x", "[]", "null", "{}", "[" * 100_000, '{"producer": 1}', '{"key": "k", "about": []}'],
    ids=lambda n: n[:9],
)
def test_bundles_with_odd_notes(fresh, note):
    _, entry = artifacts.artifact(requests.request_for(spec(), target="sm_90a", form="host"))
    (fresh / "odd.attn").write_bytes(_attn.join_artifacts([(entry.payload, note)]))
    with pytest.raises(
        attn.Error, match=r"odd.attn: expected a bundle made by python -m attn.aot, got an artifact with"
    ):
        attn.load_bundle(fresh / "odd.attn")


def test_aot_compiles_what_a_file_describes(fresh):
    (fresh / "specs.py").write_text("""
import attn
def make(name, **changes):
    return attn.Spec(name=name, q_heads=2, kv_heads=1, head_dim=32, dtype="float16", see=attn.causal(),
                     **({"kv": [attn.Dense()]} | changes))
single = make("single")
several = {"a": make("a"), "more": [make("b"), make("b")]}
""")
    (fresh / "text.mlir").write_text(spec(name="text").mlir())
    run = [
        sys.executable,
        "-m",
        "attn.aot",
        fresh / "specs.py",
        fresh / "text.mlir",
        "-o",
        fresh / "out.attn",
    ]
    environment = dict(os.environ, PYTHONPATH=str(PYTHON))
    done = subprocess.run(
        [*run, "--device=host"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "out.attn: 4 kernels" in done.stdout
    names = {name.split()[0] for name in attn.load_bundle(fresh / "out.attn").kernels}
    assert names == {"single", "a", "b", "text"}

    for content, message in (("x = 1", "no attn.Spec"), ("import attn; attn.Spec()", "missing|expected")):
        (fresh / "specs.py").write_text(content)
        done = subprocess.run(
            [*run, "--device=host"], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode != 0 and any(part in done.stderr for part in message.split("|"))
    run = [*run[:3], fresh / "text.mlir", "-o", fresh / "x.attn", "--target=sm_9"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120)
    assert "target: expected sm_80, sm_86" in done.stderr
    assert done.returncode == 2


def test_aot_makes_code_for_gpus_without_one(fresh):
    (fresh / "text.mlir").write_text(spec(name="text").mlir())
    run = [sys.executable, "-m", "attn.aot", fresh / "text.mlir", "-o", fresh / "out.attn", "--device=cuda"]
    environment = dict(os.environ, PYTHONPATH=str(PYTHON))
    done = subprocess.run(
        [*run, "--target=sm_80", "--target=sm_90a"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert attn.load_bundle(fresh / "out.attn").kernels == ("text for sm_80", "text for sm_90a")
    with attn.forbid_compiling():
        artifacts.artifact(requests.request_for(spec(name="text"), target="sm_80", form="cuda"))


def test_aot_goes_on_where_it_was_interrupted(fresh):
    (fresh / "specs.py").write_text(
        "import attn\n"
        "specs = [attn.Spec(name=f'n{i}', q_heads=2, kv_heads=1, head_dim=64, dtype='float16', see=attn.causal(),"
        " kv=[attn.Dense()]) for i in range(12)]"
    )
    run = [sys.executable, "-m", "attn.aot", fresh / "specs.py", "-o", fresh / "out.attn", "--device=host"]
    environment = dict(os.environ, PYTHONPATH=str(PYTHON))
    with subprocess.Popen(
        run,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Also where this process ignores the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert first and process.returncode == 130, said
    assert "out.attn was not written; the kernels compiled so far are in" in said and "Traceback" not in said
    assert not list(fresh.glob("out.attn*"))
    assert any(path.name.startswith(first.split()[0]) for path in fresh.rglob("*")), (
        "it is in the cache on disk"
    )
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "12 kernels" in done.stdout, done.stderr


def test_files_of_artifacts_are_loaded_and_bundles_say_that_they_are_none(fresh):
    """Files that attn-opt makes are loaded: several functions, several targets, no compiler. Bundles name themselves in
    the refusal."""
    path = fresh / "k.attn"
    made = [
        _attn.compile(spec(name=name).mlir(), target=target, forms=forms, name=name).artifact
        for name, target, forms in (
            ("a", "sm_90a", ["host", "ptx"]),
            ("a", "sm_80", ["ptx"]),
            ("b", "sm_90a", ["host"]),
        )
    ]
    path.write_bytes(_attn.join_artifacts([(one, "") for one in made]))
    rows = _attn.read_artifacts(path.read_bytes(), str(path))
    assert [(row["entry"], row["target"], row["forms"], row["note"]) for row in rows] == [
        ("a", "sm_90a", ["host", "ptx"], ""),
        ("a", "sm_80", ["ptx"], ""),
        ("b", "sm_90a", ["host"], ""),
    ]
    assert [row["file"] for row in rows] == made
    with attn.forbid_compiling():
        kernel = attn.load(path, entry="b", device="host")
    compiled = attn.compile(spec(name="b"), device="host")
    assert (kernel.entry, kernel.target, kernel.manifest) == ("b", "sm_90a", compiled.manifest)
    tensors = attn.sample(spec(name="b"), batch=2, kv_len=(5, 40))
    pages = tensors["kv.k_pages"], tensors["kv.v_pages"]
    loaded, own = (k.run(tensors["q"], pages, k.plan(tensors)) for k in (kernel, compiled))
    assert loaded.tobytes() == own.tobytes()
    for entry, message in (("", "more than one function"), ("c", "has no function 'c'; it has 'a', 'b'")):
        with pytest.raises(attn.CompileError, match=message):
            attn.load(path, entry=entry, device="host")
    with pytest.raises(attn.Error, match="which attn.load takes"):
        attn.load_bundle(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    with pytest.raises(attn.CompileError, match="damaged or altered"):
        attn.load(path, entry="b", device="host")
    with pytest.raises(FileNotFoundError):
        attn.load(fresh / "nothing", device="host")


# --- Messages ------------------------------------------------------------------------------------------------


class Terminal:
    def __init__(self, tty=True):
        self.text, self.tty = "", tty

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_long_compilations_are_spoken_of_on_terminals_only(fresh, monkeypatch):
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.02)
    compile = _attn.compile

    def slow(*arguments, **named):
        time.sleep(0.3)
        return compile(*arguments, **named)

    monkeypatch.setattr(_attn, "compile", slow)
    for tty in (True, False):
        terminal = Terminal(tty)
        monkeypatch.setattr(sys, "stderr", terminal)
        attn.compile(spec(name=f"tty{tty}"), device="host")
        if tty:
            assert "compiling ttyTrue for sm_90a" in terminal.text
            assert terminal.text.endswith("\r\033[K"), "the line is gone afterwards"
        else:
            assert terminal.text == ""
