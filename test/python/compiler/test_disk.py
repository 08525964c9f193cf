# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache on disk: contents, entries that it rejects, and many processes at once."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from attn.compiler import disk
from attn.compiler.disk import DiskCache, Entry, default_directory, default_limit
from attn.errors import Error

PYTHON = Path(__file__).resolve().parents[3] / "python"
KEY = "0123456789abcdef" * 2
ENTRY = Entry(bytes(range(256)) * 40, {"entry": "decode", "seconds": 0.5})


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache")


def file_of(cache, key=KEY):
    return cache.directory / f"{key}.attn"


def quiet(cache, key=KEY):
    """Load where a warning is expected, and return the warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        entry = cache.load(key)
    return entry, [str(warning.message) for warning in caught]


def refuse():
    raise AssertionError("built although the entry was there")


def test_without_a_home_nothing_is_kept(monkeypatch):
    """A container may run as a user without an entry in the password database."""

    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "ATTN_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.warns(RuntimeWarning, match="there is no home directory; set ATTN_CACHE_DIR or HOME"):
        cache = DiskCache()
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert cache.state()["problem"].startswith("there is no home directory")


# --- Contents ------------------------------------------------------------------------------------------------


def test_entries_come_back(cache):
    assert cache.load(KEY) is None
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert cache.get(KEY, refuse) == (ENTRY, True)
    assert DiskCache(cache.directory.parent).get(KEY, refuse) == (ENTRY, True)
    assert (cache.counts.stored, cache.counts.misses, cache.counts.hits) == (1, 1, 1)


def test_everything_is_private(cache):
    before = os.umask(0)
    try:
        cache.store(KEY, ENTRY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.directory.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(cache).stat().st_mode) == 0o600


def test_a_moved_directory_still_serves(cache, tmp_path):
    cache.store(KEY, ENTRY)
    cache.directory.parent.rename(tmp_path / "elsewhere")
    assert DiskCache(tmp_path / "elsewhere").get(KEY, refuse) == (ENTRY, True)
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)


def test_a_failed_build_leaves_nothing(cache):
    with pytest.raises(ZeroDivisionError):
        cache.get(KEY, lambda: 1 / 0)
    assert cache.entries() == []
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)


def test_the_directory_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "attn"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == Path("~/.cache/attn").expanduser()
    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / "mine"))
    assert default_directory() == tmp_path / "mine"


def test_the_limit_is_what_the_environment_says(monkeypatch):
    for text, size in {
        "": 1 << 30,
        "0": 0,
        "4096": 4096,
        "12k": 12 << 10,
        "3M": 3 << 20,
        "2G": 2 << 30,
    }.items():
        monkeypatch.setenv("ATTN_CACHE_SIZE", text)
        assert default_limit() == size
    for text in ("much", "-1", "1T", "K", "1.5G", "²"):
        monkeypatch.setenv("ATTN_CACHE_SIZE", text)
        with pytest.raises(Error, match="ATTN_CACHE_SIZE: expected bytes"):
            default_limit()


# --- Its size ------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_goes_first(cache):
    size = 10_000
    cache.limit = 5 * size
    for number in range(4):
        cache.store(f"{number:032x}", Entry(bytes(size), {}))
        past = time.time() - 100 + number
        os.utime(file_of(cache, f"{number:032x}"), (past, past))
    assert cache.load(f"{0:032x}")  # used now, so the next entry is the oldest
    cache.store(f"{4:032x}", Entry(bytes(size), {}))
    kept = {int(key, 16) for key, _, _ in cache.entries()}
    assert kept == {0, 2, 3, 4}
    assert cache.counts.evicted == 1


def test_an_entry_larger_than_the_cache_is_not_kept(cache):
    cache.limit = 1000
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert cache.entries() == []


def test_a_limit_of_zero_turns_it_off(tmp_path):
    cache = DiskCache(tmp_path / "cache", limit=0)
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert not (tmp_path / "cache").exists()


def test_parts_of_dead_writers_are_removed(cache):
    cache.store(KEY, ENTRY)
    old, new = cache.directory / "a.1.x.part", cache.directory / "b.1.x.part"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.store("f" * 32, ENTRY)
    assert not old.exists() and new.exists()


def test_clear(cache):
    cache.store(KEY, ENTRY)
    assert cache.state() | {"bytes": 0} == {
        "directory": str(cache.directory),
        "problem": None,
        "entries": 1,
        "bytes": 0,
        "limit": 1 << 30,
    }
    cache.clear()
    assert cache.state()["entries"] == 0


# --- Rejected entries ----------------------------------------------------------------------------------------


def damage(path):
    content = path.read_bytes()
    yield "empty", b""
    yield "magic", b"x" + content[1:]
    yield "torn", content[: len(content) // 2]
    yield "longer", content + b"\0"
    for place in (14, 40, 46, 50, 80, 84, len(content) - 1):
        yield f"bit at {place}", content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_changed_entries_are_built_anew(cache):
    cache.store(KEY, ENTRY)
    cases = list(damage(file_of(cache)))
    for name, content in cases:
        file_of(cache).write_bytes(content)
        assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False), name
        assert cache.get(KEY, refuse) == (ENTRY, True), name
    assert cache.counts.rejected == len(cases)


@pytest.mark.parametrize(
    "about", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000], ids=lambda a: a[:4]
)
def test_entries_that_say_nothing_of_themselves_are_built_anew(cache, about):
    """An entry with a valid hash and without a description of itself is built anew."""
    rest = b"".join(
        [len(KEY).to_bytes(4, "little"), KEY.encode(), len(about).to_bytes(4, "little"), about, b"payload"]
    )
    cache.store(KEY, ENTRY)
    file_of(cache).write_bytes(disk._MAGIC + hashlib.blake2b(rest, digest_size=disk._DIGEST).digest() + rest)
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert cache.counts.rejected == 1


def test_entries_under_another_name_are_foreign(cache):
    cache.store(KEY, ENTRY)
    file_of(cache).rename(file_of(cache, "f" * 32))
    assert cache.load("f" * 32) is None
    assert cache.counts.rejected == 1


def test_planted_files_are_not_followed(cache, tmp_path):
    cache.store(KEY, ENTRY)
    good = tmp_path / "good"
    file_of(cache).rename(good)

    def link():
        file_of(cache).symlink_to(good)

    def pipe():
        os.mkfifo(file_of(cache))

    def writable():
        file_of(cache).write_bytes(good.read_bytes())
        file_of(cache).chmod(0o666)

    for plant in (link, pipe, writable):
        plant()
        assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False), plant.__name__
        assert file_of(cache).is_file() and not file_of(cache).is_symlink()
        file_of(cache).unlink()
    assert good.exists()


def test_a_directory_in_an_entrys_place_is_said(cache):
    cache.store(KEY, ENTRY)
    file_of(cache).unlink()
    file_of(cache).mkdir()
    with pytest.warns(RuntimeWarning, match="cannot write .*kernels"):
        assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    assert [file.name for file in cache.directory.iterdir() if file.suffix == ".part"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_is_not_used(cache):
    cache.store(KEY, ENTRY)
    os.chown(file_of(cache), 12345, -1)
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    os.chown(cache.directory, 12345, -1)
    entry, said = quiet(cache)
    assert entry is None and "belongs to user 12345" in said[0]
    os.chown(cache.directory, 0, -1)
    os.chown(cache.directory.parent, 12345, -1)
    entry, said = quiet(cache)
    assert entry is None and "belongs to user 12345" in said[0]


def test_a_directory_open_to_others_is_not_used(cache):
    cache.store(KEY, ENTRY)
    for path, mode, word in (
        (cache.directory, 0o755, "chmod 700"),
        (cache.directory.parent, 0o770, "chmod go-w"),
        (cache.directory.parent, 0o1777, "chmod go-w"),
    ):
        path.chmod(mode)
        entry, said = quiet(cache)
        assert entry is None and word in said[0] and f"{mode & 0o777:o}" in said[0]
        assert quiet(cache) == (None, []), "said twice"
        assert cache.state()["problem"] and cache.state()["entries"] == 0
        path.chmod(0o700)
        assert cache.load(KEY) == ENTRY, "good again once it was mended"


def test_linked_directories_are_not_used(cache, tmp_path):
    cache.store(KEY, ENTRY)
    (tmp_path / "link").symlink_to(cache.directory.parent)
    entry, said = quiet(DiskCache(tmp_path / "link"))
    assert entry is None and "is a symbolic link" in said[0]
    cache.directory.rename(tmp_path / "moved")
    cache.directory.symlink_to(tmp_path / "moved")
    entry, said = quiet(cache)
    assert entry is None and "is a symbolic link" in said[0]


def test_where_nothing_can_be_written_kernels_are_built(tmp_path):
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "below")
    with pytest.warns(RuntimeWarning, match="keeps no compiled kernels on disk"):
        assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)


# --- Many at once --------------------------------------------------------------------------------------------

BUILDER = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from attn.compiler.disk import DiskCache, Entry
cache = DiskCache(sys.argv[2])
built = []
while not os.path.exists(sys.argv[3]):
    time.sleep(0.001)
for number in range(20):
    number = (number * 7 + int(sys.argv[4])) % 20
    def build():
        built.append(number)
        time.sleep(0.01)
        return Entry(bytes([number]) * 200_000, {"number": number})
    entry, _ = cache.get(f"{number:032x}", build)
    assert entry.payload == bytes([number]) * 200_000 and entry.about == {"number": number}
print(json.dumps(built))
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, str(PYTHON), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_build_everything_once(tmp_path):
    processes = [start(BUILDER, tmp_path / "cache", tmp_path / "go", number) for number in range(8)]
    time.sleep(0.3)
    (tmp_path / "go").touch()
    built = []
    for process in processes:
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        built += json.loads(out)
    assert sorted(built) == list(range(20)), "each once, over all processes"
    names = sorted(file.name for file in (tmp_path / "cache" / "kernels").iterdir())
    assert names == [f"{number:032x}.attn" for number in range(20)] + ["lock"]


def test_threads_build_everything_once(cache):
    built = []

    def build():
        built.append(threading.get_ident())
        time.sleep(0.05)
        return ENTRY

    threads = [threading.Thread(target=cache.get, args=(KEY, build)) for _ in range(8)]
    other = DiskCache(cache.directory.parent)  # another object in the same process
    threads += [threading.Thread(target=other.get, args=(KEY, build)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from attn.compiler.disk import DiskCache
with DiskCache(sys.argv[2]).lock(sys.argv[3]) as alone:
    print(alone, flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_no_lock(cache):
    process = start(HOLDER, cache.directory.parent, KEY)
    assert process.stdout.readline() == "True\n"
    with cache.lock(KEY, patience=0.05) as alone:
        assert not alone, "it is held"
    with cache.lock("f" * 32, patience=0.05) as alone:
        assert alone, "of another key"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    before = time.monotonic()
    with cache.lock(KEY) as alone:
        assert alone and time.monotonic() - before < 1


def test_who_waits_too_long_builds_alone(cache, monkeypatch):
    monkeypatch.setattr(DiskCache.lock.__wrapped__, "__defaults__", (0.05,))
    process = start(HOLDER, cache.directory.parent, KEY)
    assert process.stdout.readline() == "True\n"
    assert cache.get(KEY, lambda: ENTRY) == (ENTRY, False)
    process.kill()
    process.communicate()


def test_a_forked_child_holds_nothing(cache):
    """A forked child owns neither the locks of its parent's threads nor those of its parent."""
    inside, leave = threading.Event(), threading.Event()
    told, tell = os.pipe()
    checked, check = os.pipe()

    def hold():
        with cache.lock(KEY):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with cache.lock(KEY, patience=0.05) as alone:
            held = not alone
        with cache.lock("f" * 32, patience=0.05) as other:
            pass
        os.write(check, b"x")
        os.read(told, 1)
        with cache.lock(KEY, patience=5) as alone:
            os._exit(0 if held and other and alone else 1)
    os.close(check)  # A child that has died is the end of the pipe.
    os.read(checked, 1)
    with cache.lock(KEY, patience=0.05) as alone:
        assert not alone, "the child let go of the parent's lock"
    leave.set()
    thread.join()
    os.write(tell, b"x")
    assert os.waitpid(child, 0)[1] == 0
    with cache.lock(KEY, patience=0.05) as alone:
        assert alone


def test_descriptors_do_not_pile_up(cache):
    cache.get(KEY, lambda: ENTRY)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        DiskCache(cache.directory.parent).get(f"{number:032x}", lambda: ENTRY)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.alone
def test_a_hit_is_quick(cache):
    entry = Entry(os.urandom(1 << 20), {})
    cache.store(KEY, entry)
    fastest = float("inf")
    for _ in range(20):
        before = time.perf_counter()
        assert cache.load(KEY) == entry
        fastest = min(fastest, time.perf_counter() - before)
    assert fastest < 5e-3, f"{fastest * 1e3:.2f} ms for a kernel of 1 MiB"
