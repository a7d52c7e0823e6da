"""Time on buckets: one reckoning for sweeps and for scaling series, and nothing is summed that is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.trace_writer import BUCKET, PARAMETER, RankWriter, bucket_id, write_training

from pyddpdiag.bench.engine.collect import bucket_seconds_per_step, split_of
from pyddpdiag.pipeline import load_report
from pyddpdiag.scaling.model import split_of as split_of_run
from pyddpdiag.train.events import TrainResult

STEPS = 12


def result(folder: Path, steps: int) -> TrainResult:
    return TrainResult(2, "native", str(folder), 100, 2, (), seconds=60.0, steps=steps)


def change(folder: Path, writers: list[RankWriter], steps: range, *, drop: bool) -> None:
    """In these steps the second bucket has no record (`drop`), or none of its start; sequence numbers have no gap."""
    for writer in writers:
        sequence = 0
        for record in writer.records:
            if record["kind"] != BUCKET:
                continue
            if record["reference"] == bucket_id(1) and record["step"] in steps:
                if drop:
                    record["kind"] = PARAMETER
                    continue
                record["times"][2] = 0
            record["sequence"] = sequence
            sequence += 1
        writer.write(folder)


def test_a_sweep_and_a_scaling_series_reckon_alike(tmp_path: Path) -> None:
    write_training(tmp_path, steps=STEPS, queue_ms=0.5, wire_ms=2.0)
    per_step = split_of(tmp_path)
    assert per_step["queue_s"] == pytest.approx(0.001) and per_step["wire_s"] == pytest.approx(0.004)
    of_run = split_of_run(result(tmp_path, 500))
    assert per_step["queue_s"] is not None and per_step["wire_s"] is not None
    assert of_run.queue_s == pytest.approx(500 * per_step["queue_s"])
    assert of_run.wire_s == pytest.approx(500 * per_step["wire_s"])


def test_a_bucket_that_is_not_known_makes_the_sum_unknown_in_both(tmp_path: Path) -> None:
    writers = write_training(tmp_path, steps=STEPS)
    change(tmp_path, writers, range(STEPS), drop=False)
    assert [bucket.times.queue_ms.median for bucket in load_report(tmp_path).buckets].count(None) == 1
    assert split_of(tmp_path)["queue_s"] is None and split_of(tmp_path)["wire_s"] is None
    of_run = split_of_run(result(tmp_path, 500))
    assert of_run.queue_s is None and of_run.wire_s is None
    assert of_run.compute_s is not None


def test_a_bucket_that_comes_in_some_steps_counts_by_how_often(tmp_path: Path) -> None:
    writers = write_training(tmp_path, steps=STEPS, wire_ms=2.0)
    change(tmp_path, writers, range(0, STEPS, 2), drop=True)
    judged = range(1, STEPS)
    often = sum(step % 2 for step in judged) / len(judged)
    wire_s = bucket_seconds_per_step(load_report(tmp_path))["wire_s"]
    assert wire_s == pytest.approx(0.002 * (1 + often))
    assert split_of_run(result(tmp_path, 100)).wire_s == pytest.approx(100 * 0.002 * (1 + often))
