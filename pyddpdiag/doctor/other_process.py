"""Another Python process beside the checks, for what takes seconds, may fail, or crash."""

from __future__ import annotations

import subprocess
import sys


class OtherProcess:
    """Runs this Python with some arguments and keeps what it prints."""

    def __init__(self, *arguments: str) -> None:
        """Start it; nothing waits for it yet."""
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    @property
    def exit_code(self) -> int | None:
        """None: it runs."""
        return self._process.returncode

    def output(self, timeout_s: float) -> tuple[str, str] | None:
        """Its standard output and standard error; None: it did not end in time, and was ended."""
        try:
            return self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
