"""What is to be arranged once in a process, however often it is asked for."""

from __future__ import annotations

import os


class OncePerProcess:
    """Says in each process once that it is the first time; a forked child has not done what its parent did."""

    def __init__(self) -> None:
        self._done: set[int] = set()

    def first_time(self) -> bool:
        """True when it is called for the first time in this process."""
        process = os.getpid()
        if process in self._done:
            return False
        self._done.add(process)
        return True
