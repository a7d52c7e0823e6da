"""dev.py: the first command that a newcomer runs."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import python

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="dev.py needs Python 3.11")


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python(ROOT / "dev.py", *arguments)


def test_without_arguments_it_lists_the_sessions() -> None:
    done = dev()
    assert done.returncode == 0
    assert done.stderr == ""
    lines = [line.split(None, 1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {"demo", "test", "lint", "asan", "tsan", "bench", "wheel"} <= {line[0] for line in lines}
    assert all(len(line) == 2 and line[1].endswith(".") for line in lines)
    assert dev("--help").stdout == done.stdout


def test_an_unknown_session_is_refused_by_name() -> None:
    done = dev("tset")
    assert done.returncode == 2
    assert "tset" in done.stderr
    assert "there are: demo, test, " in done.stderr


def test_an_old_python_is_refused() -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 1, 'final', 0);"
        f"runpy.run_path({str(ROOT / 'dev.py')!r}, run_name='__main__')"
    )
    done = python("-c", code)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["test"], []),
        (["test", "-k", "x"], ["--", "-k", "x"]),
        (["test", "--", "-k", "x"], ["--", "-k", "x"]),
    ],
)
def test_arguments_go_to_the_session_and_the_exit_code_comes_back(
    given: list[str], passed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(ROOT / "dev.py"))["main"]
    commands: list[list[str]] = []

    def record(command: list[str]) -> int:
        commands.append(command)
        return 7

    monkeypatch.setitem(main.__globals__, "dev_python", lambda: Path("python"))
    monkeypatch.setitem(main.__globals__, "run", record)
    assert main(given) == 7
    [command] = commands
    assert command[:3] == ["python", "-m", "nox"]
    assert command[command.index("--session") + 1 :] == ["test", *passed]


def test_the_exit_code_of_the_task_is_passed_on() -> None:
    run = runpy.run_path(str(ROOT / "dev.py"))["run"]
    assert run([sys.executable, "-c", "raise SystemExit(5)"]) == 5


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
def test_a_task_that_is_ended_from_outside_is_interrupted() -> None:
    task = (
        "import time\n"
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('cleaned up', flush=True); raise SystemExit(3)"
    )
    code = (
        f"import runpy; run = runpy.run_path({str(ROOT / 'dev.py')!r})['run'];"
        f"raise SystemExit(run([{sys.executable!r}, '-c', {task!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "cleaned up\n"
        assert process.wait(timeout=30) == 3
