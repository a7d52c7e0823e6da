"""Buckets on an accelerator, which computes on when its host is done: nothing of that is communication."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.analyse.details import timeline
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BackwardTime, BucketTime, Kind, StepTime
from pyddpdiag.trace.run import open_run

STEPS = 40
DEVICE = 8
# What a host takes to hand all work to its device, what two buckets take on the wire, and after which part of the
# device's work the first one is there.
HOST_MS, WIRE_MS, FIRST = 2, 3, 0.5


def _write(folder: Path, device_ms: Sequence[float], changed_ms: Sequence[float] | None = None) -> RunReport:
    """Ranks whose devices take so long for a step, or the second time in its last half.

    One Gloo worker serves both buckets: it waits for the device at the first one, and gets to the second one when the
    first one has travelled.
    """
    writers = [RankWriter(rank, len(device_ms)) for rank in range(len(device_ms))]
    now = 10**9
    for step in range(STEPS):
        took = device_ms if changed_ms is None or step < STEPS // 2 else changed_ms
        host = now + HOST_MS * MS
        firsts = [max(host, now + int(FIRST * ms * MS)) for ms in took]
        lasts = [max(host, now + int(ms * MS)) for ms in took]
        begun = max(firsts)
        sent = begun + WIRE_MS * MS
        done = max(sent, max(lasts)) + WIRE_MS * MS
        for writer, first, last in zip(writers, firsts, lasts, strict=True):
            writer.step(step, now, now, done)
            writer.backward(step, now, host, done)
            half = host - MS // 2
            for number, (enqueued, started, ended, ready) in enumerate(
                ((half, half, sent, first), (host, sent, done, max(sent + 6_000, last)))
            ):
                writer.bucket(2 * step + number, enqueued, started, ended, step=step, flags=DEVICE)
                writer.records[-1]["times"][5] = ready
            writer.usage(step, done, step * HOST_MS * MS, 0, step * HOST_MS * MS)
        now = done
    for writer in writers:
        writer.sidecar["host"] = f"host{writer.rank}"
        writer.write(folder)
    return load_report(folder)


def _late(report: RunReport) -> list[Finding]:
    return [found for found in report.verdict.findings if found.kind == "late_rank"]


def test_a_device_that_computes_longer_makes_its_rank_late(tmp_path: Path) -> None:
    report = _write(tmp_path, [20, 60, 20])
    (late,) = _late(report)
    assert (late.rank, late.cause, late.confidence) == (1, "device", "high")
    # Nobody saw when the others' devices were done with the second bucket: after the first one, at the earliest.
    assert late.cost_ms is not None and 40 <= late.cost_ms <= 40 + 20 * (1 - FIRST)
    assert late.evidence["device_share"] == pytest.approx(1.0, abs=0.05)
    assert "its accelerator computes that much longer" in late.message and "nvidia-smi" in late.advice


def test_what_the_device_computes_is_no_communication(tmp_path: Path) -> None:
    """Where all devices take long, a step is computing, and only the last bucket's way is exposed."""
    report = _write(tmp_path, [60, 60])
    assert not _late(report)
    for rank in report.ranks:
        assert rank.exposed_ms.median == pytest.approx(WIRE_MS, abs=0.1)
        assert rank.compute_ms.median == pytest.approx(60, abs=0.1)
        assert rank.own_ms.median == pytest.approx(60, abs=0.1)
    kinds = {found.kind for found in report.verdict.findings}
    assert not kinds & {"exposed_communication", "slow_link", "high_latency"}, kinds


def test_a_bucket_waits_for_the_last_device_and_then_travels(tmp_path: Path) -> None:
    report = _write(tmp_path, [20, 60])
    (both,) = report.buckets
    assert both.last_arrivals == {1: both.judged}
    assert both.times.arrival_ms.median == pytest.approx(30, abs=11)
    assert both.times.wire_ms.median == pytest.approx(WIRE_MS, abs=0.1)
    assert both.times.queue_ms.median == pytest.approx(0, abs=0.1)


def test_the_picture_of_a_step_shows_what_the_device_computes(tmp_path: Path) -> None:
    _write(tmp_path, [20, 60])
    trace = open_run(tmp_path).ranks[1]
    read = {kind: trace.of_kind(kind).tobytes() for kind in (Kind.BUCKET, Kind.BACKWARD)}
    line = timeline(trace, 1000, np.array([7]))
    begin = line.steps.times[0, StepTime.BEGIN]
    assert line.passes.times[0, BackwardTime.FINALIZE_BEGIN] == begin + 60 * MS
    assert (line.buckets.times[:, BucketTime.ENQUEUED] - begin).tolist() == [30 * MS, 60 * MS]
    assert (line.buckets.times[:, BucketTime.STARTED] - begin).tolist() == [30 * MS, 60 * MS]
    # What was read is as it was.
    assert read == {kind: trace.of_kind(kind).tobytes() for kind in read}


def test_devices_that_become_slower(tmp_path: Path) -> None:
    report = _write(tmp_path, [20, 20], [60, 60])
    (slower,) = [found for found in report.verdict.findings if found.kind == "slower_steps"]
    assert slower.since_step == pytest.approx(STEPS // 2, abs=1)
    assert "accelerators compute that much longer" in slower.message
