"""Runs with more records than a report may take memory for: their newest are read, and that is said."""

import tracemalloc
from pathlib import Path

import pytest
from support.bulk_writer import PER_STEP, write_bulk
from support.trace_writer import ERROR, GROUP, MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_details, load_report, print_report
from pyddpdiag.trace.budget import needed_gb, records_per_step, that_fit
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import read_trace
from pyddpdiag.trace.run import open_run

GRADIENT, HISTORY = 7, 12
FINITE = 8192


def test_what_is_needed_grows_with_the_largest_rank_and_with_all_steps() -> None:
    assert needed_gb([]) == 0
    assert needed_gb([10**6], 10) == pytest.approx(0.205 + 0.06, rel=1e-3)
    assert needed_gb([10**6] * 10, 10) == pytest.approx(0.205 + 0.6, rel=1e-3)
    assert needed_gb([1000] * 16384, 12) == pytest.approx(16384 * (0.6 / 12 + 0.012) / 1e3, rel=1e-3)
    # Without knowing how many records a step has, the most that they can take.
    assert needed_gb([10**6]) > needed_gb([10**6], 10)


def test_as_many_fit_as_there_is_memory_for_and_some_steps_in_any_case() -> None:
    """Of two ranks, one has a tenth of the records."""
    half = that_fit([10**6, 10**5], 10, needed_gb([5 * 10**5, 5 * 10**4], 10))
    assert half == pytest.approx([0.5 * 10**6, 0.5 * 10**5], rel=0.001)
    many = [1000] * 16384
    assert needed_gb(that_fit(many, 12, 0.4), 12) == pytest.approx(0.4, rel=0.05)
    assert that_fit(many, 12, 0.001) == [20 * 12] * 16384
    assert that_fit([1000, 10], 12, 1e-5) == [20 * 12, 10]


def test_how_many_records_a_step_has_is_seen_in_some_of_them(tmp_path: Path) -> None:
    write_bulk(tmp_path, ranks=1, records=6000)
    sample = read_trace(tmp_path / "rank_0.ddptrace", newest=1200)
    assert records_per_step(sample) == pytest.approx(PER_STEP, rel=0.02)


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_newest_records_are_read_and_the_report_says_so(tmp_path: Path, ranks: int) -> None:
    written = write_bulk(tmp_path, ranks=ranks, records=120_000)
    whole = load_report(tmp_path, memory_gb=0)
    assert whole.warnings == load_report(tmp_path).warnings
    assert not any("newest" in text for text in whole.warnings)
    per_rank = written // ranks
    memory_gb = needed_gb([per_rank // 4] * ranks, PER_STEP)
    report = load_report(tmp_path, memory_gb=memory_gb)
    [said] = [text for text in report.warnings if "newest" in text]
    assert f"only the newest 25% of the {written:,} records were read" in said
    assert "sums. `--memory 0.1` reads all." in said
    for rank in report.ranks:
        assert rank.records == pytest.approx(0.25 * per_rank, rel=0.01)
        assert rank.overwritten == 0
    # All ranks end at the last step, and none blames another for what was not read.
    last = int(whole.steps.step.max())
    assert int(report.steps.step.max()) == last
    assert int(report.steps.step.min()) == pytest.approx(0.75 * last, abs=2)
    kinds = {finding.kind for finding in report.verdict.findings}
    assert kinds == ({"late_rank"} if ranks > 1 else set())
    first = int(report.steps.step.min())
    assert f"medians leave out step {first} (not all of their records are there)." in report.warnings


def test_pages_and_text_take_the_same_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bulk(tmp_path, ranks=2, records=60_000)
    report, details = load_details(tmp_path, memory_gb=0.005)
    assert details is not None
    steps = set(report.steps.step.tolist())
    assert all(set(line.buckets.step.tolist()) <= steps for line in details.timelines)
    assert print_report(tmp_path, memory_gb=0.005, every_rank=True) == 1
    assert "only the newest" in " ".join(capsys.readouterr().out.split())


def test_sums_errors_and_names_of_connections_are_kept_however_old(tmp_path: Path) -> None:
    writer = RankWriter(0, 1, capacity=4096)
    writer.connection_name("10.0.0.1:1 > 10.0.0.2:2 over eth0")
    writer.add(HISTORY, times=(1 * MS, 2 * MS, 1, 1, 1, 1, 1, 1), index=4, module=4, sequence=4)
    failed = writer.bucket(0, 1 * MS, 2 * MS, 3 * MS, flags=1)
    writer.error(failed, "Connection closed by peer")
    for step in range(1, 1000):
        writer.bucket(step, step * 10 * MS, step * 10 * MS + 1, step * 10 * MS + 2)
        writer.reading("10.0.0.1:1 > 10.0.0.2:2 over eth0", step * 10 * MS, bytes_sent=step)
    writer.write(tmp_path)
    trace = read_trace(tmp_path / "rank_0.ddptrace", keep=400)
    assert trace.begins_late and trace.older == len(writer.records) - 400 - 3
    assert len(trace.of_kind(Kind.HISTORY)) == len(trace.of_kind(ERROR)) == 1
    assert trace.of_kind(Kind.BUCKET)["step"].min() == 800
    names = trace.of_kind(Kind.CONNECTION)["flags"] != 0
    assert names.sum() == 1 and (~names).sum() == 200
    assert (trace.unknown, trace.malformed, trace.absent, trace.damage) == (0, 0, 0, "")
    whole = read_trace(tmp_path / "rank_0.ddptrace", keep=4000)
    assert not whole.begins_late and len(whole.of_kind(Kind.BUCKET)) == 1000


def test_the_first_gradients_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    """From step 300 on, all are."""
    for rank in range(2):
        writer = RankWriter(rank, 2, capacity=4096)
        for step in range(1000):
            begin = step * 10 * MS + 1
            writer.bucket(step, begin, begin + 1, begin + 2, flags=FINITE if step < 300 else 0)
            if step % 4 == 0:
                values = (0, 0, 5 if step >= 300 else 0, 0, 0, 1, 10)
                writer.add(GRADIENT, times=values, step=step, sequence=step, group=GROUP, reference=7)
        writer.write(tmp_path)

    def found(memory_gb: float) -> Finding:
        [one] = [
            each
            for each in load_report(tmp_path, memory_gb=memory_gb).verdict.findings
            if each.since_step == 300
        ]
        return one

    whole, some = found(0), found(0.0002)
    assert whole.kind == some.kind == "non_finite_gradient"
    assert "put gradients that are not finite into step 300" in whole.message
    assert "records of earlier steps were not read" in some.message and "--memory 0" in some.advice
    trace = read_trace(tmp_path / "rank_0.ddptrace", keep=100)
    steps = trace.of_kind(Kind.GRADIENT)["step"].tolist()
    assert steps[:64] == list(range(300, 300 + 4 * 64, 4)) and min(steps[64:]) > 900


def test_a_header_that_claims_more_than_its_file_holds_limits_nobody(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2, capacity=64)
        for step in range(8):
            writer.bucket(step, step * MS + 1, step * MS + 2, step * MS + 3)
        writer.header["tickets"] = 2**26
        writer.header["capacity"] = 2**26
        writer.write(tmp_path)
    run = open_run(tmp_path, memory_gb=0.1)
    assert not any("newest" in text for text in run.warnings)
    assert [len(trace.of_kind(Kind.BUCKET)) for trace in run.ranks] == [8, 8]


def test_a_rank_of_many_records_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    """600,000 records of one rank; they and what is made of them were 150 MB."""
    write_bulk(tmp_path, ranks=1, records=600_000)
    tracemalloc.start()
    try:
        report = load_report(tmp_path, memory_gb=0.04)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.ranks[0].records > 50_000
    assert peak < 60_000_000, f"{peak / 1e6:.0f} MB"
