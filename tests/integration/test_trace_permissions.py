"""A trace tells hosts, paths and a model's structure: only the user who records it may read it."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest
from support.ranks import run_ranks

import pyddpdiag


def _job(rank: int, _: int, folder: str) -> None:
    # The most generous mask there is: what is closed now was closed on purpose.
    os.umask(0)
    with pyddpdiag.Recorder(Path(folder) / "run"):
        assert rank == 0
        # Until it was looked at once.
        while not (Path(folder) / "run" / "rank_0.lines").exists():
            time.sleep(0.01)


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows: a new file takes over its folder's list of rights"
)
def test_files_of_a_trace_are_their_owners_only(tmp_path: Path) -> None:
    run_ranks(_job, 1, tmp_path, str(tmp_path))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "run").iterdir()}
    assert modes == {"rank_0.ddptrace": 0o600, "rank_0.json": 0o600, "rank_0.lines": 0o600}
