"""Files at a place while they come: a part is never taken for the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import write_training

from pyddpdiag.remote.place import Place


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "run")
    return tmp_path / "run"


def test_a_file_of_which_only_a_part_has_come_is_not_seen(run: Path, tmp_path: Path) -> None:
    """Another machine may look while it is on its way."""
    there = tmp_path / "there"
    place = Place(there.as_uri())
    put, seen = place._fs.put_file, list[list[str]]()

    def slow(*given: Any) -> None:
        put(*given)
        seen.append(sorted(place.sizes()))

    place._fs.put_file = slow
    try:
        for _ in range(2):  # the second one takes the place of the first
            place.put(run / "rank_0.ddptrace", "rank_0.ddptrace")
    finally:
        place._fs.put_file = put
    assert seen == [["rank_0.ddptrace.part"], ["rank_0.ddptrace", "rank_0.ddptrace.part"]]
    assert list(place.sizes()) == ["rank_0.ddptrace"]
    assert (there / "rank_0.ddptrace").read_bytes() == (run / "rank_0.ddptrace").read_bytes()


@pytest.mark.parametrize("refused", [1, 2])
def test_a_place_that_renames_over_no_file_or_not_at_all_gets_it_all_the_same(
    run: Path, tmp_path: Path, refused: int
) -> None:
    there = tmp_path / "there"
    place = Place(there.as_uri())
    move, asked = place._fs.mv, list[str]()

    def refuses(old: str, new: str) -> None:
        asked.append(new)
        if len(asked) <= refused:
            raise OSError("Operation unsupported")
        move(old, new)

    place._fs.mv = refuses
    try:
        place.put(run / "rank_0.ddptrace", "rank_0.ddptrace")
    finally:
        place._fs.mv = move
    assert list(place.sizes()) == ["rank_0.ddptrace"] and len(asked) == 2
    assert (there / "rank_0.ddptrace").read_bytes() == (run / "rank_0.ddptrace").read_bytes()
