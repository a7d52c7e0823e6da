"""The result file of a sweep while it is measured: nothing is lost, and rounds of other machines don't mix in."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pyddpdiag.bench.cases import allreduce_cases
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.engine.collect import Collected, ResultWriter
from pyddpdiag.bench.engine.plan import Budget, Gathered, Measured, SweepPlan
from pyddpdiag.bench.machine import cpu_name, machine_info
from pyddpdiag.bench.results import read, save
from pyddpdiag.errors import ResultError, ResultWriteError, UsageError
from pyddpdiag.ranks.interfaces import choose

PLAN = SweepPlan(cases=tuple(allreduce_cases([2**20, 2**22], [2])), rounds=3)


def collected(*rounds: tuple[int, float]) -> Collected:
    """What rank 0 has reported so far."""
    found = Collected(PLAN)
    found.take(Gathered(("here", "here"), ((), ()), choose((), local=True)[0]))
    for case, seconds in rounds:
        found.take(Measured(case, seconds, 4))
    return found


def test_bandwidths_are_those_of_the_median(tmp_path: Path) -> None:
    writer = ResultWriter(tmp_path / "a.json")
    writer.keep(collected((0, 0.001), (0, 0.002), (0, 0.009)), complete=True)
    (entry,) = read(writer.path).entries
    assert entry.extra_info["algbw_gbps"] == pytest.approx(2**20 / 0.002 / 1e9)
    assert entry.extra_info["busbw_gbps"] == entry.extra_info["algbw_gbps"]  # 2 (n - 1) / n is 1 for 2 ranks
    assert entry.extra_info["steps_per_round"] == 4


def test_a_system_that_keeps_no_load_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows: psutil's own count begins with its first call, and fails where performance counters are off."""

    def counters_are_off() -> tuple[float, float, float]:
        raise RuntimeError("PdhAddEnglishCounterW failed. Performance counters may be disabled.")

    monkeypatch.setattr(psutil, "getloadavg", counters_are_off)
    monkeypatch.delattr(os, "getloadavg", raising=False)
    writer = ResultWriter(tmp_path / "a.json")
    writer.keep(collected((0, 0.5)), complete=True)
    found = read(writer.path)
    assert found.entries[0].extra_info["load_before"] is None
    assert not [note for note in compare([found]).notes if "busy" in note]


def test_the_processor_is_called_as_windows_registry_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`platform` has only "AMD64 Family 25 Model 17 Stepping 1" there."""
    key = contextlib.nullcontext("the key")
    places = {r"HARDWARE\DESCRIPTION\System\CentralProcessor\0": key}
    values = {("the key", "ProcessorNameString"): ("AMD EPYC 9B14 96-Core Processor  ", 1)}
    registry = SimpleNamespace(
        HKEY_LOCAL_MACHINE="machine",
        OpenKey=lambda root, place: places[place] if root == "machine" else None,
        QueryValueEx=lambda opened, name: values[opened, name],
    )
    monkeypatch.setitem(sys.modules, "winreg", registry)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "")  # no /proc/cpuinfo
    assert cpu_name() == "AMD EPYC 9B14 96-Core Processor"


def test_what_cannot_be_written_is_kept_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("a file where the folder was")
    writer = ResultWriter(tmp_path / "gone" / "a.json")
    assert writer.keep(collected((0, 0.5)), complete=False) is None
    with pytest.raises(ResultWriteError, match="what was measured is in") as caught:
        writer.keep(collected((0, 0.5)), complete=True)
    place = re.search(r"is in '(.+)'", str(caught.value))
    assert place is not None
    assert read(place.group(1)).entries[0].round_s == (0.5,)
    Path(place.group(1)).unlink()
    Path(place.group(1)).parent.rmdir()


def test_a_folder_that_cannot_be_used_is_found_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultWriteError, match="cannot write"):
        ResultWriter(tmp_path / "file" / "a.json").open(PLAN)


def test_only_what_is_missing_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    ResultWriter(path).keep(collected((0, 0.1), (0, 0.1), (0, 0.1), (1, 0.4)), complete=False)
    writer = ResultWriter(path, resume=True)
    left = writer.open(PLAN)
    assert (left.cases, left.rounds) == ((1,), 2)
    assert [len(entry.round_s) for entry in writer.before] == [3, 1]
    writer.keep(collected((1, 0.5)), complete=True)
    found = read(path)
    assert [entry.round_s for entry in found.entries] == [(0.1, 0.1, 0.1), (0.4, 0.5)]
    # What was asked for, and not what was left of it.
    assert found.sweep["rounds"] == 3


def test_with_a_budget_what_has_fewer_rounds_than_usual_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    ResultWriter(path).keep(collected(*[(0, 0.1)] * 30, (1, 0.4)), complete=False)
    plan = replace(PLAN, rounds=None, budget=Budget(60.0, 0.0))
    left = ResultWriter(path, resume=True).open(plan)
    assert (left.cases, left.rounds) == ((1,), None)


def test_a_complete_sweep_and_another_machines_are_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    ResultWriter(path).keep(collected(*[(case, 0.1) for case in (0, 1) for _ in range(3)]), complete=True)
    with pytest.raises(UsageError, match="is complete"):
        ResultWriter(path, resume=True).open(PLAN)
    save(path, read(path).entries, force=True, machine={**machine_info(), "node": "elsewhere"})
    with pytest.raises(ResultError, match="another machine"):
        ResultWriter(path, resume=True).open(PLAN)
