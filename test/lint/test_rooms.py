# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dependencies of the packages of Python, the compiler and the host device, and the number of files in each."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "attn"
SOURCES = ROOT / "runtime" / "src"
HOST = SOURCES / "host"
MOST_FILES = 25
# Kernels and forests that host tests plant, each in a file, and measured results.
LARGE = {"test/host/planted", "benchmarks/results"}
# The packages of the benchmarks: measuring, measured parts, and plots.
BENCHMARKS = {"measuring": set(), "parts": {"measuring"}, "plots": {"measuring", "parts"}}


def modules(package):
    """Return the dotted name of each module, and its file. An extension is there by its stub."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, known):
    """Return the modules of the package that a module imports anywhere, also in functions and for type checkers."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                of_module = f"{source}.{alias.name}"
                found |= {of_module if of_module in known else source} & known.keys()
    return found - {name}


def room_of(name, path):
    """Return the folder of a module. A module of the package's own folder has a public name and stands alone: the
    exceptions and the extension are below all other packages, the others above them."""
    parent = name.rpartition(".")[0]
    return parent if "." in parent and path.name != "__init__.py" else name


def cycle(graph):
    """Return names that lead from one to the next and back to the first; None if there are none."""
    done, path = set(), []

    def walk(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, map(walk, sorted(graph.get(name, ())))), None)
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(walk, sorted(graph))), None)


def graphs(package):
    """Return the imports of each module, and of each folder."""
    known = modules(package)
    by_module = {name: imports(name, path, known) for name, path in known.items()}
    rooms = {name: room_of(name, path) for name, path in known.items()}
    by_room = {}
    for name, imported in by_module.items():
        by_room.setdefault(rooms[name], set()).update({rooms[other] for other in imported} - {rooms[name]})
    return by_module, by_room


def include_graphs(folder, sources):
    """Return the includes of each file below the folder, and of each of its folders. `sources`: the folder that paths
    begin at."""
    by_file, by_room = {}, {}
    for path in sorted([*folder.rglob("*.h"), *folder.rglob("*.cpp")]):
        named = re.findall(r'^#include "(.+)"', path.read_text(), flags=re.M)
        found = {place / name for name in named for place in (path.parent, sources)}
        found = {file for file in found if file.is_file() and file.is_relative_to(folder)}
        by_file[str(path.relative_to(sources))] = {str(file.relative_to(sources)) for file in found}
        by_room.setdefault(path.parent.name, set()).update(
            {file.parent.name for file in found} - {path.parent.name}
        )
    return by_file, by_room


class Rooms:
    """The libraries that a CMake file declares: the links of each, and the names of their headers."""

    def __init__(self, root, declaration, sources, headers, names):
        self.root, self.sources, self.headers, self.names = root, root / sources, root / headers, dict(names)
        text = next(
            f
            for f in (self.sources / "CMakeLists.txt", self.sources.parent / "CMakeLists.txt")
            if f.is_file()
        )
        text = re.sub(r"#.*", "", text.read_text())
        self.links, self.shown = {}, {}
        for declared in re.findall(rf"^{declaration}\(([^)]*)\)", text, flags=re.M):
            room, *words = declared.split()
            at = words.index("LINKS") if "LINKS" in words else len(words)
            self.links[room] = set(words[at + 1 :])
            self.shown[room] = words[words.index("HEADERS") + 1] if "HEADERS" in words else None

    def folder(self, room):
        """Return the folder of its public headers, relative to that of all headers."""
        return room

    def files(self):
        """Yield the files of each library: those of its folder, and its public headers."""
        for room in self.links:
            for folder in (self.sources / room, self.headers / self.folder(room)):
                for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                    if path.suffix in (".h", ".cpp", ".cc"):
                        yield room, path

    def complaints(self):
        """Yield includes of libraries that are not linked, and of headers that belong to none."""
        for room, path in self.files():
            for name in re.findall(r'^#include "(.+)"', path.read_text(), flags=re.M):
                folder = name.rpartition("/")[0]
                beside = path.parent / name.removesuffix(".inc")  # A kernel's text, embedded.
                if name.startswith(("mlir/", "llvm/")) or (not folder and beside.is_file()):
                    continue
                other = self.names.get(folder, self.names.get(folder.partition("/")[0]))
                where = f"{path.relative_to(self.root)} includes {name}"
                if other is None:
                    yield f"{where}, which is no room's"
                elif other not in (room, *self.links[room]):
                    yield f"{where}: {room} does not link {other}"

    def strays(self):
        """Return sources and headers that are in no library."""
        of_rooms = {path for _, path in self.files()}
        for folder in (self.sources, self.headers):
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".h", ".cpp", ".cc") and path not in of_rooms:
                    yield str(path.relative_to(self.root))


class Compiler(Rooms):
    """Public headers are in include/attn; headers beside the sources are visible to others if the declaration says so."""

    def __init__(self, root):
        others = {"attn_rt": "attn_rt", "attn_rt/capi": "attn_rt_capi", "attn-c": "attn_c"}
        super().__init__(root, "attn_room", "lib", "include/attn", others)
        self.names |= {f"attn/{room}": room for room in self.links}
        self.names |= {name: room for room, name in self.shown.items() if name}


class Runtime(Rooms):
    """Headers are in attn_rt, under the library's name or another, and beside its sources."""

    def __init__(self, root):
        super().__init__(root, "attn_rt_room", "runtime/src", "runtime/include/attn_rt", {})
        self.names |= {room: room for room in self.links}
        self.names |= {f"attn_rt/{self.folder(room)}": room for room in self.links}

    def folder(self, room):
        return self.shown[room] or room


def too_full(folder, *suffixes):
    """Return folders with more files than allowed, counting these suffixes, or without any all files."""
    rooms = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    counts = {
        room: sum(path.is_file() and (not suffixes or path.suffix in suffixes) for path in room.iterdir())
        for room in rooms
        if "__pycache__" not in room.parts
    }
    return [f"{room.relative_to(folder.parent)}: {n} files" for room, n in counts.items() if n > MOST_FILES]


def test_modules_import_no_cycle():
    found = cycle(graphs(PACKAGE)[0])
    assert found is None, " -> ".join(found)


def test_rooms_import_no_cycle():
    found = cycle(graphs(PACKAGE)[1])
    assert found is None, " -> ".join(found)


def test_files_of_the_host_device_include_no_cycle():
    found = cycle(include_graphs(HOST, SOURCES)[0])
    assert found is None, " -> ".join(found)


PRODUCTS = {
    f"attn.{name}"
    for name in (
        "adapters",
        "dualkv",
        "generation",
        "heads",
        "kv_policy",
        "serving",
        "sglang",
        "training",
        "vllm",
    )
}
COMPILER = {f"attn.{name}" for name in ("cache", "compiler", "describe", "memory", "run")}


def test_the_compiler_imports_no_product():
    graph = graphs(PACKAGE)[1]
    assert graph.keys() > PRODUCTS | COMPILER
    for room in COMPILER:
        assert graph[room] <= COMPILER | {"attn._attn", "attn.errors", "attn.forks"}


def test_rooms_of_the_host_device_include_no_cycle():
    graph = include_graphs(HOST, SOURCES)[1]
    assert set(graph) == {"async", "count", "detect", "execute", "machine"}
    found = cycle(graph)
    assert found is None, " -> ".join(found)


@pytest.mark.parametrize("rooms", [Compiler(ROOT), Runtime(ROOT)], ids=["compiler", "runtime"])
def test_rooms_link_what_they_include_and_no_cycle(rooms):
    assert len(rooms.links) > 15 and len(list(rooms.files())) > 100
    assert list(rooms.complaints()) == []
    found = cycle(rooms.links)
    assert found is None, " -> ".join(found)


def test_all_sources_are_in_a_room():
    assert list(Compiler(ROOT).strays()) == ["lib/Precompiled.h"]
    # The C API is above all libraries of the runtime.
    assert {str(Path(name).parent) for name in Runtime(ROOT).strays()} == {
        "runtime/include/attn_rt/capi",
        "runtime/src/capi",
    }


def test_rooms_are_small():
    full = [
        room
        for name in ("benchmarks", "include", "lib", "python", "runtime", "test", "tools")
        for room in too_full(ROOT / name)
    ]
    assert [room for room in full if room.partition(":")[0] not in LARGE] == []
    assert {room.partition(":")[0] for room in full} == LARGE


@pytest.mark.parametrize("room", BENCHMARKS)
def test_rooms_of_benchmarks(room):
    """Benchmarks import only packages below theirs, and no program."""
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    for path in (ROOT / "benchmarks" / room).glob("*.py"):
        tree = ast.walk(ast.parse(path.read_text()))
        found = {
            name.partition(".")[0]
            for node in tree
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
        }
        assert found & (BENCHMARKS.keys() | programs) <= BENCHMARKS[room] | {room}, path


@pytest.fixture
def planted(tmp_path):
    """Make a package with the folders low and high, in which high imports low."""
    package = tmp_path / "package"
    files = {
        "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .high.b import f as f\n",
        "errors.py": "",
        "low/__init__.py": "",
        "low/a.py": "from ..errors import Error\n",
        "low/c.py": "from . import a\n",
        "high/__init__.py": "",
        "high/b.py": "from ..low.c import g\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return package


def test_an_order_is_no_cycle(planted):
    by_module, by_room = graphs(planted)
    assert by_module["package.high.b"] == {"package.low.c"}
    assert by_room["package.high"] == {"package.low"} and by_room["package.low"] == {"package.errors"}
    assert cycle(by_module) is None and cycle(by_room) is None


@pytest.mark.parametrize(
    "text",
    [
        "from .c import x\n",
        "from . import c\n",
        "def f():\n    from .c import x\n",
        "if TYPE_CHECKING:\n    from .c import x\n",
        "import package.low.c\n",
        "from package.low import c\n",
    ],
)
def test_a_cycle_of_modules_is_named(planted, text):
    (planted / "low/a.py").write_text(text)
    by_module, by_room = graphs(planted)
    found = cycle(by_module)
    assert found[0] == found[-1] and set(found) == {"package.low.a", "package.low.c"}
    assert cycle(by_room) is None


def test_a_cycle_of_rooms_is_named(planted):
    (planted / "high/d.py").write_text("")
    (planted / "low/a.py").write_text("def f():\n    from ..high import d\n")
    by_module, by_room = graphs(planted)
    assert cycle(by_module) is None
    assert cycle(by_room) == ["package.high", "package.low", "package.high"]


def test_a_full_room_is_named(planted):
    for i in range(MOST_FILES):
        (planted / "low" / f"m{i}.py").write_text("")
    assert too_full(planted, ".py", ".pyi") == [f"package/low: {MOST_FILES + 3} files"]


def test_a_cycle_of_includes_is_named(tmp_path):
    files = {
        "host/low/a.h": '#include "b.h"\n#include "attn_rt/Elsewhere.h"\n',
        "host/low/b.h": "",
        "host/low/b.cpp": '#include "host/high/c.h"\n',
        "host/high/c.h": '#include "host/low/a.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    by_file, by_room = include_graphs(tmp_path / "host", tmp_path)
    assert by_file["host/high/c.h"] == {"host/low/a.h"} and cycle(by_file) is None
    assert cycle(by_room) == ["high", "low", "high"]
    (tmp_path / "host/low/b.h").write_text('#include "a.h"\n')
    assert cycle(include_graphs(tmp_path / "host", tmp_path)[0]) == [
        "host/low/a.h",
        "host/low/b.h",
        "host/low/a.h",
    ]


@pytest.fixture
def compiler(tmp_path):
    """Make a compiler with the libraries Low, High and High/Up, in which High links Low, and High/Up both."""
    files = {
        "lib/CMakeLists.txt": "# attn_room(None)\nattn_room(Low LINKS attn_rt)\nattn_room(High HEADERS high\n  LINKS Low)\n"
        "attn_room(High/Up LINKS High Low)\n",
        "include/attn/Low/L.h": '#include "attn_rt/tensor/Store.h"\n',
        "lib/Low/L.cpp": '#include "L.h"\n#include "attn/Low/L.h"\n#include "mlir/IR/Builders.h"\n#include <vector>\n',
        "lib/Low/L.h": "",
        "include/attn/High/H.h": '#include "attn/Low/L.h"\n',
        "lib/High/own.h": "",
        "lib/High/Up/U.cpp": '#include "high/own.h"\n#include "attn/High/H.h"\n#include "attn/Low/L.h.inc"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_links_and_includes_agree(compiler):
    rooms = Compiler(compiler)
    assert rooms.links == {"Low": {"attn_rt"}, "High": {"Low"}, "High/Up": {"High", "Low"}}
    assert list(rooms.complaints()) == [] and list(rooms.strays()) == [] and cycle(rooms.links) is None


@pytest.mark.parametrize(
    ("name", "include", "complaint"),
    [
        ("lib/Low/L.cpp", "attn/High/H.h", ": Low does not link High"),
        ("include/attn/Low/L.h", "high/own.h", ": Low does not link High"),
        ("lib/High/H.cpp", "attn_rt/tensor/Store.h", ": High does not link attn_rt"),
        ("lib/Low/L.cpp", "attn_rt/capi/Objects.h", ": Low does not link attn_rt_capi"),
        ("lib/High/H.cpp", "../Low/L.h", ", which is no room's"),
        ("lib/High/H.cpp", "Up/V.h", ", which is no room's"),
        ("lib/High/Up/U.cpp", "own.h", ", which is no room's"),
    ],
)
def test_an_include_without_link_is_named(compiler, name, include, complaint):
    (compiler / name).write_text(f'#include "{include}"\n')
    assert list(Compiler(compiler).complaints()) == [f"{name} includes {include}{complaint}"]


def test_a_source_without_room_is_named(compiler):
    (compiler / "lib/High/Other").mkdir()
    (compiler / "lib/High/Other/O.cpp").write_text("")
    assert list(Compiler(compiler).strays()) == ["lib/High/Other/O.cpp"]


def test_links_and_includes_of_the_runtime_agree(tmp_path):
    files = {
        "runtime/CMakeLists.txt": "attn_rt_room(low)\nattn_rt_room(host/high HEADERS host LINKS low)\n",
        "runtime/src/low/L.cpp": '#include "attn_rt/low/L.h"\n',
        "runtime/include/attn_rt/low/L.h": "",
        "runtime/include/attn_rt/host/H.h": '#include "attn_rt/low/L.h"\n',
        "runtime/src/host/high/own.h": '#include "low/own.h"\n#include "attn_rt/host/H.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(Runtime(tmp_path).complaints()) == [] and list(Runtime(tmp_path).strays()) == []
    (tmp_path / "runtime/src/low/L.cpp").write_text(
        '#include "host/high/own.h"\n#include "attn_rt/host/H.h"\n'
    )
    assert list(Runtime(tmp_path).complaints()) == [
        "runtime/src/low/L.cpp includes host/high/own.h: low does not link host/high",
        "runtime/src/low/L.cpp includes attn_rt/host/H.h: low does not link host/high",
    ]
