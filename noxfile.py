"""The project's development tasks. `python3 dev.py NAME` runs one with all its set-up, `nox -s NAME` as well.

Environment variables: PYDDPDIAG_TORCH, the exact torch version to build and test with (default below).
PYDDPDIAG_PROMISED, what must not be left out here: wine, libcxx, windows-torch (session `windows`, all supported
versions), tcp-info and namespaces (tests), slurm and schedulers (session `slurm`), and for session `test` the examples
that need Lightning, Accelerate and transformers (frameworks), the tools that open pages and exports (tools), a browser
(chromium) and Perfetto (perfetto).
PYDDPDIAG_UNITY=OFF compiles the native module file by file. That is for work on its C++: several times slower the
first time, then only the changed files are compiled. The build folder remembers it until PYDDPDIAG_UNITY=ON.

Longer than 400 lines: nox reads all sessions from one file.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["test"]
# Sessions share virtual environments (class Venv): torch is too big to be installed once per session.
nox.options.default_venv_backend = "none"
nox.options.stop_on_first_error = False

ROOT = Path(__file__).resolve().parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
# The newest patch of each supported minor.
TORCH_VERSIONS = ("2.11.0", "2.12.1", "2.13.0")
# Exact: pip would take a range as leave to download another build of torch than the one at hand.
TORCH = os.environ.get("PYDDPDIAG_TORCH", TORCH_VERSIONS[-1])
PROMISED = os.environ.get("PYDDPDIAG_PROMISED", "").split(",")
UNITY = os.environ.get("PYDDPDIAG_UNITY", "")
WINDOWS = sys.platform == "win32"


def group(*names: str) -> list[str]:
    """The requirements of dependency groups in pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


@contextmanager
def timed(session: nox.Session, what: str, expected: str = "", every_s: float = 15.0) -> Iterator[None]:
    """Says what is being done, how long it has taken so far, and how long it took in the end."""
    begin = time.monotonic()
    done = threading.Event()

    def tell() -> None:
        while not done.wait(every_s):
            session.log(f"{what}: {time.monotonic() - begin:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    session.log(f"{what}: {expected}" if expected else what)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    session.log(f"{what}: done in {time.monotonic() - begin:.0f} s")


class Venv:
    """A virtual environment in `.nox` that several sessions use."""

    def __init__(self, session: nox.Session, name: str) -> None:
        self.session = session
        self.path = ROOT / ".nox" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
        self.scripts = self.path / ("Scripts" if WINDOWS else "bin")
        self.python = self.scripts / ("python.exe" if WINDOWS else "python")
        if not self.python.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            session.run(sys.executable, "-m", "venv", str(self.path), external=True)

    def run(
        self,
        *command: str | Path,
        silent: bool = False,
        env: Mapping[str, str | None] | None = None,
        success_codes: Sequence[int] = (0,),
    ) -> None:
        """Runs a program of this environment, which its children find first as well."""
        path = f"{self.scripts}{os.pathsep}{os.environ.get('PATH', '')}"
        self.session.run(
            shutil.which(str(command[0]), path=path) or str(command[0]),
            *map(str, command[1:]),
            # A source tree on the path would hide the installed package, which has the native module.
            env={"PATH": path, "VIRTUAL_ENV": str(self.path), "PYTHONPATH": None, **(env or {})},
            silent=silent,
            success_codes=success_codes,
            external=True,
            # Ranks and their launcher need a moment to end normally after Ctrl-C.
            interrupt_timeout=15,
        )

    def pip(self, *arguments: str | Path) -> None:
        """Runs pip; it is heard only when it fails."""
        self.run(self.python, "-m", "pip", *arguments, silent=True)

    @property
    def site(self) -> Path:
        """Where its packages are."""
        [folder] = self.path.glob("Lib/site-packages" if WINDOWS else "lib/python*/site-packages")
        return folder

    def install(self, stamp: str, requirements: Sequence[str]) -> None:
        """Installs `requirements` unless the last install under this stamp was the same one."""
        made_with = self.path / f"installed-{stamp}.txt"
        wanted = "\n".join(requirements)
        if not made_with.exists() or made_with.read_text(encoding="utf-8") != wanted:
            with timed(self.session, f"installing {stamp}"):
                self.pip("install", *requirements)
            made_with.write_text(wanted, encoding="utf-8")


def tools(session: nox.Session) -> Venv:
    """The build tools without torch: all that the core and its tests need."""
    venv = Venv(session, "tools")
    venv.install("build", group("build"))
    return venv


def torch_venv(session: nox.Session, *groups: str) -> Venv:
    """The environment with torch, the package's dependencies and `groups`; not yet the package itself."""
    venv = Venv(session, "torch")
    venv.install("torch", [f"torch=={TORCH}"])
    dependencies = PYPROJECT["tool"]["dynamic-metadata"][-1]["dependencies"]
    # torch again, so that no dependency moves it.
    venv.install("dependencies", [f"torch=={TORCH}", *dependencies, *group("build")])
    for name in groups:
        venv.install(name, group(name))
    return venv


def package_venv(session: nox.Session, *groups: str) -> Venv:
    """`torch_venv` with this tree's package in it.

    Editable, so that no stale copy is tested: the import hook takes the Python files from the tree and the
    native module from the environment, in whatever folder a test runs. The build folder persists: ninja
    compiles what changed, and nothing if nothing did.
    """
    venv = torch_venv(session, *groups)
    defines = [] if WINDOWS else ["--config-settings=cmake.define.PYDDPDIAG_WERROR=ON"]
    if UNITY:
        defines.append(f"--config-settings=cmake.define.PYDDPDIAG_UNITY={UNITY}")
    built_before = any((venv.site / "pyddpdiag").glob("_native.*"))
    expected = "what has changed" if built_before else "once, 1 to 2 minutes on two cores"
    with timed(session, "building the native module", expected):
        venv.pip("install", "--no-build-isolation", "--no-deps", *defines, "--editable", ROOT)
    return venv


def native_tests(venv: Venv, preset: str, **env: str) -> None:
    """Configures, builds and tests the core by a CMake preset; `env` is for the tests."""
    generator = [] if WINDOWS else ["-G", "Ninja"]
    venv.run("cmake", "--preset", preset, *generator, silent=True)
    with timed(venv.session, f"building the core's tests ({preset})"):
        venv.run("cmake", "--build", "--preset", preset, silent=True)
    # The whole output: tools/compare_cases.py counts the cases in it.
    results = f"--output-junit={ROOT / 'build' / preset / 'tests.xml'}"
    venv.run("ctest", "--preset", preset, results, "--test-output-size-passed=1000000", env=env)


def sanitizer_or_error(session: nox.Session, name: str) -> None:
    """Ends the session, and says why, on a machine whose compiler has no such sanitizer."""
    if WINDOWS:
        session.skip(f"the {name} sanitizer needs GCC or Clang on Linux")
    compiler = os.environ.get("CXX", "c++")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "main.cpp")
        source.write_text("int main() {}\n", encoding="utf-8")
        command = [compiler, f"-fsanitize={name}", str(source), "-o", str(Path(folder, "main"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            session.error(
                f"there is no C++ compiler '{compiler}': install g++ (Debian and Ubuntu: build-essential)"
            )
        if done.returncode != 0:
            session.error(
                f"'{compiler}' cannot link with -fsanitize={name}; install its runtime "
                f"(Fedora: lib{name[0]}san; Debian has it with g++):\n{done.stderr}"
            )


@nox.session
def demo(session: nox.Session) -> None:
    """Train a real model on 2 Gloo ranks with the native probes on, and report where the time went."""
    venv = package_venv(session)
    arguments = list(session.posargs)
    if "--trace" not in arguments:
        arguments += ["--trace", str(ROOT / "runs" / time.strftime("demo-%Y%m%d-%H%M%S"))]
    venv.run("pyddpdiag", "train", *arguments)


@nox.session
def test(session: nox.Session) -> None:
    """Test the core under ctest, then the package under pytest; --quick: those of tests/unit that are not slow."""
    venv = package_venv(session, "bench")
    quick = "--quick" in session.posargs
    rest = [option for option in session.posargs if option != "--quick"]
    if "frameworks" in PROMISED and not quick:
        venv.install("frameworks", [f"torch=={TORCH}", *group("frameworks")])
    if "tools" in PROMISED and not quick:
        venv.install("tools", [f"torch=={TORCH}", *group("tools")])
        # Alone: it asks for all of Jupyter, which its analyses do not use.
        venv.install("analysis", ["--no-deps", "HolisticTraceAnalysis>=0.5,<0.6"])
    if not quick:
        native_tests(venv, "dev")
    cores = max(2, os.cpu_count() or 1)
    # In this order, the long files first, or one of them would go on alone at the end.
    folders = (
        ["tests/unit", "-m", "not slow"] if quick else ["tests/faults", "tests/integration", "tests/unit"]
    )
    # Tests that start ranks wait half of their time, for them and for timeouts: so there is one more than cores. More
    # would be the other load that they have to tell from what they inject. A file's tests stay together: they share
    # what they start.
    together = ["--dist", "loadfile", "--no-loadscope-reorder"]
    side_by_side = ["-n", str(cores if quick else cores + 1), *together, "--durations=25"]
    # Python compiles a module once and not in each of the thousands of processes, also where it is told otherwise.
    venv.run("pytest", *(rest or [*side_by_side, *folders]), env={"PYTHONDONTWRITEBYTECODE": None})


@nox.session
def collecting(session: nox.Session) -> None:
    """Bring traces to real servers and back: S3, sftp (sshd), smb (Samba), emulators of gs and az, if there."""
    venv = package_venv(session, "test")
    venv.install("collecting", [f"torch=={TORCH}", *group("collecting")])
    venv.run("pytest", *(session.posargs or ["tests/collecting"]))


@nox.session
def torch_ddp(session: nox.Session) -> None:
    """Run torch's own DDP tests over Gloo, without and with our hooks: --world-size N, --only WORDS (of pytest -k)."""
    venv = package_venv(session, "test")
    venv.install("torch-ddp", [f"torch=={TORCH}", "expecttest>=0.2"])
    venv.run(venv.python, ROOT / "tools" / "torch_ddp_tests.py", *session.posargs)


@nox.session
def slurm(session: nox.Session) -> None:
    """Run the schedulers' lines of docs/schedulers.md: a SLURM of this machine alone, Open MPI, torchrun, accelerate.

    Takes root, and of Debian: apt-get install slurm-wlm munge openmpi-bin.
    """
    venv = package_venv(session, "test")
    venv.install("frameworks", [f"torch=={TORCH}", *group("frameworks")])
    tests = [f"tests/integration/{name}.py" for name in ("test_schedulers", "test_schedulers_slurm")]
    venv.run("pytest", *tests, *session.posargs)


@nox.session
def attack(session: nox.Session) -> None:
    """Attack the package at length, with figures at the end: mutated files, killed writers and ranks, closed recorders.

    PYDDPDIAG_ATTACK is how many cases there are (200000; one in a thousand where each starts a process),
    PYDDPDIAG_ATTACK_S the most seconds of each test (3600).
    """
    venv = package_venv(session, "test")
    venv.run("pytest", "tests/attack", "--timeout=0", *session.posargs)


@nox.session
def unchanged(session: nox.Session) -> None:
    """Draw trainings by seeds, and compare gradients and weights with and without trials and cures, bit by bit.

    PYDDPDIAG_SCENARIOS is how many for each number of ranks (100), PYDDPDIAG_SEED the first seed (1).
    """
    venv = package_venv(session, "test")
    number = os.environ.get("PYDDPDIAG_SCENARIOS", "100")
    test = "tests/integration/test_unchanged_by_cures.py"
    venv.run("pytest", test, "--timeout=0", *session.posargs, env={"PYDDPDIAG_SCENARIOS": number})


@nox.session
def accuracy(session: nox.Session) -> None:
    """Inject faults into real training, and count how often the report is right: --runs N, --seed S, --final.

    The figures go into docs/accuracy.md; the outcomes of all runs, from which they can be made again, under runs/.
    """
    venv = package_venv(session, "test")
    # Its hosts are those that the tests have.
    path = os.pathsep.join([str(ROOT / "accuracy"), str(ROOT / "tests")])
    command: list[str | Path] = [venv.python, "-m", "bed", "--page", ROOT / "docs" / "accuracy.md"]
    venv.run(*command, *session.posargs, env={"PYTHONPATH": path})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, floors, C++ and workflows; --quick: the fast part, --long: the rest, mostly clang-tidy."""
    venv = torch_venv(session, "lint")
    sources = sorted(p for d in ("csrc", "tests", "benchmarks") for p in (ROOT / d).rglob("*.[ch]pp"))
    github = Path(".github")
    workflows = sorted((github / "workflows").glob("*.yml"))
    forms = [path for path in sorted((github / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
    schema = ["check-jsonschema", "--builtin-schema"]
    part = next((option for option in ("--quick", "--long") if option in session.posargs), "")
    files = [name for name in session.posargs if name != part]
    fast: dict[str, list[str | Path]] = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy"],
        "mypy (tools)": [
            "mypy",
            "--python-version=3.11",
            "dev.py",
            "noxfile.py",
            "cmake/torch_pin.py",
            *sorted(Path("tools").glob("*.py")),
        ],
        "import-linter": ["lint-imports", "--no-logo"],
        "rules of the tree": ["pytest", "-q", "--no-header", "tests/unit/tree/test_style.py"],
        "clang-format": ["clang-format", "--dry-run", "-Werror", *sources],
    }
    rest: dict[str, list[str | Path]] = {
        "workflows": [*schema, "vendor.github-workflows", *workflows],
        "workflows (security)": ["zizmor", "--offline", "--no-progress", "--quiet", github / "workflows"],
        "issue forms": [*schema, "vendor.github-issue-forms", *forms],
        "dependabot": [*schema, "vendor.dependabot", github / "dependabot.yml"],
        "clang-tidy": [venv.python, "tools/tidy.py", "--python", venv.python, *files],
    }
    steps = {"--quick": fast, "--long": rest}.get(part, fast | rest)
    failed = []
    for name, command in steps.items():
        try:
            venv.run(*command)
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site: pages, API from docstrings, commands from their options. Warnings are errors."""
    venv = package_venv(session, "docs")
    site = ROOT / "build" / "site"
    venv.run("python", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", site)
    session.log(f"{site / 'index.html'}")


@nox.session
def asan(session: nox.Session) -> None:
    """Run the core's tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    sanitizer_or_error(session, "address")
    sanitizer_or_error(session, "undefined")
    native_tests(tools(session), "asan")


@nox.session
def tsan(session: nox.Session) -> None:
    """Run the core's tests under ThreadSanitizer."""
    sanitizer_or_error(session, "thread")
    native_tests(tools(session), "tsan")


@nox.session
def windows(session: nox.Session) -> None:
    """Check for Windows: the core's tests with libc++ and under wine, the rest with torch's real headers and DLLs."""
    if WINDOWS:
        session.skip("on Windows itself, the session 'test' does this with the native compiler")
    venv = tools(session)
    absent = [name for name in ("x86_64-w64-mingw32-g++-posix", "wine") if shutil.which(name) is None]
    if not absent:
        # A Windows folder of its own: the user's ~/.wine stays as it is.
        native_tests(venv, "windows", WINEPREFIX=str(ROOT / ".nox" / "wine"))
        native_tests(venv, "dev")
        both = [ROOT / "build" / preset / "tests.xml" for preset in ("dev", "windows")]
        venv.run(venv.python, ROOT / "tools" / "compare_cases.py", *both)
    else:
        why = f"no {absent[0]} here; on Debian: apt-get install g++-mingw-w64-x86-64-posix wine"
        if "wine" in PROMISED:
            session.error(why)
        session.warn(f"the core's tests under wine are left out: {why}")
    # What Windows does otherwise and Python can show anywhere; none of these tests needs torch.
    venv.install("neutral", [*PYPROJECT["tool"]["dynamic-metadata"][-1]["dependencies"], *group("test")])
    neutral = (
        "tree/test_windows_again.py",
        "tree/test_windows_forms.py",
        "tools/test_windows_tools.py",
        "tree/test_style.py",
        "tree/test_documented_commands.py",
        "ranks/test_ranks_rendezvous.py",
        "ranks/test_ranks_leftovers.py",
    )
    venv.run(venv.python, "-m", "pytest", "-q", *(f"tests/unit/{name}" for name in neutral))
    # Each version takes minutes: all of them where they are promised, elsewhere the one that is tested with.
    versions = TORCH_VERSIONS if "windows-torch" in PROMISED else (TORCH,)
    checks = {
        "libcxx.py": "libcxx",
        "windows_syntax.py": "windows-torch",
        "windows_exports.py": "windows-torch",
    }
    for tool, name in checks.items():
        # 77: it says that this machine cannot check, and why.
        accepted = [0] if name in PROMISED else [0, 77]
        venv.run(venv.python, ROOT / "tools" / tool, *versions, success_codes=accepted)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks, or those that are named, and keep their figures under runs/."""
    venv = package_venv(session, "sweep")
    (ROOT / "runs").mkdir(exist_ok=True)
    result = ROOT / "runs" / time.strftime("bench-%Y%m%d-%H%M%S.json")
    venv.run(
        "pytest",
        "--override-ini=testpaths=benchmarks",
        "--benchmark-only",
        f"--benchmark-json={result}",
        *session.posargs,
    )


@nox.session
def wheel(session: nox.Session) -> None:
    """Build sdist and wheel into dist/; check, demonstrate and test the wheel away from the tree."""
    venv = torch_venv(session, "wheel", "test")
    with tempfile.TemporaryDirectory() as folder:
        built, repaired = Path(folder, "built"), Path(folder, "repaired")
        with timed(session, "building sdist and wheel", "about 2 minutes on two cores"):
            venv.run("python", "-m", "build", "--no-isolation", "--outdir", built, ROOT, silent=True)
        [sdist], [wheel_file] = built.glob("*.tar.gz"), built.glob("*.whl")
        # As the release does it: the same commands.
        system = "windows" if WINDOWS else "linux"
        command = str(PYPROJECT["tool"]["cibuildwheel"][system]["repair-wheel-command"])
        for part in command.split(" && "):
            words = [w.format(wheel=wheel_file, dest_dir=repaired, project=ROOT) for w in shlex.split(part)]
            venv.run(*words, silent=True)
        [wheel_file] = repaired.glob("*.whl")

        fresh = Path(folder, "fresh")
        session.run(sys.executable, "-m", "venv", str(fresh), external=True)
        scripts = fresh / venv.scripts.relative_to(venv.path)
        python = str(scripts / venv.python.name)
        session.run(python, "-m", "pip", "install", "--no-deps", str(wheel_file), external=True, silent=True)
        # The dependencies, torch above all, are borrowed as a plain folder: no second copy of gigabytes, and
        # the editable install beside them stays asleep.
        [fresh_site] = fresh.glob("Lib/site-packages" if WINDOWS else "lib/python*/site-packages")
        (fresh_site / "borrowed.pth").write_text(f"{venv.site}\n", encoding="utf-8")
        elsewhere = Path(folder, "elsewhere")
        for name in ("tests", "examples"):
            shutil.copytree(ROOT / name, elsewhere / name)
        shutil.copy2(ROOT / "pyproject.toml", elsewhere)
        program = scripts / ("pyddpdiag.exe" if WINDOWS else "pyddpdiag")
        with session.chdir(elsewhere):
            for step in (
                [python, ROOT / "tools" / "check_wheel.py", wheel_file],
                [program, "train", "--trace", "demo"],
                [python, "-m", "pytest", "tests/integration", *session.posargs],
            ):
                session.run(
                    *map(str, step),
                    env={"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": None},
                    external=True,
                )
        (ROOT / "dist").mkdir(exist_ok=True)
        for file in (sdist, wheel_file):
            shutil.copy2(file, ROOT / "dist")
            session.log(f"dist/{file.name}")
