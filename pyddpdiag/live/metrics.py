"""Looks at a run as a text file for a node exporter's folder, replaced as a whole at each look."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.export.openmetrics import Metrics, verdict
from pyddpdiag.live.pulse import Pulse
from pyddpdiag.live.watch import Show
from pyddpdiag.system.result_files import write_whole


def also_written(show: Show, path: Path) -> Show:
    """Shows looks, and keeps a file of the newest one.

    It stays when the watching ends: `pyddpdiag_look_time_seconds` tells how old it is. A file that cannot be written
    is an error of showing.
    """

    def both(pulse: Pulse) -> None:
        show(pulse)
        write_whole(path, pulse_metrics(pulse), force=True, option="--openmetrics")

    return both


def pulse_metrics(pulse: Pulse) -> str:
    """The figures of one look."""
    metrics = Metrics()
    run = {"run": pulse.folder}
    metrics.add("look_time_seconds", "When the run was looked at, in seconds since 1970.", pulse.at_s, **run)
    metrics.add("running", "1 while the run goes on.", float(pulse.status == "running"), **run)
    if pulse.status == "waiting":
        return metrics.text()
    metrics.add("ranks", "Ranks of the run.", pulse.world_size, **run)
    verdict(metrics, None if pulse.verdict is None else pulse.verdict.status, run)
    metrics.add("newest_step", "The newest step on any rank.", pulse.step, **run)
    metrics.add("steps_per_second", "Steps per second since the look before.", pulse.steps_per_s, **run)
    metrics.add_ms("run_step_seconds", "The median step.", pulse.step_ms, **run)
    metrics.add_ms(
        "run_exposed_seconds", "Communication that no late rank explains.", pulse.exposed_ms, **run
    )
    metrics.add_gbps("bus_bytes_per_second", "Load on a link (busbw).", pulse.busbw_gbps, **run)
    for rank in pulse.ranks:
        who = {**run, "rank": rank.rank, "host": rank.host}
        for name, value in (
            ("step_seconds", rank.step_ms),
            ("compute_seconds", rank.compute_ms),
            ("data_wait_seconds", rank.data_wait_ms),
            ("exposed_seconds", rank.exposed_ms),
            ("late_seconds", rank.late_ms),
        ):
            metrics.add_ms(name, "Median per step.", value, **who)
        metrics.add("in_flight", "Operations begun and not ended.", rank.in_flight, **who)
        metrics.add_ms("silent_seconds", "Time since the newest record.", rank.silent_ms, **who)
    return metrics.text()
