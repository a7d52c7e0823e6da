"""Sweeps with real ranks: what a result file holds, and that nothing is lost when one ends early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from train_support import descendants, started

from pyddpdiag.bench.results import read
from pyddpdiag.ranks.interfaces import loopback

SMALL = ("allreduce", "--size", "4K,64K")


def bench(*options: object) -> list[str]:
    return [sys.executable, "-m", "pyddpdiag", "bench", *map(str, options)]


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def wait_for_rounds(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the result file is there, which is written as soon as something was measured."""
    deadline = time.monotonic() + 90
    while not path.exists():
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()}")
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = [p for p in descendants(process.pid) if "spawn_main" in " ".join(p.cmdline())]
    return sorted(found, key=lambda p: p.pid)


def test_a_sweep_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    options = ("--arch", "mlp_small", "--hook", "plain,native,torch_bf16,noop", "--bucket-cap-mb", "0.25")
    parts = f"{loopback()}=100,{loopback()}=300"
    lanes = ("--lanes", "off", "--lanes", parts)
    command = bench("buckets", *options, *lanes, "--nproc", "2", "--rounds", 6, "--output", path)
    with started(command, tmp_path) as process:
        code, out, err = end(process)
    assert code == 0, err
    assert str(path) in out and "torch_bf16" in out
    found = {e.extra_info["hook"]: e for e in read(path).entries}
    assert set(found) == {"plain", "native", f"native+lanes={parts}", "torch_bf16", "noop"}
    for hook, entry in found.items():
        info = entry.extra_info
        assert len(entry.round_s) == 6
        assert info["sittings"] == [3, 3]
        assert len(info["others_share"]) == 2 and all(0 <= share <= 1 for share in info["others_share"])
        assert info["parameters"] == 4 * 256 * 256
        assert info["batch_size"] == 2 and info["dtype"] == "float32" and info["bucket_cap_mb"] == 0.25
        assert info["torch"] and info["cpu"] and info["interfaces_by_rank"]
        assert (info["split"] is None) == (hook in ("torch_bf16", "noop"))
    split = found["native"].extra_info["split"]
    assert split["compute_s"] > 0 and split["wire_s"] > 0 and split["queue_s"] is not None
    assert found["native"].extra_info["split_from"] == "its own trace"
    assert found["plain"].extra_info["split_from"] == "a twin with the native hook"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["pyddpdiag"]["complete"] is True
    assert not list(tmp_path.glob("ddptrace*")) and not list(tmp_path.glob("runs"))


def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with started(bench(*SMALL, "--rounds", 10_000, "--output", path), tmp_path) as process:
        wait_for_rounds(path, process)
        ranks = ranks_of(process)
        interrupt(process)
        code, out, err = end(process)
    assert code == 130, (out, err)
    assert "--resume" in err and "65.5 kB" in out
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    before = {e.name: e.round_s for e in read(path).entries}
    assert before and json.loads(path.read_text())["pyddpdiag"]["complete"] is False
    wanted = max(len(rounds) for rounds in before.values()) + 5
    command = bench(*SMALL, "--rounds", wanted, "--output", path, "--resume", "--json")
    with started(command, tmp_path) as process:
        code, out, err = end(process)
    assert code == 0, err
    after = {e.name: e.round_s for e in read(path).entries}
    assert len(after) == 2
    assert all(len(rounds) >= wanted for rounds in after.values())
    assert all(after[name][: len(rounds)] == rounds for name, rounds in before.items())
    result: dict[str, Any] = json.loads(out)
    assert len(result["benchmarks"]) == 2


def test_a_killed_rank_ends_the_sweep_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with started(bench(*SMALL, "--rounds", 10_000, "--output", path), tmp_path) as process:
        wait_for_rounds(path, process)
        ranks_of(process)[1].kill()
        code, _, err = end(process)
    assert code == 2
    assert "rank 1" in err and "--resume" in err
    # Of both cases, or of the first alone where the second had not been measured yet.
    assert read(path).entries


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
def test_a_hanging_rank_ends_the_sweep(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with started(bench(*SMALL, "--rounds", 10_000, "--timeout", 30, "--output", path), tmp_path) as process:
        wait_for_rounds(path, process)
        ranks_of(process)[1].suspend()
        code, _, err = end(process)
    assert code == 2
    assert "rank 1 did not take part" in err
    # Of both cases, or of the first alone where the second had not been measured yet.
    assert read(path).entries


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C as a terminal sends it, to the whole group."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.CTRL_BREAK_EVENT)
