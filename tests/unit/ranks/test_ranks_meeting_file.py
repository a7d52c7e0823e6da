"""The launcher's own rendezvous file, and those that killed launchers left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyddpdiag.ranks import stale
from pyddpdiag.system import processes


def test_file_is_fresh_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stale.tempfile, "tempdir", str(tmp_path))
    with stale.fresh_file() as path:
        assert not path.exists()
        path.write_text("x")
        assert [path.parent] == list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_only_old_folders_of_dead_launchers_of_this_machine_are_swept(tmp_path: Path) -> None:
    here, pid, now = stale._machine_id(), os.getpid(), int(processes.started_at() * 1000)
    two_hours_ago = time.time() - 7200
    names = {
        f"pyddpdiag-rendezvous-{here}-{pid}-1000-a": True,
        f"pyddpdiag-rendezvous-{here}-{pid}-{now}-b": False,
        f"pyddpdiag-rendezvous-0123456789ab-{pid}-1000-c": False,
        "pyddpdiag-rendezvous-something": False,
        "other": False,
    }
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "store").write_text("x")
        os.utime(tmp_path / name, (two_hours_ago, two_hours_ago))
    young = tmp_path / f"pyddpdiag-rendezvous-{here}-{pid}-1000-young"
    young.mkdir()
    assert stale.sweep(tmp_path) == 1
    assert {p.name for p in tmp_path.iterdir()} == {young.name} | {
        n for n, swept in names.items() if not swept
    }
