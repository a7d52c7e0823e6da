from pathlib import Path
from typing import Any

import pytest
from support.reported import number, report_of
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import exit_code, load_report


def findings(folder: Path) -> dict[str, Finding]:
    return {finding.kind: finding for finding in load_report(folder).verdict.findings}


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_healthy_run_with_noise_is_healthy(tmp_path: Path, world_size: int, seed: int) -> None:
    write_training(tmp_path, world_size=world_size, steps=20, jitter_ms=1.0, seed=seed)
    verdict = load_report(tmp_path).verdict
    assert (verdict.status, verdict.findings) == ("healthy", ())
    assert verdict.line.startswith("Healthy: ")


def test_false_alarms_over_many_healthy_runs(tmp_path: Path) -> None:
    """Noise of a tenth of the step on every rank, 5 to 40 steps: not one alarm in a hundred runs."""
    alarms = []
    for seed in range(100):
        folder = tmp_path / str(seed)
        write_training(folder, steps=5 + seed % 36, jitter_ms=2.0, seed=seed, compute_ms=20.0)
        alarms += [finding.kind for finding in load_report(folder).verdict.findings]
    assert alarms == []


def test_late_rank_is_named_with_how_much(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=4, steps=20, late_ms={2: 15.0}, jitter_ms=1.0)
    report = load_report(tmp_path)
    (finding,) = report.verdict.findings
    assert (finding.kind, finding.rank, finding.confidence) == ("late_rank", 2, "high")
    assert number(finding, "extra_ms") == pytest.approx(15.0, abs=1.5)
    assert number(finding, "extra_at_least_ms") <= number(finding, "extra_ms")
    assert number(finding, "share_of_steps") == 1.0
    assert report.verdict.line.startswith("Rank 2 is late")
    assert exit_code(report) == 1
    by_rank = {rank.rank: rank for rank in report.ranks}
    assert by_rank[2].last_arrivals == by_rank[2].arrivals > 0


def test_what_the_model_does_not_learn_comes_before_what_is_slow(tmp_path: Path) -> None:
    loader = {"sampler": "DistributedSampler", "distributed": True, "shuffle": True, "length": 100, "batch_size": 10,
              "epochs": 3, "distinct": 1}  # fmt: skip
    for writer in write_training(tmp_path, world_size=4, steps=20, late_ms={2: 15.0}, jitter_ms=1.0):
        writer.sidecar["training"] = {"loaders": [loader]}
        writer.write(tmp_path)
    verdict = load_report(tmp_path).verdict
    assert [one.kind for one in verdict.findings] == ["epoch_not_set", "late_rank"]
    assert verdict.line.startswith("DistributedSampler.set_epoch was never called; rank 2 is late")


def test_late_rank_on_another_clock_is_named_all_the_same(tmp_path: Path) -> None:
    """An hour off and bounded loosely: own time needs no common clock."""
    write_training(
        tmp_path,
        world_size=3,
        steps=20,
        late_ms={1: 15.0},
        clocks={1: ("b", 9 * 10**9, 3600 * 10**9), 2: ("c", 10**9, 0)},
    )
    (finding,) = load_report(tmp_path).verdict.findings
    assert (finding.kind, finding.rank) == ("late_rank", 1)


def test_rank_that_waits_for_data_is_distinguished_from_one_that_computes_longer(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, data_late_ms={1: 12.0})
    late = findings(tmp_path)["late_rank"]
    assert late.rank == 1 and "waiting for data" in late.message
    assert number(late, "data_wait_extra_ms") == pytest.approx(12.0)


def test_rank_that_only_waits_in_a_broadcast_is_not_blamed(tmp_path: Path) -> None:
    """Rank 0 is 20 ms late to a broadcast; rank 1 waits there, and both bring their buckets together."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(12):
            now = (1 + step) * 100 * MS
            own = 20 if rank == 0 else 0
            writer.step(step, now, now, now + 52 * MS)
            writer.collective("gloo:broadcast", now + own * MS, now + 21 * MS)
            writer.backward(step, now + 30 * MS, now + 50 * MS, now + 52 * MS)
            writer.bucket(step, now + 45 * MS, now + 46 * MS, now + 51 * MS)
        writer.write(tmp_path)
    late = findings(tmp_path)["late_rank"]
    assert late.rank == 0
    assert number(late, "extra_ms") == pytest.approx(20.0)


def test_all_ranks_waiting_for_data(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, data_wait_ms=30.0)
    found = findings(tmp_path)
    assert set(found) == {"data_wait"}
    assert number(found["data_wait"], "data_wait_ms") == pytest.approx(30.0)


def test_exposed_communication_with_its_numbers(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, wire_ms=14.0)
    report = load_report(tmp_path)
    finding = findings(tmp_path)["exposed_communication"]
    assert number(finding, "exposed_ms") == pytest.approx(24.0)
    assert number(finding, "step_ms") == pytest.approx(45.0)
    assert finding.bucket == report.buckets[0].bucket
    assert finding.parameter == "layer1.weight"
    assert report.verdict.line.startswith("Communication is 53% exposed: 24.0 ms of 45.0 ms per step")


def test_uneven_ranks_blame_nobody_and_are_not_healthy(tmp_path: Path) -> None:
    """A different rank is 20 ms late in every step."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(24):
            now = (1 + step) * 100 * MS
            own = 20 if step % 2 == rank else 0
            writer.step(step, now, now, now + 60 * MS)
            writer.backward(step, now, now + (30 + own) * MS, now + 60 * MS)
            writer.bucket(step, now + (30 + own) * MS, now + 51 * MS, now + 55 * MS)
        writer.write(tmp_path)
    report = load_report(tmp_path)
    assert [(finding.kind, finding.severity) for finding in report.verdict.findings] == [
        ("uneven_ranks", "warning")
    ]
    (finding,) = report.verdict.findings
    assert (finding.rank, finding.confidence, finding.cost_ms) == (None, "low", pytest.approx(20.0))
    assert report.verdict.status == "findings"


@pytest.mark.parametrize(("more_ms", "kinds"), [(9.0, ["uneven_ranks"]), (4.0, [])])
def test_uneven_ranks_that_cost_a_tenth_are_not_healthy(
    tmp_path: Path, more_ms: float, kinds: list[str]
) -> None:
    """15% and 7% of a step, and each rank's own median says nothing of it: four ranks in turn."""
    for rank in range(4):
        writer = RankWriter(rank, 4)
        for step in range(40):
            now = (1 + step) * 100 * MS
            own = int(more_ms * MS) if step % 4 == rank else 0
            writer.step(step, now, now, now + 60 * MS)
            writer.backward(step, now, now + 50 * MS, now + 53 * MS)
            writer.bucket(step, now + 40 * MS + own, now + 51 * MS, now + 53 * MS)
        writer.write(tmp_path)
    verdict = load_report(tmp_path).verdict
    assert [finding.kind for finding in verdict.findings] == kinds
    assert (verdict.status == "healthy") == (not kinds)


def test_accumulation_steps_belong_to_the_next_all_reduce(tmp_path: Path) -> None:
    """Four micro-batches per all-reduce of 5 ms each, of which 30 ms are exposed in 50 ms."""
    writer = RankWriter()
    for step in range(40):
        now = 10**9 + (step // 4) * 50 * MS + (step % 4) * 5 * MS
        meets = step % 4 == 3
        writer.step(step, now, now, now + (35 if meets else 5) * MS)
        if meets:
            writer.backward(step, now, now + 5 * MS, now + 35 * MS)
            writer.bucket(step // 4, now + 4 * MS, now + 5 * MS, now + 35 * MS, step=step)
    writer.write(tmp_path)
    finding = findings(tmp_path)["exposed_communication"]
    assert number(finding, "exposed_ms") == pytest.approx(30.0)
    assert number(finding, "step_ms") == pytest.approx(50.0)


def test_too_few_steps_cannot_be_judged(tmp_path: Path) -> None:
    write_training(tmp_path, steps=3, late_ms={1: 50.0})
    report = load_report(tmp_path)
    assert report.verdict.status == "cannot_tell"
    assert "3 steps" in report.verdict.line and report.verdict.line.endswith("Record 10.")
    assert exit_code(report) == 2


def test_a_trace_that_was_too_small_cannot_be_judged_and_says_so(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2, capacity=8)
        writer.sound_steps(range(20))
        writer.write(tmp_path)
    line = load_report(tmp_path).verdict.line
    assert line.startswith("Cannot tell: only") and "capacity_mb" in line


def test_empty_traces_cannot_be_judged(tmp_path: Path) -> None:
    RankWriter().write(tmp_path)
    report = load_report(tmp_path)
    assert report.verdict.line.startswith("Cannot tell: the traces hold no records")
    assert exit_code(report) == 2


def test_missing_rank_leaves_the_verdict_open(tmp_path: Path) -> None:
    write_training(tmp_path, steps=12)
    (tmp_path / "rank_1.ddptrace").unlink()
    report = load_report(tmp_path)
    assert report.verdict.status == "cannot_tell"
    assert "rank 1 of 2" in report.verdict.line


def training(folder: Path, ranks: int = 2, **header: dict[int, Any]) -> list[RankWriter]:
    """Plain writers with six sound steps, to be broken by the test; `header` gives fields by rank."""
    writers = [
        RankWriter(rank, ranks, **{name: value[rank] for name, value in header.items() if rank in value})
        for rank in range(ranks)
    ]
    for writer in writers:
        writer.sound_steps(range(6))
    return writers


def test_failed_operation_comes_first_with_its_text(tmp_path: Path) -> None:
    writers = training(tmp_path)
    ticket = writers[0].bucket(6, 800 * MS, 801 * MS, 900 * MS, flags=1)
    writers[0].error(ticket, "Connection closed by peer")
    report = report_of(writers, tmp_path)
    first = report.verdict.findings[0]
    assert (first.kind, first.severity, first.confidence) == ("operation_failed", "error", "high")
    # It reached rank 0, but rank 1 is the one that had left.
    assert (first.rank, first.evidence["reached"]) == (1, 0)
    assert "because rank 1 never began it; the earliest on rank 0 in step 6" in first.message
    assert "rank 1, which reports no error" in first.advice
    assert first.message.endswith("Connection closed by peer")
    assert (
        report.verdict.line == "Operations failed in step 6; rank 1 made fewer all-reduces than the others."
    )
    assert exit_code(report) == 1


def test_an_operation_that_every_rank_began_fails_by_nobodys_fault_that_is_known(tmp_path: Path) -> None:
    writers = training(tmp_path)
    writers[0].error(writers[0].bucket(6, 800 * MS, 801 * MS, 900 * MS, flags=1), "Timed out")
    writers[1].bucket(6, 800 * MS, 801 * MS, 900 * MS)
    first = report_of(writers, tmp_path).verdict.findings[0]
    assert (first.kind, first.rank, first.confidence) == ("operation_failed", None, "certain")
    assert "which rank caused it is unknown; the earliest on rank 0 in step 6" in first.message


def test_killed_rank_is_distinguished_from_the_one_that_reports_the_error(tmp_path: Path) -> None:
    writers = training(tmp_path, closed={0: 1, 1: 0})
    ticket = writers[0].bucket(6, 800 * MS, 801 * MS, 900 * MS, flags=1)
    writers[0].error(ticket, "Connection reset by peer")
    writers[1].bucket(6, 800 * MS, 0, 0, state=IN_FLIGHT)
    for writer in writers:
        writer.write(tmp_path)
    found = findings(tmp_path)
    assert found["rank_lost"].rank == 1
    assert found["rank_lost"].confidence == "high"
    failed = found["operation_failed"]
    assert (failed.rank, failed.evidence["reached"]) == (1, 0)
    assert failed.message.startswith(
        "1 operation failed after rank 1 was lost; the earliest on rank 0 in step 6"
    )
    assert "unknown" not in failed.message


def test_of_several_lost_ranks_none_is_picked_and_of_none_all_are_named(tmp_path: Path) -> None:
    closed = {0: 1, 1: 0, 2: 0}
    writers = training(tmp_path / "two", ranks=3, closed=closed)
    writers[0].error(writers[0].bucket(6, 800 * MS, 801 * MS, 900 * MS, flags=1), "Connection reset by peer")
    for writer in writers:
        writer.write(tmp_path / "two")
    failed = findings(tmp_path / "two")["operation_failed"]
    assert failed.rank is None
    assert "after ranks 1, 2 were lost" in failed.message

    writers = training(tmp_path / "all")
    for writer in writers:
        writer.error(writer.bucket(6, 800 * MS, 801 * MS, 900 * MS, flags=1), "Connection reset by peer")
        writer.write(tmp_path / "all")
    failed = findings(tmp_path / "all")["operation_failed"]
    assert failed.rank is None
    assert "which rank caused it is unknown" in failed.message
    assert "Every rank here reports an error" in failed.advice


def test_live_run_in_flight_is_only_a_note(tmp_path: Path) -> None:
    for writer in training(tmp_path, closed={0: 0, 1: 0}):
        writer.bucket(6, 800 * MS, 801 * MS, 0, state=IN_FLIGHT)
        writer.write(tmp_path)
    report = load_report(tmp_path)
    assert [(f.kind, f.severity) for f in report.verdict.findings] == [("operations_in_flight", "note")]
    assert report.verdict.status == "healthy"


def test_rank_that_skipped_all_reduces_though_all_closed(tmp_path: Path) -> None:
    writers = training(tmp_path)
    writers[0].bucket(6, 800 * MS, 801 * MS, 802 * MS)
    for writer in writers:
        writer.write(tmp_path)
    found = findings(tmp_path)
    assert found["fewer_all_reduces"].rank == 1
    assert number(found["fewer_all_reduces"], "fewer") == 1


def test_mismatched_all_reduce_is_an_error(tmp_path: Path) -> None:
    writers = training(tmp_path)
    for writer in writers:
        writer.bucket(6, 800 * MS, 801 * MS, 802 * MS, dtype=1 + writer.rank)
        writer.write(tmp_path)
    found = findings(tmp_path)
    assert found["mismatched_all_reduce"].severity == "error"
    assert "rank 0: float32, rank 1: float64" in found["mismatched_all_reduce"].message


def test_the_only_rank_with_another_dtype_is_named(tmp_path: Path) -> None:
    for writer in training(tmp_path, ranks=3):
        writer.bucket(6, 800 * MS, 801 * MS, 802 * MS, dtype=2 if writer.rank == 1 else 1)
        writer.write(tmp_path)
    assert findings(tmp_path)["mismatched_all_reduce"].rank == 1


def test_world_sizes_that_differ_are_an_error(tmp_path: Path) -> None:
    for writer in training(tmp_path, world_size={}):
        writer.header["world_size"] = 2 + writer.rank
        writer.write(tmp_path)
    assert findings(tmp_path)["world_size_differs"].severity == "error"


def test_every_finding_says_how_sure_it_is_and_what_would_change_it(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, wire_ms=14.0, data_wait_ms=30.0, late_ms={1: 15.0})
    found = load_report(tmp_path).verdict.findings
    assert len(found) >= 2
    for finding in found:
        assert finding.confidence and finding.change_mind and finding.evidence and finding.advice
