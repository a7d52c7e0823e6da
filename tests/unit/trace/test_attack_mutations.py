"""A short form of `python3 dev.py attack`: some mutated traces and sidecars."""

from __future__ import annotations

from pathlib import Path

from support.attack import Length, attack


def test_mutated_files_give_a_report_or_one_clear_error(tmp_path: Path) -> None:
    found = attack(tmp_path, Length(cases=2000, seconds=8))
    assert found.cases > 20
    assert 0 < found.read < found.cases or found.cases < 100
    assert found.slowest_bytes < 64 * 2**20
