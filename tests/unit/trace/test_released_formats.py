"""A trace of each released format stays readable. Recorded by the version that wrote it, in a real training run.

Each is of two ranks, 12 steps of a network of three linear layers in buckets of 10 KiB, through `recorder.attach`.
"""

from pathlib import Path

import pytest

from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

TRACES = Path(__file__).parents[2] / "data" / "traces"
FORMATS = sorted(path.name for path in TRACES.iterdir())
STEPS = 12


def test_every_released_format_is_here() -> None:
    assert FORMATS == ["1.0", "1.1", "1.2", "1.4"]


@pytest.mark.parametrize("version", FORMATS)
def test_it_is_read_without_a_complaint(version: str) -> None:
    run = open_run(TRACES / version)
    assert run.warnings == ()
    assert [trace.rank for trace in run.ranks] == [0, 1]
    for trace in run.ranks:
        assert f"1.{trace.header.minor}" == version
        assert (trace.torn, trace.malformed, trace.unknown) == (0, 0, 0)
        assert len(trace.of_kind(Kind.STEP)) >= STEPS and len(trace.of_kind(Kind.BUCKET)) > STEPS
        module = trace.sidecar.modules[0]
        assert module.parameters[0] == "0.weight" and module.shapes[0] == (64, 32)
        assert set(module.dtypes) == {"float32"}
        assert trace.sidecar.torch.startswith("2.13")


@pytest.mark.parametrize("version", FORMATS)
def test_it_is_judged(version: str) -> None:
    report = load_report(TRACES / version)
    assert report.verdict.line and not report.gaps and not report.mismatches
    assert {rank.rank: rank.closed for rank in report.ranks} == {0: True, 1: True}
    assert {rank.process for rank in report.ranks} <= {"unknown", "dead"}
    lasting = [bucket for bucket in report.buckets if not bucket.first_steps_only]
    assert lasting and all(bucket.times.total_ms.median for bucket in lasting)
    assert {name for bucket in report.buckets for name in bucket.parameters} == {
        f"{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")
    }


@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_what_1_2_added_is_read(version: str) -> None:
    report = load_report(TRACES / version)
    assert {rank.ended for rank in report.ranks} == {"orderly"}
    assert [(phase.name, phase.rank, phase.count) for phase in report.phases] == [
        ("checkpoint", 0, 1),
        ("checkpoint", 1, 1),
    ]
    assert {(link.rank, link.peer, link.loopback) for link in report.links} == {(0, 1, True), (1, 0, True)}
    for trace in open_run(TRACES / version).ranks:
        assert trace.header.heartbeat_ns > trace.header.monotonic_ns
        assert (trace.of_kind(Kind.USAGE)["times"][:, :4] > 0).all()
        assert trace.sidecar.cores and trace.sidecar.interfaces
