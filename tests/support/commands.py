"""Programs that a test runs to their end."""

import subprocess
import sys
from typing import Any


def ran(*command: object, timeout_s: float = 100, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a command said and its exit code, whatever that is. `options`: of subprocess.run, as `env` and `cwd`."""
    words = [str(word) for word in command]
    usual: dict[str, Any] = {"capture_output": True, "text": True, "encoding": "utf-8", "check": False}
    return subprocess.run(words, timeout=timeout_s, **usual | options)


def python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same of this interpreter."""
    return ran(sys.executable, *words, **options)
