"""A process that is killed as it makes a recorder leaves a whole trace or none. At length: tests/attack."""

import sys
from pathlib import Path

import pytest
from support.creation_victim import kill_and_check, run_again


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has no files without a name: a trace without a header was never started",
)
def test_a_whole_trace_or_none(tmp_path: Path) -> None:
    unpublished = False
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        made, unpublished = kill_and_check(folder, seed)
        assert made >= 3
    run_again(folder, overwrite=not unpublished)
