"""Which line of the script a finding names, and when it names none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import report_to_dict
from pyddpdiag.trace.run import open_run

STEPS = 60
LOOP, FORWARD, BACKWARD = ("train.py", 30, "main"), ("train.py", 31, "main"), ("train.py", 32, "main")
LABELS, HELPER = ("train.py", 9, "load_labels"), ("data/read.py", 4, "parse")
LOOK_MS = 50

Extra = Callable[[int, int], float]


def write(
    folder: Path,
    extra_ms: Extra,
    *,
    line: Callable[[int], tuple[str, int, str]] = lambda _: LABELS,
    data_ms: float = 0.0,
    looks: Extra = lambda _, __: True,
    phase: str = "",
    on_disk: Callable[[int], bool] = lambda _: False,
) -> None:
    """Two ranks with steps of about 35 ms, with looks at both; `extra_ms` of a rank and step come at a `line`.

    `looks`: whether the rank can be looked at during these; `on_disk`: whether it waits for a disk then.
    """
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now, last = 10**9, [10**9, 10**9]

    def look(
        writer: RankWriter,
        end: int,
        at: tuple[str, int, str],
        call: str,
        possible: bool = True,
        disk: bool = False,
    ) -> None:
        due = (last[writer.rank] // (LOOK_MS * MS) + 1) * LOOK_MS * MS + 7 * MS * writer.rank
        while due < end:
            if possible:
                writer.look(due, at, call, disk)
            last[writer.rank] = due
            due += LOOK_MS * MS

    for step in range(STEPS):
        # A step that is not as long as the looks are apart.
        work = int((25 + 7 * (step % 3)) * MS)
        extra = [int(extra_ms(rank, step) * MS) for rank in range(2)]
        begin = now + int(data_ms * MS)
        arrived = begin + work + max(extra)
        for writer in writers:
            mine = extra[writer.rank]
            writer.step(step, now, begin, arrived + 3 * MS)
            writer.backward(step, begin + mine + work // 2, begin + mine + work, arrived + 3 * MS)
            writer.bucket(step, begin + mine + work, arrived, arrived + 3 * MS)
            if phase and mine:
                writer.phase(phase, begin, begin + mine)
            look(writer, begin, LOOP, "queue.get")
            look(
                writer, begin + mine, line(step), "time.sleep", bool(looks(writer.rank, step)), on_disk(step)
            )
            look(writer, begin + mine + work // 2, FORWARD, "torch.nn.Linear.forward")
            look(writer, arrived + 3 * MS, BACKWARD, "torch.autograd.backward")
        now = arrived + 3 * MS
    for writer in writers:
        writer.write(folder)


def only(folder: Path) -> Finding:
    found = load_report(folder).verdict.findings
    assert len(found) == 1
    return found[0]


def test_a_late_rank_is_named_with_the_line_that_only_it_is_at(tmp_path: Path) -> None:
    write(tmp_path, lambda rank, _: 30.0 * rank)
    found = only(tmp_path)
    assert (found.kind, found.rank) == ("late_rank", 1)
    assert found.where == "train.py:9 in load_labels"
    assert "of what it needs more is at train.py:9 in load_labels (time.sleep)." in found.message
    assert found.evidence["where_call"] == "time.sleep"
    share, samples = found.evidence["where_share"], found.evidence["where_samples"]
    assert isinstance(share, float) and 0.8 <= share <= 1.0
    assert isinstance(samples, int) and 25 <= samples <= 45
    assert "train.py:9" in found.advice and "py-spy" not in found.advice


@pytest.mark.parametrize("every", [1, 3])
def test_a_rank_that_waits_for_a_disk_is_named_with_the_line(tmp_path: Path, every: int) -> None:
    write(tmp_path, lambda rank, _: 30.0 * rank, on_disk=lambda step: step % every == 0)
    found = only(tmp_path)
    assert (found.kind, found.rank, found.where) == ("late_rank", 1, "train.py:9 in load_labels")
    waits = found.evidence["disk_wait_ms"]
    assert isinstance(waits, float) and waits == pytest.approx(30.0 / every, rel=0.35)
    # A third of the time is not the cause.
    assert (found.cause == "disk") == (every == 1)
    assert ("(time.sleep, waits for a disk)" in found.message) == (every == 1)
    assert ("because it waits for a disk" in found.message) == (every == 1)


def test_what_both_ranks_do_is_not_what_one_needs_more(tmp_path: Path) -> None:
    """Each calls it: the late one for longer, at another line of the same function."""
    write(
        tmp_path,
        lambda rank, _: 10.0 + 40.0 * rank,
        line=lambda step: ("data/read.py", 4 + step % 4, "parse"),
    )
    found = only(tmp_path)
    assert found.where is not None and found.where.endswith("in parse")
    assert "of what it needs more is in parse, mostly at data/read.py:" in found.message


@pytest.mark.parametrize("seen", ["nowhere in particular", "too few looks", "other run"])
def test_no_line_is_guessed(tmp_path: Path, seen: str) -> None:
    scattered = seen == "nowhere in particular"
    write(
        tmp_path,
        lambda rank, _: 30.0 * rank,
        line=lambda step: ("train.py", 100 + step, f"layer{step}") if scattered else LABELS,
        looks=lambda _, step: seen != "too few looks" or step % 4 == 0,
    )
    if seen == "other run":
        path = tmp_path / "rank_1.lines"
        path.write_text(path.read_text(encoding="utf-8").replace("000102", "ff0102"), encoding="utf-8")
    found = only(tmp_path)
    assert (found.kind, found.rank, found.where) == ("late_rank", 1, None)
    assert "train.py" not in found.message + found.advice
    assert "where_share" not in found.evidence


def test_a_healthy_run_names_no_line_but_has_the_table(tmp_path: Path) -> None:
    write(tmp_path, lambda *_: 0.0)
    report = load_report(tmp_path)
    assert report.verdict.status == "healthy"
    assert "train.py" not in report.verdict.line
    rows = [row for row in report_to_dict(report)["lines"] if row["rank"] == 1]
    assert {row["part"]: row["where"] for row in rows} == {
        "forward": "train.py:31 in main",
        "backward": "train.py:32 in main",
        "communication": "train.py:32 in main",
    }
    assert all(
        row["fraction"] == 1.0 and row["total_s"] == pytest.approx(row["samples"] * 0.05) for row in rows
    )


def test_a_rank_that_is_late_now_and_then(tmp_path: Path) -> None:
    write(tmp_path, lambda rank, step: 400.0 * rank * (step % 11 == 5), line=lambda _: HELPER)
    found = only(tmp_path)
    assert (found.kind, found.rank, found.where) == ("episodic_rank", 1, "data/read.py:4 in parse")
    assert found.advice.startswith("Look at data/read.py:4 in parse (time.sleep)")


def test_pauses_of_all_ranks_and_waits_for_data(tmp_path: Path) -> None:
    for folder, write_it, kind, where in (
        ("pause", lambda to: write(to, lambda _, step: 400.0 * (step % 12 == 7)), "pause", LABELS),
        (
            "phase",
            lambda to: write(
                to, lambda _, step: 400.0 * (step % 12 == 7), phase="save", line=lambda _: HELPER
            ),
            "pause",
            HELPER,
        ),
        ("data", lambda to: write(to, lambda *_: 0.0, data_ms=40.0), "data_wait", LOOP),
    ):
        write_it(tmp_path / folder)
        found = only(tmp_path / folder)
        assert (found.kind, found.where) == (kind, f"{where[0]}:{where[1]} in {where[2]}"), folder


def test_the_line_in_a_stretch_of_time_is_known_for_other_checks(tmp_path: Path) -> None:
    write(tmp_path, lambda rank, step: 500.0 * (rank == 1 and step == 30))
    run = open_run(tmp_path)
    lines = RunView(run).lines
    begun = next(int(times[1]) for times, step in _steps(tmp_path, 1) if step == 30)
    where = lines.where(1, begun, begun + 500 * MS)
    assert where is not None
    assert (str(where), where.share) == ("train.py:9 in load_labels (time.sleep)", 1.0)
    assert lines.where(1, begun, begun + 150 * MS) is None  # too few looks
    assert lines.where(7, begun, begun + 500 * MS) is None


def _steps(folder: Path, rank: int) -> list[tuple[list[int], int]]:
    from pyddpdiag.trace.layout import Kind

    records = open_run(folder).ranks[rank].of_kind(Kind.STEP)
    return list(zip(records["times"].tolist(), records["step"].tolist(), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        *[{"frames": [["a.py", 1]]}, {"frames": [["a.py", -1, "f"]] * 9}, {"frames": 7}],
        *[{"calls": [None] * 9}, {"stacks": [[10**9, 0]] * 9}, {"stacks": [[]] * 9}],
        *[{"stacks": [[0] * 100] * 9}, {"at_us": [2**70] * 9}, {"at_us": [True] * 9}],
        *[{"at_us": [1]}, {"stack": [-1] * 9}, {"stack": [0] * 10**5}, {"interval_us": 0}],
        *[{"missed_us": "x"}, {"schema_version": 2}, {"run_id": None}, None],
    ],
)
def test_a_file_that_no_recorder_writes_is_as_none(tmp_path: Path, change: dict[str, object] | None) -> None:
    write(tmp_path, lambda rank, _: 30.0 * rank)
    path = tmp_path / "rank_1.lines"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text("[" * 10**5 if change is None else json.dumps(content | change), encoding="utf-8")
    found = only(tmp_path)
    assert (found.kind, found.rank, found.where) == ("late_rank", 1, None)


def test_names_from_a_file_are_cleaned(tmp_path: Path) -> None:
    write(tmp_path, lambda rank, _: 30.0 * rank, line=lambda _: ("\x1b[31m.py", 9, "\n" + "f" * 500))
    where = only(tmp_path).where
    assert where is not None
    assert "\x1b" not in where and "\n" not in where and len(where) < 300
