#!/usr/bin/env python3
"""Runs a development task with all its set-up: `python3 dev.py test`. Without arguments it lists the tasks.

Needs Python 3.11 or newer and nothing else. The tasks are the sessions of noxfile.py; nox is installed into
`.venv-dev`, and what a task itself needs into `.nox`.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

NOX = "nox>=2025.5.1,<2027"
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv-dev"


def sessions() -> dict[str, str]:
    """Name and first line of each session in noxfile.py, read without nox."""
    found = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(
            "nox.session" in ast.unparse(d) for d in node.decorator_list
        ):
            found[node.name] = (ast.get_docstring(node) or "").partition("\n")[0]
    return found


def run(command: list[str]) -> int:
    """Runs `command` to its end; Ctrl-C reaches it as well, and it is given the time to clean up."""
    interrupts = 0
    with subprocess.Popen(command, cwd=ROOT) as process:
        # Ended from outside (a time limit): the task is interrupted, or its ranks would live on.
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts == 3:
                    process.kill()
    return 130 if interrupts else code


def quiet(command: list[str]) -> str:
    """Runs `command`; its output if it failed, else nothing."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout.strip() or f"exit code {done.returncode}"


def dev_python() -> Path:
    """The Python of `.venv-dev` with nox in it, made at need."""
    python = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = VENV / "made-with.txt"
    wanted = f"{NOX}\n{sys.version}\n{VENV}\n"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"setting up {VENV.name}", file=sys.stderr, flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    if problem := quiet([sys.executable, "-m", "venv", str(VENV)]):
        raise SystemExit(
            f"dev.py: cannot make a virtual environment:\n{problem}\n"
            "hint: on Debian and Ubuntu, install python3-venv; then run this again"
        )
    if problem := quiet([str(python), "-m", "pip", "install", "--quiet", NOX]):
        raise SystemExit(
            f"dev.py: cannot install nox:\n{problem}\n"
            "hint: pip needs to reach a package index; then run this again"
        )
    stamp.write_text(wanted, encoding="utf-8")
    return python


def main(arguments: list[str]) -> int:
    """Runs the session that `arguments` name; what follows the name is passed on to it."""
    known = sessions()
    if not arguments or arguments[0] in {"-h", "--help"}:
        print("usage: python3 dev.py SESSION [ARGUMENTS]\n")
        for name, line in known.items():
            print(f"  {name:<9} {line}")
        return 0
    name, *rest = arguments
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if name not in known:
        print(f"dev.py: no session '{name}'; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    command = [str(dev_python()), "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), "--session", name]
    return run([*command, "--", *rest] if rest else command)


if __name__ == "__main__":
    if sys.version_info < (3, 11):
        sys.exit(
            f"dev.py needs Python 3.11 or newer, and this is {sys.version.split()[0]}.\n"
            "hint: run it with a newer one, as in 'python3.12 dev.py test'"
        )
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
