"""Reads the samples of the ranks' Python stacks. They are optional, bounded and never trusted."""

from __future__ import annotations

import json
from typing import Final

from pyddpdiag.model.lines import Lines, from_json, lines_beside
from pyddpdiag.system.regular_file import RegularFile
from pyddpdiag.trace.reader import RankTrace

FILE_LIMIT: Final = 2**20
"""Bytes of one file: several times what a recorder writes."""

RUN_LIMIT: Final = 64 * 2**20
"""Bytes of all of a run: of a thousand ranks."""


class LinesReader:
    """Reads the samples of one run, which share a budget: many files cost no more than a few large ones."""

    def __init__(self) -> None:
        self._bytes = RUN_LIMIT

    def read(self, trace: RankTrace) -> Lines | None:
        """The samples beside a trace; None: there are none of its run, or they cannot be understood."""
        try:
            with RegularFile(lines_beside(trace.path)) as file:
                if file.size > min(FILE_LIMIT, self._bytes):
                    return None
                self._bytes -= file.size
                lines = from_json(json.loads(file.read(0, FILE_LIMIT)))
        except (OSError, ValueError, RecursionError):
            return None
        return lines if lines is not None and lines.run_id == trace.header.run_id else None
