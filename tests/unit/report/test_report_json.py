"""The JSON contract: these keys, these units. A change here is a change of schema_version."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

from pyddpdiag.cli import main
from pyddpdiag.model.account import PARTS
from pyddpdiag.model.cube import PARTS as STEP_PARTS
from pyddpdiag.model.cube import SPANS
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import report_from_dict, report_to_dict, report_to_json


def keys(text: str) -> set[str]:
    return set(text.split())


TOP = keys(
    """
    schema_version folder run_id world_size only_step only_bucket verdict ranks buckets steps_source
    steps_left_out steps steps_without_ranks other_collectives links lines groups phases account parts
    tried in_flight_total in_flight_operations errors_total errors gaps mismatches warnings units
    """
)
ACCOUNT = {"rank", "wall_s", *PARTS, "phases"}
RANK = keys(
    """
    rank absent ended ended_by host torch steps last_step records overwritten skipped dropped torn
    malformed in_flight errors closed wall_ms compute_ms data_wait_ms exposed_ms other_ms own_ms
    micro_steps last_arrivals arrivals clock_offset_ms clock_uncertainty_ms clock_inconsistent process
    silent_ms beat_age_ms cores threads load memory_bytes machine_memory_bytes
    """
)
RANK_PARTS = {
    "rank",
    "step_ms",
    *(f"{part}_ms" for part in STEP_PARTS),
    *(f"{span}_ms" for span in ("before", *SPANS)),
}
MEASURED = keys("arrival_ms queue_ms wire_ms total_ms algbw_gbps busbw_gbps hidden_fraction")
BUCKET = MEASURED | keys(
    """
    bucket module parameters bytes dtype gradient_dtype group group_size count judged incomplete
    first_step last_step first_steps_only cost_ms shared_memory last_arrivals
    """
)
STEP = {"step", "wall_ms", "buckets", "judged", "ranks"}
STEP_RANK = keys("rank wall_ms compute_ms data_wait_ms exposed_ms other_ms own_ms buckets bytes")
GROUP = keys("group ranks backend shared_memory buckets shared_buckets waiting_fraction summing_fraction")
COLLECTIVE = keys("name rank count median_ms p95_ms total_ms in_flight group wait_ms where")
LINE = {"rank", "part", "where", "call", "samples", "fraction", "total_s", "missed_s"}
LINK = keys(
    """
    rank peer interface peer_interface local remote loopback connections seconds bytes busy_ms_per_mb
    min_rtt_ms segments retransmitted dsack_dups loss_fraction loss_rtt_share loss_spread loss_scattered
    unconfirmed floor_rtt_ms low_rtt_ms usual_rtt_ms
    """
)
OPEN = {"rank", "kind", "what", "sequence", "step", "bytes", "started", "abandoned", "open_ms", "shared"}
ERROR = {"rank", "kind", "what", "sequence", "step", "text", "at_ms"}
GAP = {"rank", "group", "before", "between", "after", "last_sequence", "group_last_sequence"}
MISMATCH = {"group", "sequence", "step", "field", "values", "count", "operation"}
FINDING = keys(
    """
    kind family short severity message confidence rank bucket parameter evidence change_mind advice peer
    since_step until_step cost_s where among cost_ms cause
    """
)
LISTS = {
    "ranks": RANK,
    "buckets": BUCKET,
    "steps": STEP,
    "other_collectives": COLLECTIVE,
    "links": LINK,
    "lines": LINE,
    "groups": GROUP,
    "in_flight_operations": OPEN,
    "errors": ERROR,
    "gaps": GAP,
    "account": ACCOUNT,
    "parts": RANK_PARTS,
    "mismatches": MISMATCH,
}


def parse(text: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def everything(folder: Path) -> dict[str, Any]:
    """A run in which every list of the contract has an entry."""
    ends = ("10.0.0.1:1", "10.0.0.2:2")
    for rank in range(2):
        writer = RankWriter(rank, 2, closed=rank)
        name = f"{ends[rank]}|{ends[1 - rank]}"
        writer.connection_name(name)
        writer.reading(name, 10 * MS, bytes_sent=7)
        for step in range(6):
            now = (1 + step) * 100 * MS
            writer.step(step, now, now + MS, now + 60 * MS)
            writer.backward(step, now, now + 50 * MS, now + 53 * MS)
            writer.bucket(step, now + (45 + rank) * MS, now + 46 * MS, now + 52 * MS)
        writer.collective("gloo:broadcast", 10 * MS, 12 * MS)
        writer.look(150 * MS, ("train.py", 7, "main"), "time.sleep")
        writer.bucket(6, 800 * MS, 801 * MS, 802 * MS, bytes=10 + rank)
        if rank == 0:
            writer.bucket(7, 900 * MS, 901 * MS, 0, state=IN_FLIGHT)
            writer.error(writer.bucket(8, 950 * MS, 951 * MS, 960 * MS, flags=1), "peer gone")
        writer.write(folder)
    return parse(report_to_json(load_report(folder)))


def test_keys_are_exactly_the_contract(tmp_path: Path) -> None:
    written = everything(tmp_path)
    assert set(written) == TOP
    assert written["schema_version"] == 1
    assert set(written["verdict"]) == {"status", "line", "findings", "charges"}
    assert written["verdict"]["charges"]
    for charge in written["verdict"]["charges"]:
        assert set(charge) == {"rank", "part", "seconds", "share", "explained_s", "explained_by", "among"}
    for name, keys in LISTS.items():
        assert written[name], name
        for entry in written[name]:
            assert set(entry) == keys, name
    assert written["verdict"]["findings"]
    for finding in written["verdict"]["findings"]:
        assert set(finding) == FINDING
    for step in written["steps"]:
        for rank in step["ranks"]:
            assert set(rank) == STEP_RANK
    for bucket in written["buckets"]:
        for name in MEASURED:
            assert set(bucket[name]) == {"median", "p95"}
    for rank in written["ranks"]:
        for name in ("wall_ms", "compute_ms", "data_wait_ms", "exposed_ms", "other_ms", "own_ms"):
            assert set(rank[name]) == {"median", "p95"}


def test_values_of_a_known_run(tmp_path: Path) -> None:
    written = everything(tmp_path)
    assert written["world_size"] == 2
    zero, one = written["ranks"]
    assert (zero["rank"], zero["host"], zero["steps"], zero["last_step"]) == (0, "host0", 9, 8)
    assert (one["steps"], one["last_step"]) == (7, 6)
    assert (zero["records"], zero["overwritten"], zero["in_flight"], zero["errors"]) == (23, 0, 1, 1)
    assert (zero["closed"], one["closed"]) == (False, True)
    assert written["steps"][2]["wall_ms"] == 60.0
    assert written["steps"][2]["ranks"][1]["data_wait_ms"] == 1.0
    assert written["buckets"][0]["arrival_ms"]["median"] == 1.0
    assert written["errors"][0]["text"] == "peer gone"
    assert written["steps_left_out"] == [0]


def test_nothing_known_is_null_and_never_nan(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 10, 0, 0, state=IN_FLIGHT)
    writer.write(tmp_path, sidecar=False)
    written = parse(report_to_json(load_report(tmp_path)))
    bucket = written["buckets"][0]
    assert bucket["count"] == 0
    assert all(bucket[name] == {"median": None, "p95": None} for name in MEASURED)
    assert written["ranks"][0]["wall_ms"] == {"median": None, "p95": None}
    assert written["steps"][0]["wall_ms"] is None


def test_empty_trace_is_still_the_contract(tmp_path: Path) -> None:
    RankWriter().write(tmp_path)
    written = parse(report_to_json(load_report(tmp_path)))
    assert set(written) == TOP
    assert written["buckets"] == written["steps"] == written["errors"] == []


def test_long_runs_are_valid_json_too(tmp_path: Path) -> None:
    write_training(tmp_path, steps=600, buckets=1, world_size=2)
    text = report_to_json(load_report(tmp_path))
    steps = [step["step"] for step in parse(text)["steps"]]
    assert steps == list(range(258, 600))  # the ring holds 1024 records, three a step
    assert text.isascii()


def test_document_names_every_key() -> None:
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert (TOP | STEP_RANK | FINDING).union(*LISTS.values()) - named == set()


def test_a_long_run_shows_its_ranks_in_some_steps_and_in_all_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_training(tmp_path / "run", world_size=3, steps=40)
    whole = report_to_dict(load_report(tmp_path / "run"))
    assert whole["steps_without_ranks"] == 0 and all(len(step["ranks"]) == 3 for step in whole["steps"])
    monkeypatch.setattr("pyddpdiag.report.json.ROWS", 32)
    assert main(["report", str(tmp_path / "run"), "--json", "--detail"]) == 0
    assert parse(capsys.readouterr().out) == whole
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    text = capsys.readouterr().out
    short = parse(text)
    shown = [step for step in short["steps"] if step["ranks"]]
    assert (len(shown), short["steps_without_ranks"]) == (10, 30)
    numbers = [step["step"] for step in shown]
    assert (numbers[0], numbers[-1]) == (0, 39) and max(np.diff(numbers)) <= 5
    # Nothing else is another: every step is there, and what is shown of it is the same.
    assert all(step == whole["steps"][step["step"]] for step in shown)
    for step, of_whole in zip(short.pop("steps"), whole.pop("steps"), strict=True):
        assert {**step, "ranks": []} == {**of_whole, "ranks": []}
    assert {**short, "steps_without_ranks": 0} == whole
    # Whoever reads it again is told.
    (tmp_path / "saved.json").write_text(text, encoding="utf-8")
    again = load_report(tmp_path / "saved.json")
    assert "the ranks' times of 10 of 40 steps" in again.warnings[-1] and len(again.steps) == 30
    assert again.ranks == load_report(tmp_path / "run").ranks


def test_a_report_that_was_saved_before_there_were_shorter_ones_is_whole(tmp_path: Path) -> None:
    write_training(tmp_path)
    report = load_report(tmp_path)
    raw = report_to_dict(report)
    del raw["steps_without_ranks"]
    assert report_from_dict(raw).warnings == report.warnings


def test_detail_without_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path)
    assert main(["report", str(tmp_path), "--detail"]) == 2
    assert "--detail belongs to --json" in capsys.readouterr().err
