"""The rooms of the Python package and of the host device: which file needs which, and how many there are in each."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "attn"
SOURCES = ROOT / "runtime" / "src"
HOST = SOURCES / "host"
MOST_FILES = 25


def modules(package):
    """The dotted name of each module, and its file. An extension is there by its stub."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, known):
    """The modules of the package that a module imports: anywhere, so also in functions and for type checkers."""
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
    """The folder that a module lies in. A module of the package's own folder has a public name and stands alone: the
    exceptions and the extension are below all rooms, the others above them."""
    parent = name.rpartition(".")[0]
    return parent if "." in parent and path.name != "__init__.py" else name


def cycle(graph):
    """Names that lead from one to the next and back to the first; None where there are none."""
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
    """What each module imports, and what each room does."""
    known = modules(package)
    by_module = {name: imports(name, path, known) for name, path in known.items()}
    rooms = {name: room_of(name, path) for name, path in known.items()}
    by_room = {}
    for name, imported in by_module.items():
        by_room.setdefault(rooms[name], set()).update({rooms[other] for other in imported} - {rooms[name]})
    return by_module, by_room


def include_graphs(folder, sources):
    """What each file below the folder includes of it, and what each room does. `sources`: what paths begin at."""
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


def too_full(folder, *suffixes):
    rooms = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    counts = {room: sum(path.suffix in suffixes for path in room.iterdir()) for room in rooms}
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


def test_rooms_of_the_host_device_include_no_cycle():
    graph = include_graphs(HOST, SOURCES)[1]
    assert set(graph) == {"async", "count", "detect", "execute", "machine"}
    found = cycle(graph)
    assert found is None, " -> ".join(found)


def test_rooms_are_small():
    assert too_full(PACKAGE, ".py", ".pyi") + too_full(HOST, ".h", ".cpp") == []


@pytest.fixture
def planted(tmp_path):
    """A package with the rooms low and high, in which high imports low."""
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
