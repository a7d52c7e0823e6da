"""A recorder that another thread closes while DDP trains. At length: tests/attack."""

from pathlib import Path

from support.closing import rounds
from support.ranks import run_ranks


def test_no_crash_no_hang_no_half_record(tmp_path: Path) -> None:
    [records] = run_ranks(rounds, 1, tmp_path, str(tmp_path / "runs"), 0, 30)
    assert records > 30 * 4
