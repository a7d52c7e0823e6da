"""Moves whole records. NumPy moves a structured record field by field; these functions move its 128 bytes at
once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.trace.layout import RECORD, RECORD_BYTES, Kind, Records

WHOLE: Final = np.dtype(f"V{RECORD_BYTES}")


def take(records: Records, chosen: npt.NDArray[np.int64]) -> Records:
    """A copy of the chosen records."""
    return np.asarray(records.view(WHOLE).take(chosen).view(records.dtype))


def joined(parts: Sequence[Records]) -> Records:
    """A copy of this machine's records of all parts, one part after the other."""
    return np.concatenate([np.empty(0, WHOLE), *(part.view(WHOLE) for part in parts)]).view(RECORD)


class Table:
    """Records of this machine's byte order, appended piece by piece; memory grows with them and is kept by `clear`."""

    def __init__(self) -> None:
        self._rows = np.empty(0, WHOLE)
        self._count = 0

    def __len__(self) -> int:
        """Number of records."""
        return self._count

    def clear(self) -> None:
        """Forget all records; the next ones overwrite the views that were handed out."""
        self._count = 0

    def append(self, piece: Records, chosen: npt.NDArray[np.int64]) -> Records:
        """Append the chosen records of a piece, and return a view of them, valid until the next call."""
        end = self._count + len(chosen)
        if end > len(self._rows):
            self._resize(max(end, len(self._rows) + len(self._rows) // 8))
        rows = self._rows[self._count : end]
        np.take(piece.view(WHOLE), chosen, out=rows, mode="clip")
        self._count = end
        return rows.view(RECORD)

    def keep(self, first: int, good: npt.NDArray[np.bool_]) -> None:
        """Of the records from `first` on, keep those that are `good`."""
        kept = self._rows[first : self._count][good]
        self._rows[first : first + len(kept)] = kept
        self._count = first + len(kept)

    def records(self) -> Records:
        """All records, valid until the next call of any other method."""
        return self._rows[: self._count].view(RECORD)

    def fit(self) -> None:
        """Give back the memory that is not needed."""
        self._resize(self._count)

    def _resize(self, rows: int) -> None:
        # In place, which moves no byte on Linux. Nobody holds a view: see `append`.
        self._rows.resize(rows, refcheck=False)


class Tables:
    """A table for each kind of record. One rank after the other can be read into the same ones."""

    def __init__(self) -> None:
        self.by_kind = {kind: Table() for kind in Kind}

    def clear(self) -> None:
        """Forget all records."""
        for table in self.by_kind.values():
            table.clear()

    def fit(self) -> None:
        """Give back the memory that is not needed."""
        for table in self.by_kind.values():
            table.fit()
