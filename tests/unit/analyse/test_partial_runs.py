"""Traces that are damaged or missing: what is not there says nothing about the training."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processor_use import Extra, write
from support.trace_writer import GROUP, WRITING, RankWriter, write_training

from pyddpdiag.analyse.catalog import CHECKS
from pyddpdiag.analyse.partial import may_look
from pyddpdiag.live.pulse import Watcher
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import exit_code, load_report
from pyddpdiag.trace.run import open_run

REAL = Path(__file__).parents[2] / "data" / "traces" / "1.2"
HEADER, RECORD, GRADIENT = 4096, 128, 7


def kinds(report: RunReport) -> set[str]:
    return {finding.kind for finding in report.verdict.findings}


def real(folder: Path) -> Path:
    """Two ranks of a real training."""
    return shutil.copytree(REAL, folder / "real")


def late(folder: Path) -> Path:
    """Four ranks, of which rank 2 is late by 30 ms."""
    write_training(folder / "late", world_size=4, steps=20, late_ms={2: 30.0}, jitter_ms=1.0)
    return folder / "late"


def not_finite(folder: Path) -> Path:
    """Rank 1 has a gradient that is not finite in step 5, and after it every rank."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(12):
            writer.sound_steps([step])
            bad = step > 5 or (step == 5 and rank == 1)
            counts = (1, 1, int(bad), -1, -1, 77 + step, 1000)  # of its values, how many are not finite, ...
            writer.add(GRADIENT, times=counts, step=step, sequence=step, group=GROUP, reference=7, dtype=1)
        writer.write(folder / "not_finite")
    return folder / "not_finite"


@pytest.mark.parametrize("make", [real, late, not_finite])
def test_a_trace_that_was_cut_short_is_damage_and_no_finding(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    folder = make(tmp_path)
    whole, run = load_report(folder), open_run(folder)
    for trace in run.ranks:
        path = folder / f"rank_{trace.rank}.ddptrace"
        content, records = path.read_bytes(), trace.header.tickets
        # From nothing to all but the last record, and in the middle of one.
        kept = {*range(0, records, max(1, records // 9)), records - 1}
        sizes = [0, HEADER // 2, *(HEADER + RECORD * count + 50 * (count % 2) for count in sorted(kept))]
        for size in sizes:
            path.write_bytes(content[:size])
            report = load_report(folder)
            assert kinds(report) <= kinds(whole), (path.name, size)
            assert report.verdict.line.startswith(f"The trace of rank {trace.rank} "), size
            warnings = [warning for warning in report.warnings if path.name in warning]
            assert "truncated" in warnings[0] or "never started" in warnings[0]
            if not report.verdict.findings:
                assert (report.verdict.status, exit_code(report)) == ("cannot_tell", 2)
        # What was never used may be missing.
        path.write_bytes(content[: HEADER + RECORD * records])
        assert load_report(folder).verdict == whole.verdict
        path.write_bytes(content)


def test_a_hole_in_a_trace_is_damage(tmp_path: Path) -> None:
    """A copy that was broken off may have the right size, and zeros."""
    folder = late(tmp_path)
    path = folder / "rank_1.ddptrace"
    content = bytearray(path.read_bytes())
    content[HEADER + 40 * RECORD :] = bytes(len(content) - HEADER - 40 * RECORD)
    path.write_bytes(content)
    report = load_report(folder)
    assert (report.verdict.findings, exit_code(report)) == ((), 2)
    assert report.verdict.line.startswith("The trace of rank 1 is damaged (40 of 80 slots hold no record)")
    assert {rank.rank: rank.absent for rank in report.ranks} == {0: 0, 1: 40, 2: 0, 3: 0}


def test_who_watches_sees_the_damage_at_every_look(tmp_path: Path) -> None:
    folder = late(tmp_path)
    path = folder / "rank_1.ddptrace"
    path.write_bytes(path.read_bytes()[: HEADER + 40 * RECORD])
    watcher = Watcher(folder)
    for _ in range(4):
        verdict = watcher.look().verdict
        assert verdict is not None and verdict.status == "cannot_tell" and not verdict.findings
        assert verdict.line.startswith("The trace of rank 1 is damaged")


def test_a_record_that_a_killed_rank_never_finished_is_no_damage(tmp_path: Path) -> None:
    writers = write_training(tmp_path, world_size=2, steps=20, late_ms={1: 30.0})
    writers[0].add(1, state=WRITING)
    writers[0].write(tmp_path)
    assert kinds(load_report(tmp_path)) == {"late_rank"}


def test_what_a_cut_trace_says_by_itself_still_counts(tmp_path: Path) -> None:
    folder = not_finite(tmp_path)
    path = folder / "rank_0.ddptrace"
    path.write_bytes(path.read_bytes()[: HEADER + 44 * RECORD])
    report = load_report(folder)
    (found,) = report.verdict.findings
    assert (found.kind, found.rank, found.since_step) == ("non_finite_gradient", 1, 5)
    assert "damaged" in report.verdict.line and "not finite" in report.verdict.line


def test_a_rank_without_a_trace_may_have_made_what_is_not_finite(tmp_path: Path) -> None:
    folder = not_finite(tmp_path)
    (folder / "rank_1.ddptrace").unlink()
    (found,) = load_report(folder).verdict.findings
    assert (found.kind, found.rank) == ("non_finite_gradient", None) and "is unknown" in found.message


@pytest.mark.parametrize("here", [(0,), (0, 1, 3), (1, 3)])
def test_what_a_missing_rank_explains_is_no_advice(tmp_path: Path, here: tuple[int, ...]) -> None:
    folder = late(tmp_path)
    assert kinds(load_report(folder)) == {"late_rank"}
    for rank in set(range(4)) - set(here):
        (folder / f"rank_{rank}.ddptrace").unlink()
    report = load_report(folder)
    assert report.verdict.line.startswith(f"Only {len(here)} of 4 ranks' traces are here")
    assert (report.verdict.status, exit_code(report)) == ("cannot_tell", 2)
    assert kinds(report) == {"exposed_communication"}
    for found in report.verdict.findings:
        assert (found.severity, found.confidence, found.advice) == ("note", "low", "")
        assert "missing" in found.change_mind


def test_a_rank_that_is_late_by_itself_is_found_among_those_that_are_here(tmp_path: Path) -> None:
    folder = late(tmp_path)
    (folder / "rank_1.ddptrace").unlink()
    report = load_report(folder)
    (found,) = report.verdict.findings
    assert (found.kind, found.rank, found.confidence) == ("late_rank", 2, "high")
    assert report.verdict.line.startswith("Only 3 of 4 ranks' traces are here. Rank 2 is late")
    assert exit_code(report) == 1


def test_a_check_that_does_not_say_what_it_needs_needs_everything(tmp_path: Path) -> None:
    folder = late(tmp_path)
    silent = [check for check in CHECKS if check.rests_on == "all ranks"]
    assert {kind for check in silent for kind in check.kinds} >= {
        "loopback",
        "single_bucket",
        "small_buckets",
    }
    (folder / "rank_1.ddptrace").unlink()
    run = open_run(folder)
    assert not any(may_look(check, run) for check in silent)


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        # Another load may make all work take up to half as long again.
        (Extra(cpu=18, steps=range(40, 80)), "slower_steps"),
        (Extra(delay=60, steps=range(80)), "core_contention"),
    ],
)
def test_what_a_missing_rank_may_be_the_load_of_is_no_finding(
    tmp_path: Path, extra: Extra, kind: str
) -> None:
    write(tmp_path, [extra] * 2, steps=80, load=4.0, cores=2)
    assert kind in kinds(load_report(tmp_path)) and exit_code(load_report(tmp_path)) == 1
    (tmp_path / "rank_1.ddptrace").unlink()
    report = load_report(tmp_path)
    assert (report.verdict.status, exit_code(report)) == ("cannot_tell", 2)
    for found in report.verdict.findings:
        assert (found.severity, found.confidence, found.advice) == ("note", "low", ""), found


def test_what_a_rank_surely_does_by_itself_is_found_without_the_others(tmp_path: Path) -> None:
    write(tmp_path, [Extra(sleep=40, steps=range(40, 80))] * 2, steps=80)
    (tmp_path / "rank_1.ddptrace").unlink()
    report = load_report(tmp_path)
    assert exit_code(report) == 1
    assert report.verdict.line.startswith(
        "Only 1 of 2 ranks' traces are here. Rank 0 is slower from step 40 on: "
    )
