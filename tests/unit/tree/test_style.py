"""Rules of the tree that no linter knows. Each checker is tried on a line that breaks its rule, too."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import posix_names
from support.commands import python

ROOT = Path(__file__).resolve().parents[3]
NATIVE = [p for folder in ("csrc", "tests/native") for p in sorted((ROOT / folder).rglob("*.[ch]pp"))]
PACKAGE = sorted((ROOT / "pyddpdiag").rglob("*.py"))
FOLDERS = ("pyddpdiag", "csrc", "tests", "accuracy", "cmake", "tools", "benchmarks", "examples")
SOURCES = [
    *(
        p
        for folder in FOLDERS
        for p in sorted((ROOT / folder).rglob("*"))
        if p.suffix in {".py", ".pyi", ".cpp", ".hpp", ".cmake"}
    ),
    ROOT / "noxfile.py",
    ROOT / "dev.py",
]

SYSTEM_WORDS = re.compile(
    r"_WIN32|__linux__|__APPLE__|[<\"](windows|winsock2|ws2tcpip|unistd|fcntl|pthread|sys/\w+)\.h[>\"]"
)
TORCH_HEADER = re.compile(r"#include [<\"](torch|ATen|c10|pybind11|Python)[/.]")
LENGTH_LIMIT = 400
LENGTH_EXCUSE = re.compile(r"(longer|more) than 400 lines", re.IGNORECASE)


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported: all but the bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            continue
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
                yield part
                yield from at_import(part)
        elif not isinstance(node, ast.Lambda):
            yield from at_import(node)


def posix_only(source: str) -> list[str]:
    """What in a Python module fails on Windows when it is imported."""
    found = []
    for node in at_import(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in posix_names.MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.partition(".")[0] in posix_names.MODULES:
                found.append(node.module)
            elif node.module in posix_names.NAMES:
                found += [a.name for a in node.names if posix_names.NAMES[node.module].fullmatch(a.name)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = posix_names.NAMES.get(node.value.id)
            if names is not None and names.fullmatch(node.attr):
                found.append(f"{node.value.id}.{node.attr}")
    return found


def branches_on_system(source: str) -> bool:
    """Whether a Python module asks which system it runs on."""
    return any(
        isinstance(node, ast.Attribute)
        and ast.unparse(node) in {"sys.platform", "os.name", "platform.system"}
        for node in ast.walk(ast.parse(source))
    )


# What runs code that came as data. Pipes between a launcher and the ranks that it spawned are not data from
# elsewhere; multiprocessing pickles there by itself.
CODE_FROM_DATA = {"eval", "exec", "compile", "__import__", "torch.load", "np.load", "numpy.load", "yaml.load"}
CODE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def runs_data(source: str) -> list[str]:
    """Calls and imports of a Python module that could run what a file or another machine sent."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            safe = {ast.unparse(k) for k in node.keywords} & {"weights_only=True", "allow_pickle=False"}
            shell = any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords)
            if (call in CODE_FROM_DATA and not safe) or shell or call in {"os.system", "os.popen"}:
                found.append(call)
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in CODE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in CODE_MODULES:
            found.append(str(node.module))
    return found


def speaks(source: str) -> list[str]:
    """Calls of a Python module that show text without pyddpdiag/output.py, which cleans it."""
    calls = (ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call
        for call in calls
        if call in {"print", "typer.echo", "typer.secho", "traceback.print_exc"}
        or re.fullmatch(r"sys\.(__)?std(out|err)(__)?\.write(lines)?", call)
    ]


def too_long(text: str) -> bool:
    """Whether a file is past the limit and doesn't say why."""
    return len(text.splitlines()) > LENGTH_LIMIT and LENGTH_EXCUSE.search(text) is None


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_there_is_something_to_check() -> None:
    assert len(NATIVE) > 10
    assert len(PACKAGE) > 3


def test_system_headers_only_in_the_platform_room() -> None:
    outside = [p for p in NATIVE if not name(p).startswith("csrc/platform/")]
    assert [name(p) for p in outside if SYSTEM_WORDS.search(read(p))] == []
    for line in ("#ifdef _WIN32", "#include <windows.h>", "#include <sys/mman.h>", "#include <unistd.h>"):
        assert SYSTEM_WORDS.search(line)


def test_torch_and_python_headers_only_in_their_rooms() -> None:
    outside = [p for p in NATIVE if not name(p).startswith(("csrc/torch/", "csrc/python/"))]
    assert [name(p) for p in outside if TORCH_HEADER.search(read(p))] == []
    for line in (
        "#include <torch/csrc/utils/pybind.h>",
        "#include <c10/util/intrusive_ptr.h>",
        "#include <Python.h>",
    ):
        assert TORCH_HEADER.search(line)


# What each native room may include of ours. Rooms are folders, and `torch/` alone is what the rooms below it share.
REDUCES = r"core/(kernels|lanes|shared)/\w+|core/trace/record|platform/\w+|torch/((flatten|reduce)/)?\w+"
NATIVE_ROOMS = {
    "csrc/platform/": r"platform/\w+",
    # One arrow: shared memory knows the kernels. The trace stands alone.
    "csrc/core/trace/": r"core/trace/\w+|platform/\w+",
    "csrc/core/kernels/": r"core/kernels/\w+|platform/\w+",
    "csrc/core/lanes/": r"core/lanes/\w+",
    "csrc/core/shared/": r"core/(shared|kernels)/\w+|platform/\w+",
    "csrc/torch/": r"(core/\w+|platform)/\w+|torch/\w+",
    "csrc/torch/flatten/": r"(core/kernels|platform)/\w+|torch/(flatten/)?\w+",
    # Paths act: they do not write records, and know nothing of who does. The words of a record they may use.
    "csrc/torch/reduce/": rf"{REDUCES}|torch/reduce/\w+/path",
    # No way to sum knows another one.
    **{
        f"csrc/torch/reduce/{way}/": rf"{REDUCES}|torch/reduce/{way}/\w+"
        for way in ("lanes", "shared", "sixteen_bit")
    },
    # Probes observe: of a path they see what it says of itself.
    "csrc/torch/probe/": r"core/(trace|kernels)/\w+|platform/\w+|torch/(probe/)?\w+|torch/reduce/facts",
    "csrc/torch/hook/": r"(core/\w+|platform)/\w+|torch/((probe|reduce(/\w+)?|hook)/)?\w+",
    "csrc/python/": r"(core/\w+|platform|python)/\w+|torch/(\w+/)*\w+",
}
OUR_INCLUDE = re.compile(r'#include "([^"]+)\.hpp"')


def banned(room: str, source: str) -> list[str]:
    """Includes that a file of this room must not have."""
    return [i for i in OUR_INCLUDE.findall(source) if re.fullmatch(NATIVE_ROOMS[room], i) is None]


def test_native_rooms_include_downward() -> None:
    found = [p for p in NATIVE if name(p).startswith("csrc/")]
    assert {f"{name(p.parent)}/" for p in found} == set(NATIVE_ROOMS)
    for path in found:
        assert banned(f"{name(path.parent)}/", read(path)) == [], name(path)


@pytest.mark.parametrize(
    ("room", "include"),
    [
        ("csrc/platform/", "core/trace/record"),
        ("csrc/core/trace/", "core/kernels/half"),
        ("csrc/core/kernels/", "core/shared/sum"),
        ("csrc/core/lanes/", "core/shared/sum"),
        ("csrc/core/shared/", "core/trace/record"),
        ("csrc/core/shared/", "torch/group"),
        ("csrc/torch/", "torch/probe/recorder"),
        ("csrc/torch/flatten/", "torch/reduce/path"),
        ("csrc/torch/reduce/", "torch/probe/recorder"),
        ("csrc/torch/reduce/", "core/trace/trace_file"),
        ("csrc/torch/reduce/lanes/", "torch/reduce/shared/ranks"),
        ("csrc/torch/probe/", "core/shared/exchange"),
        ("csrc/torch/probe/", "torch/reduce/path"),
        ("csrc/torch/probe/", "torch/hook/flights"),
        ("csrc/torch/hook/", "python/bindings"),
    ],
)
def test_the_check_of_the_native_rooms_finds(room: str, include: str) -> None:
    assert banned(room, f'#include "{include}.hpp"') == [include]


def circles(sources: dict[str, str]) -> set[str]:
    """Native files that include each other in a circle; `a.hpp` and `a.cpp` are one, by name without the ending."""
    left: dict[str, set[str]] = {}
    for file, source in sources.items():
        own = file.rpartition(".")[0]
        left.setdefault(own, set()).update(i for i in OUR_INCLUDE.findall(source) if i != own)
    while ready := {file for file, needs in left.items() if not needs & left.keys()}:
        left = {file: needs for file, needs in left.items() if file not in ready}
    return set(left)


def test_the_files_of_shared_memory_include_each_other_in_one_direction() -> None:
    room = {
        p.relative_to(ROOT / "csrc").as_posix(): read(p) for p in NATIVE if "csrc/core/shared/" in name(p)
    }
    assert len(room) > 20
    assert circles(room) == set()
    circle = {"a/b.hpp": "", "a/b.cpp": '#include "a/c.hpp"', "a/c.hpp": '#include "a/b.hpp"', "a/d.hpp": ""}
    assert circles(circle) == {"a/b", "a/c"}


def in_package(check: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What a check finds, by file."""
    return {name(path): found for path in PACKAGE if (found := check(read(path)))}


def test_imports_on_windows() -> None:
    assert in_package(posix_only) == {}


@pytest.mark.parametrize(
    "source",
    [
        *("import fcntl", "from resource import getrusage"),
        "try:\n    import pwd\nexcept ImportError:\n    pwd = None",
        *("import signal\nSTOP = signal.SIGKILL", "from signal import SIGKILL"),
        *("import os\ndef stop(uid=os.getuid()): pass", "import os\nclass A:\n    pid = os.fork()"),
    ],
)
def test_the_windows_check_finds(source: str) -> None:
    assert posix_only(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nPID = os.getpid()",
        "def stop():\n    import signal\n    return signal.SIGKILL",
        "import signal\nsignal.SIGTERM",
    ],
)
def test_the_windows_check_lets_pass(source: str) -> None:
    assert posix_only(source) == []


def test_no_data_is_run_as_code() -> None:
    assert in_package(runs_data) == {}


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from marshal import loads", "def f(text):\n    return eval(text)"),
        *("import torch\ntorch.load('a')", "import torch\ntorch.load('a', weights_only=False)"),
        *("import subprocess\nsubprocess.run('ls', shell=True)", "import os\nos.system('ls')"),
    ],
)
def test_the_check_for_code_in_data_finds(source: str) -> None:
    assert runs_data(source) != []


def test_the_check_for_code_in_data_lets_pass() -> None:
    assert runs_data("import torch\ntorch.load('a', weights_only=True)\nimport re\nre.compile('a')") == []


def test_nothing_forks() -> None:
    assert [
        name(p)
        for p in PACKAGE
        if re.search(r"\bos\.fork\b|get_context\(.fork|set_start_method\(.fork", read(p))
    ] == []


def test_one_place_asks_for_the_system() -> None:
    asking = [name(p) for p in PACKAGE if branches_on_system(read(p))]
    assert len(asking) <= 1, f"keep the branches on sys.platform in one module, not in {asking}"
    assert branches_on_system("import sys\nif sys.platform == 'win32': pass")


def test_text_leaves_the_program_in_one_place() -> None:
    assert in_package(speaks) == {}
    for line in ("print('a')", "import sys\nsys.stderr.write('a')", "traceback.print_exc()"):
        assert speaks(line)
    assert not speaks("say('a')\nscreen.print(b)\nfile.write(c)")


def test_text_for_a_screen_is_not_made_in_a_buffer_without_an_encoding() -> None:
    # The first is the buffer with one; the other makes the contents of files.
    allowed = {"output.py", "export/frames.py"}
    found = {p.relative_to(ROOT / "pyddpdiag").as_posix() for p in PACKAGE if "StringIO" in read(p)}
    assert found == allowed


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest takes the second one for the first, and then runs no test at all."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_long_files_say_why() -> None:
    assert [name(p) for p in SOURCES if too_long(read(p))] == []
    assert too_long("x\n" * 401)
    assert not too_long("x\n" * 401 + "# Longer than 400 lines: ...\n")


BOUND = re.compile(r'module\.(?:def|attr)\(\s*"(\w+)"|(?:class_|enum_)<.*?>\(module, "(\w+)"')


def bound(source: str) -> set[str]:
    """What a file of the bindings puts into the native module."""
    return {function or kind for function, kind in BOUND.findall(source)}


def test_bindings_and_their_stub_agree_and_are_used() -> None:
    stub = set(
        re.findall(r"^(?:def |class )?(\w+)[(:]", read(ROOT / "pyddpdiag" / "_native.pyi"), re.MULTILINE)
    )
    assert {n for p in NATIVE if "csrc/python/" in name(p) for n in bound(read(p))} == stub
    assert stub - {n for p in PACKAGE for n in re.findall(r"_native\.(\w+)", read(p))} == set()
    made = 'module.def(\n"a", &a);\npy::class_<B, std::shared_ptr<B>>(module, "B").def("b", &b)'
    assert bound(made) == {"a", "B"}


IMPORT_WITHOUT_TORCH = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch" or name == "pyddpdiag._native":
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Refuse())
import pyddpdiag
for room in ("errors", "model", "trace", "analyse", "pipeline", "report", "export", "plan", "live"):
    module = importlib.import_module(f"pyddpdiag.{room}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"pyddpdiag.{room}."):
        importlib.import_module(found.name)
        print(found.name)
print("torch" in sys.modules)
"""


def test_a_trace_is_read_and_reported_without_torch() -> None:
    done = python("-c", IMPORT_WITHOUT_TORCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "False"
