"""Empty arrays that the ranks of a run share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.trace_writer import write_training

from pyddpdiag.analyse.intake import Empty, Intake
from pyddpdiag.trace.run import open_run


@dataclass(frozen=True, eq=False)
class Part:
    values: np.ndarray[Any, Any]
    by_name: dict[str, Any]
    within: Part | None = None


def part() -> Part:
    return Part(
        np.empty(0), {"rows": np.empty((0, 3)), "full": np.ones(2), "text": "x"}, Part(np.empty(0, int), {})
    )


def test_each_sort_of_empty_array_is_there_once() -> None:
    empty = Empty()
    first, second = (empty.shared(part()) for _ in range(2))
    assert first.values is second.values and first.values.dtype == np.float64
    assert first.by_name["rows"] is second.by_name["rows"] and first.by_name["rows"].shape == (0, 3)
    assert first.within.values is second.within.values and first.within.values.dtype == int
    assert first.by_name["full"] is not second.by_name["full"] and first.by_name["text"] == "x"


def test_ranks_that_recorded_little_have_no_empty_arrays_of_their_own(tmp_path: Path) -> None:
    write_training(tmp_path, steps=10, world_size=3)
    intake = Intake()
    open_run(tmp_path, intake.take)
    found: dict[int, int] = {}

    def count(value: Any) -> None:
        if isinstance(value, np.ndarray):
            found[id(value)] = found.get(id(value), 0) + (not value.size)
        elif isinstance(value, dict):
            list(map(count, value.values()))
        elif hasattr(value, "__dataclass_fields__"):
            list(map(count, vars(value).values()))

    list(map(count, intake.ranks))
    shared = [times for times in found.values() if times]
    assert sum(shared) > 60 and all(times % 3 == 0 for times in shared)
