"""The recorder's watchdog speaks once per standstill, and leaves the training alone."""

import time
from pathlib import Path

import pytest
import torch
from support.hooked import train
from support.models import branches
from support.ranks import run_ranks
from support.stuck import training, wait_for
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import UsageError
from pyddpdiag.system.threads import names

WATCHDOG_S = 2.0


def test_every_rank_says_who_holds_it_up_and_says_it_once(tmp_path: Path) -> None:
    with training(tmp_path, 2, "sleeps", watchdog_s=WATCHDOG_S) as ranks:
        said = [ranks.folder / f"stderr_{rank}" for rank in range(2)]

        def texts() -> list[str]:
            return [path.read_text(encoding="utf-8", errors="replace") for path in said]

        wait_for(lambda: all("Python stack" in text for text in texts()), 60)
        time.sleep(2 * WATCHDOG_S)
        for rank, text in enumerate(texts()):
            assert text.count("no progress for") == 1, text
            assert f"rank {rank}: no progress for" in text
            assert "Rank 1 is stuck in its own code" in text
            assert "Traceback" not in text
        # Each in the signs that its stream can show.
        assert "\u2500" in texts()[0] and "???" not in texts()[1] and "-----" in texts()[1]
        assert "in oversleep" in texts()[1] and "in backward" in texts()[0]
        assert all(process.is_alive() for process in ranks.processes)


def _watched_training(rank: int, world_size: int, folder: Path) -> list[str]:
    """The names of the threads while a recorder with a watchdog is open, and after it is closed."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    seen = []
    with pyddpdiag.Recorder(folder / "run", watchdog_s=1.0) as recorder:
        recorder.attach(ddp)
        train(ddp, rank, 4)
        seen += ["open " + name for name in names().values()]
        # Nothing is recorded on purpose: that is not a standstill.
        recorder.pause()
        time.sleep(2.0)
        recorder.resume()
    seen += ["closed " + name for name in names().values()]
    for seconds in (0.5, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="watchdog_s"):
            pyddpdiag.Recorder(folder / "other", watchdog_s=seconds)
    return seen


def test_it_ends_with_the_recorder_and_is_silent_while_paused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seen in run_ranks(_watched_training, 2, tmp_path, tmp_path, spawned=True):
        assert "open pyddpdiag watchdog" in seen and "closed pyddpdiag watchdog" not in seen
    assert "no progress" not in capfd.readouterr().err
