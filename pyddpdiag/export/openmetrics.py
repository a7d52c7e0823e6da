"""A run's figures as text for Prometheus: a node exporter serves what lies in its folder for text files.

Only gauges: their text is the same in Prometheus's older format, which the node exporter reads, and in OpenMetrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun
from pyddpdiag.model.report import RunReport
from pyddpdiag.output import clean

_STATES = ("healthy", "findings", "cannot_tell")


@dataclass
class _Family:
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


class Metrics:
    """Collects gauges by name."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def add(self, name: str, about: str, value: float | None, **labels: object) -> None:
        """A sample; None and what is not finite are left out. Of several with the same labels the largest counts."""
        if value is not None and math.isfinite(value):
            family = self._families.setdefault(f"pyddpdiag_{name}", _Family(about))
            key = tuple((label, clean(str(each))) for label, each in labels.items())
            family.samples[key] = max(float(value), family.samples.get(key, -math.inf))

    def add_ms(self, name: str, about: str, milliseconds: float | None, **labels: object) -> None:
        """A time, in seconds as Prometheus has it."""
        self.add(name, about, None if milliseconds is None else milliseconds / 1e3, **labels)

    def add_gbps(self, name: str, about: str, rate: float | None, **labels: object) -> None:
        """A rate given in GB/s, in bytes per second."""
        self.add(name, about, None if rate is None else rate * 1e9, **labels)

    def text(self) -> str:
        """All of them, with the end mark that OpenMetrics wants and Prometheus takes for a comment."""
        lines = []
        for name, family in self._families.items():
            lines += [f"# HELP {name} {_escaped(family.help)}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value!r}" for labels, value in family.samples.items()]
        return "\n".join([*lines, "# EOF"]) + "\n"


def outputs(run: ExportedRun) -> Iterator[Output]:
    """One text file."""
    yield Output(PurePath("pyddpdiag.prom"), lambda: report_metrics(run.report))


def report_metrics(report: RunReport) -> str:
    """The figures of a whole run."""
    metrics = Metrics()
    run = {"run": report.folder}
    metrics.add("ranks", "Ranks of the run.", report.world_size, **run)
    verdict(metrics, report.verdict.status, run)
    for finding in report.verdict.findings:
        metrics.add(
            "finding_cost_seconds",
            "What a finding costs per step; 0 where that is not known.",
            (finding.cost_ms or 0.0) / 1e3,
            **run,
            kind=finding.kind,
            severity=finding.severity,
            rank="" if finding.rank is None else finding.rank,
        )
    for rank in report.ranks:
        who = {**run, "rank": rank.rank, "host": rank.host}
        for name, stat in (
            ("step_seconds", rank.wall_ms),
            ("compute_seconds", rank.compute_ms),
            ("data_wait_seconds", rank.data_wait_ms),
            ("exposed_seconds", rank.exposed_ms),
            ("own_seconds", rank.own_ms),
        ):
            metrics.add_ms(name, "Median per step.", stat.median, **who)
        metrics.add("steps", "Steps in the trace.", rank.steps, **who)
        metrics.add("operation_errors", "Operations that failed.", rank.errors, **who)
        metrics.add("in_flight", "Operations begun and not ended.", rank.in_flight, **who)
    for bucket in report.buckets:
        what = {**run, "bucket": bucket.bucket}
        metrics.add("bucket_bytes", "Size of a bucket.", bucket.bytes, **what)
        for name, stat in (
            ("bucket_arrival_seconds", bucket.times.arrival_ms),
            ("bucket_queue_seconds", bucket.times.queue_ms),
            ("bucket_wire_seconds", bucket.times.wire_ms),
        ):
            metrics.add_ms(name, "Median of a bucket's all-reduce.", stat.median, **what)
        rate = bucket.times.busbw_gbps.median
        metrics.add_gbps("bucket_bus_bytes_per_second", "Load on a link (busbw).", rate, **what)
    for link in report.links:
        pair = {**run, "rank": link.rank, "peer": link.peer, "from": link.local, "to": link.remote}
        metrics.add("link_bytes", "Bytes that a rank sent to another one.", link.bytes, **pair)
        metrics.add("link_loss_fraction", "Segments lost, of all.", link.loss_fraction, **pair)
        trip = link.min_rtt_ms
        metrics.add_ms("link_min_rtt_seconds", "The least round trip.", trip, **pair)
    return metrics.text()


def verdict(metrics: Metrics, status: str | None, run: Mapping[str, object]) -> None:
    """The verdict as one gauge per status, of which one is 1."""
    for each in _STATES:
        metrics.add("verdict", "1 for the present verdict.", float(each == status), **run, status=each)


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    joined = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels)
    return f"{{{joined}}}" if joined else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    escaped = clean(text).replace("\\", "\\\\")
    return escaped.replace('"', '\\"') if quotes else escaped
