"""Exports, each read by the tool that it is for; a tool that is not installed is skipped with the reason."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import python
from support.pages import skip_without
from support.promised import need
from support.shown_run import write_shown
from support.trace_writer import COLLECTIVE, MS, record_dtype, write_training

from pyddpdiag.cli import main
from pyddpdiag.export.chrome import COMMUNICATION
from pyddpdiag.export.run import read_run
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.events import lanes
from pyddpdiag.trace.layout import Kind, StepTime
from pyddpdiag.trace.run import held_records, open_run

STEPS = 24
RANKS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_shown(tmp_path_factory.mktemp("exported") / "run", world_size=RANKS, steps=STEPS)
    # Recorders are not opened at once: this one 0.9 s after rank 1, which has begun something meanwhile.
    path = folder / "rank_0.ddptrace"
    page = bytearray(path.read_bytes())
    for place in (64, 72):  # a moment on the monotonic and on the wall clock
        (moment,) = struct.unpack_from("<q", page, place)
        struct.pack_into("<q", page, place, moment + 900 * MS)
    path.write_bytes(page)
    early = folder / "rank_1.ddptrace"
    content = early.read_bytes()
    records = np.frombuffer(content[4096:], record_dtype()).copy()
    first = np.flatnonzero(records["kind"] == COLLECTIVE)[0]
    records["times"][first][:2] = 1_000_000_000 + 10 * MS, 1_000_000_000 + 12 * MS
    early.write_bytes(content[:4096] + records.tobytes())
    return folder


@pytest.fixture(scope="module")
def chrome(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("chrome")
    assert main(["export", str(folder), "--chrome", "--output-dir", str(target)]) == 0
    return target


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


def test_each_rank_has_its_file_with_its_rank(chrome: Path) -> None:
    for rank in range(RANKS):
        exported = json.loads((chrome / "chrome" / f"rank_{rank}.json").read_text(encoding="utf-8"))
        assert (
            exported["distributedInfo"]["rank"] == rank and exported["distributedInfo"]["world_size"] == RANKS
        )
        assert {event["pid"] for event in exported["traceEvents"]} == {rank}


def test_slices_of_one_thread_never_overlap_but_nest(chrome: Path) -> None:
    for rank in range(RANKS):
        by_thread: dict[int, list[tuple[float, float]]] = {}
        for event in events(chrome / "chrome" / f"rank_{rank}.json"):
            if event["ph"] == "X":
                by_thread.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
        assert len(by_thread) > 4
        for spans in by_thread.values():
            open_until: list[float] = []
            for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                while open_until and open_until[-1] <= begin + 1e-6:
                    open_until.pop()
                assert not open_until or end <= open_until[-1] + 1e-6
                open_until.append(end)


def test_flows_lead_from_the_last_rank_to_the_others(chrome: Path) -> None:
    flows: dict[str, list[dict[str, Any]]] = {}
    for event in events(chrome / "chrome-all-ranks.json"):
        if event["ph"] in "sf":
            flows.setdefault(event["id"], []).append(event)
    assert len(flows) == STEPS * 3
    for ends in flows.values():
        starts = [event for event in ends if event["ph"] == "s"]
        assert [event["pid"] for event in starts] == [1] and len(ends) == RANKS
        assert all(event["ts"] >= starts[0]["ts"] for event in ends)
        assert {event["bp"] for event in ends} == {"e"}


def test_buckets_in_flight_are_counted(chrome: Path) -> None:
    counts = [e["args"]["buckets"] for e in events(chrome / "chrome" / "rank_0.json") if e["ph"] == "C"]
    assert max(counts) >= 2 and min(counts) == 0 and counts[-1] == 0


# In a process of its own: it warns of its own use of older interfaces, and forks.
ANALYSIS = """
import json, sys
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    times = analysis.get_temporal_breakdown(visualize=False)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump([overlap.to_dict("records"), times.to_dict("records")], file)
"""


def test_holistic_trace_analysis_agrees(chrome: Path, folder: Path, tmp_path: Path) -> None:
    skip_without("hta")
    program, answer = tmp_path / "analysis.py", tmp_path / "answer.json"
    program.write_text(ANALYSIS, encoding="utf-8")
    done = python("-W", "ignore", str(program), str(chrome / "chrome"), str(answer), timeout_s=240)
    if "ModuleNotFoundError" in done.stderr:
        need("tools", f"Holistic Trace Analysis lacks a part: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    overlaps, breakdown = json.loads(answer.read_text(encoding="utf-8"))
    overlap = {row["rank"]: row["comp_comm_overlap_pctg"] for row in overlaps}
    times = {row["rank"]: row for row in breakdown}
    steps = load_report(folder).steps
    for rank in range(RANKS):
        mine = steps.take(steps.rank == rank)
        spans = [e for e in events(chrome / "chrome" / f"rank_{rank}.json") if e.get("name") == COMMUNICATION]
        covered = union([(e["ts"], e["ts"] + e["dur"]) for e in spans])
        exposed = 1e3 * float(mine.exposed_ms.sum())
        # Communication that computing does not cover is what is exposed.
        assert overlap[rank] == pytest.approx(100 * (1 - exposed / covered), abs=0.1)
        assert times[rank]["non_compute_time(us)"] == pytest.approx(exposed, rel=0.002)
        assert times[rank]["compute_time(us)"] == pytest.approx(1e3 * float(mine.compute_ms.sum()), rel=0.02)


def union(spans: list[tuple[float, float]]) -> float:
    """How much time some spans cover."""
    total, until = 0.0, -np.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def test_perfetto_reads_it(chrome: Path) -> None:
    if importlib.util.find_spec("perfetto") is None:
        need("perfetto", "the package perfetto is not installed")
    # The package downloads this program when it is first used; a test must not.
    program = os.environ.get("PYDDPDIAG_TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if program is None:
        need(
            "perfetto", "Perfetto's trace_processor_shell is not in PATH; PYDDPDIAG_TRACE_PROCESSOR names it"
        )
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(
        trace=str(chrome / "chrome-all-ranks.json"), config=TraceProcessorConfig(bin_path=program)
    ) as processor:
        count = {
            row.name: row.n for row in processor.query("select name, count(*) as n from slice group by name")
        }
        assert count[COMMUNICATION] == STEPS * 3 * RANKS
        assert next(iter(processor.query("select count(*) as n from flow"))).n == STEPS * 3 * (RANKS - 1)
        assert (
            next(
                iter(
                    processor.query("select count(*) as n from stats where severity = 'error' and value > 0")
                )
            ).n
            == 0
        )


def test_steps_can_be_chosen(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["export", str(folder), "--chrome", "--steps", "3-4", "--output-dir", str(tmp_path / "few")])
        == 0
    )
    names = {e["name"] for e in events(tmp_path / "few" / "chrome" / "rank_0.json") if e["ph"] == "X"}
    assert {name for name in names if name.startswith("ProfilerStep")} == {"ProfilerStep#3", "ProfilerStep#4"}
    for wrong in ("4-3", "a", "-1", "1-2-3"):
        export = ["export", str(folder), "--chrome", f"--steps={wrong}", "--output-dir", str(tmp_path / "no")]
        assert main(export) == 2
        assert "not a range of steps" in capsys.readouterr().err


def test_too_much_for_a_viewer_says_which_part_fits(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export = ["export", str(folder), "--chrome", "--output-dir", str(tmp_path)]
    records = sum(held_records(folder))
    for most, said in ((1.3 * records, "--steps 0-"), (records - 1, "more events than any viewer opens")):
        monkeypatch.setattr("pyddpdiag.export.run.MOST_EVENTS", most)
        assert main(export) == 2
        assert said in capsys.readouterr().err
        monkeypatch.setattr("pyddpdiag.export.run.open_run", lambda *_, **__: pytest.fail("read"))


def test_pandas_reads_csv_and_parquet_alike(folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(folder), "--csv", "--output-dir", str(tmp_path)]) == 0
    with (tmp_path / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == STEPS * RANKS and float(rows[3]["wall_ms"]) > 30
    skip_without("pandas")
    skip_without("pyarrow")
    import pandas as pd

    assert main(["export", str(folder), "--parquet", "--output-dir", str(tmp_path)]) == 0
    report = load_report(folder)
    for name in ("steps", "buckets", "occurrences", "ranks", "links", "findings"):
        left, right = pd.read_csv(tmp_path / f"{name}.csv"), pd.read_parquet(tmp_path / f"{name}.parquet")
        assert list(left) == list(right) and len(left) == len(right)
        for column in left.select_dtypes("number"):
            if left[column].isna().all() and (right[column] == "").all():
                continue  # texts that are all empty have no type in CSV
            assert left[column].to_numpy(float) == pytest.approx(right[column].to_numpy(float), nan_ok=True)
    steps = pd.read_parquet(tmp_path / "steps.parquet")
    assert steps.exposed_ms.to_numpy() == pytest.approx(report.steps.exposed_ms)
    occurrences = pd.read_parquet(tmp_path / "occurrences.parquet")
    assert len(occurrences) == STEPS * 3 and set(occurrences.last_rank) == {1}
    judged = occurrences[occurrences.step > 0].groupby("bucket").wire_ms.median()
    assert {b.bucket: b.times.wire_ms.median for b in report.buckets} == pytest.approx(judged.to_dict())


def test_tensorboard_reads_the_scalars(folder: Path, tmp_path: Path) -> None:
    skip_without("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    command = ["export", str(folder), "--tensorboard", "--output-dir", str(tmp_path)]
    assert main(command) == 0
    assert main(command) == 2
    assert main([*command, "--force"]) == 0
    report = load_report(folder)
    for rank in range(RANKS):
        files = EventAccumulator(str(tmp_path / "tensorboard" / f"rank_{rank}")).Reload()
        scalars = files.Scalars("rank/exposed_ms")
        mine = report.steps.take(report.steps.rank == rank)
        assert [scalar.step for scalar in scalars] == mine.step.tolist()
        assert [scalar.value for scalar in scalars] == pytest.approx(mine.exposed_ms.tolist(), rel=1e-5)
        assert len(files.Scalars("gradient/norm")) == (2 if rank == 2 else 3)
    steps = EventAccumulator(str(tmp_path / "tensorboard" / "steps")).Reload()
    wall = report.steps.wall_ms.reshape(STEPS, RANKS).max(axis=1)
    assert [scalar.value for scalar in steps.Scalars("step/wall_ms")] == pytest.approx(
        wall.tolist(), rel=1e-5
    )
    # Each point at the end of its step, by the wall clock of its rank.
    for trace in open_run(folder).ranks:
        ends = trace.of_kind(Kind.STEP)["times"][:, StepTime.END]
        header = trace.header
        at = (header.wall_ns + (ends - header.monotonic_ns)) / 1e9
        files = EventAccumulator(str(tmp_path / "tensorboard" / f"rank_{trace.rank}")).Reload()
        scalars = [scalar.wall_time for scalar in files.Scalars("rank/wall_ms")]
        assert scalars == pytest.approx(at.tolist(), abs=1e-3) and len(set(scalars)) == STEPS


def test_prometheus_reads_the_gauges_in_both_of_its_formats(folder: Path, tmp_path: Path) -> None:
    skip_without("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as read_prometheus

    assert main(["export", str(folder), "--openmetrics", "--output-dir", str(tmp_path)]) == 0
    text = (tmp_path / "pyddpdiag.prom").read_text(encoding="utf-8")
    families = [
        {(s.name, tuple(sorted(s.labels.items()))): s.value for family in read(text) for s in family.samples}
        for read in (read_openmetrics, read_prometheus)
    ]
    assert families[0] == families[1] and len(families[0]) > 40
    report = load_report(folder)
    rank = report.ranks[1]
    key = tuple(sorted({"run": str(folder), "rank": "1", "host": rank.host}.items()))
    assert rank.exposed_ms.median is not None
    assert families[0]["pyddpdiag_exposed_seconds", key] == pytest.approx(rank.exposed_ms.median / 1e3)
    verdicts = {
        dict(labels)["status"]: v for (name, labels), v in families[0].items() if name == "pyddpdiag_verdict"
    }
    assert verdicts == {"healthy": 0.0, "findings": 1.0, "cannot_tell": 0.0}


def test_watch_keeps_the_newest_look_as_a_file(folder: Path, tmp_path: Path) -> None:
    skip_without("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    target = tmp_path / "node" / "run.prom"
    assert main(["watch", str(folder), "--once", "--openmetrics", str(target)]) == 1
    text = target.read_text(encoding="utf-8")
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"pyddpdiag_look_time_seconds", "pyddpdiag_run_step_seconds", "pyddpdiag_late_seconds"} <= names
    assert main(["watch", str(tmp_path / "nowhere"), "--once", "--openmetrics", str(target)]) == 2
    assert "pyddpdiag_running" in target.read_text(encoding="utf-8")
    assert [path.name for path in target.parent.iterdir()] == ["run.prom"]


def test_labels_from_elsewhere_do_not_break_a_line(tmp_path: Path) -> None:
    skip_without("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    from pyddpdiag.export.openmetrics import Metrics

    metrics = Metrics()
    for value in (1.0, 2.0):
        metrics.add("x", "a \\ b\nc", value, host='"\n\\ {evil}')
    [family] = list(text_string_to_metric_families(metrics.text()))
    assert [(sample.labels["host"], sample.value) for sample in family.samples] == [('" \\ {evil}', 2.0)]


def test_nothing_is_exported_by_default_and_nothing_is_overwritten(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(folder)]) == 2
    assert "--chrome" in capsys.readouterr().err
    (tmp_path / "links.csv").write_text("mine", encoding="utf-8")
    command = ["export", str(folder), "--csv", "--output-dir", str(tmp_path)]
    assert main(command) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["links.csv"]
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0 and (tmp_path / "links.csv").read_text(encoding="utf-8") != "mine"
    assert main(["export", str(tmp_path / "nowhere"), "--csv"]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named_and_none_is_needed_for_tensorboard(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["export", str(folder), "--parquet", "--output-dir", str(tmp_path)]) == 2
    assert "pip install 'pyddpdiag[" in capsys.readouterr().err
    assert main(["export", str(folder), "--tensorboard", "--output-dir", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read"),
        (b"{", "not complete JSON"),
        (b"[]", "no traceEvents"),
        (b"\x1f\x8bxx", "cannot read"),
        (b'{"traceEvents": []}', "does not say of which rank"),
        (b'{"traceEvents": [], "distributedInfo": {"rank": 9}}', "is of rank 9"),
        (
            b'{"traceEvents": [{"ph": "X", "ts": 5, "dur": 1}], "distributedInfo": {"rank": 1}}',
            "the profile is of another time",
        ),
    ],
    ids=str,
)
def test_a_profile_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["export", str(folder), "--merge", str(path), "--output-dir", str(tmp_path / "o")]) == 2
    assert said in capsys.readouterr().err


def test_lanes_hold_what_does_not_overlap() -> None:
    assert lanes([(0, 10), (2, 4), (4, 6), (3, 5), (10, 12)]) == [0, 1, 1, 2, 0]
    assert lanes([]) == []


def test_ranks_on_several_clocks_are_on_one_line(tmp_path: Path) -> None:
    write_training(tmp_path, clocks={1: ("another clock", 7_000_000_000, 0)})
    run = read_run(tmp_path)
    first, second = (line.buckets.times[:, 3] for line in run.timelines)
    assert np.abs(first - second).max() < 5_000_000


def test_stacks_have_rank_part_lines_and_looks(folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(folder), "--stacks", "--output-dir", str(tmp_path)]) == 0
    lines = (tmp_path / "stacks.txt").read_text(encoding="utf-8").splitlines()
    looks = {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in lines)}
    assert looks["rank 1;forward;train.py:9 in load_labels;time.sleep"] >= 10
    assert not any("load_labels" in stack for stack in looks if stack.startswith(("rank 0;", "rank 2;")))
    assert sum(looks.values()) == RANKS * STEPS
