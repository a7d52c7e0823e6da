"""Lateness by rank and bucket, bandwidth by size, and the table of buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pyddpdiag.analyse.wire_fit import fit_wire, lasting_buckets
from pyddpdiag.model.details import Lateness, RunDetails
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import BucketStats, GroupStats
from pyddpdiag.model.words import listed, number, percent, size
from pyddpdiag.report.charts.chart import (
    Axis,
    Bar,
    Chart,
    Heat,
    Line,
    Number,
    Panel,
    Points,
    Spans,
    log_ticks,
    plain,
    rounded,
)
from pyddpdiag.report.page import Part
from pyddpdiag.report.tables import Table, buckets_table, cell, links_table, path_in_words, share, table_of

MOST_COLUMNS = 60
MOST_ROWS = 64
MOST_BUCKETS = 500
FEW_BUCKETS = 12
MOST_BARS = 24


def parts(report: RunReport, details: RunDetails | None) -> list[Part]:
    """What there is to show of buckets."""
    if not report.buckets:
        return []
    found: list[Part] = []
    if details and details.lateness is not None:
        found.append(_lateness(details.lateness, report.buckets))
    found += [_bandwidth(report.buckets), _table(report.buckets)]
    if any(group.shared_memory or group.shared_buckets for group in report.groups):
        found.append(_groups(report.groups))
    return found


def _groups(groups: Sequence[GroupStats]) -> Table:
    return table_of(
        "The way of each process group's buckets",
        groups,
        {
            "group": "group",
            "ranks": lambda group: listed(group.ranks, 8),
            "buckets": "buckets",
            "waiting": lambda group: share(group.waiting_fraction),
            "summing": lambda group: share(group.summing_fraction),
            " way": path_in_words,
        },
        2,
        MOST_ROWS,
    )


def _lateness(late: Lateness, buckets: Sequence[BucketStats]) -> Chart:
    about = {bucket.bucket: bucket for bucket in buckets}
    # In the order in which backward brings them; those of the first layout are gone after two steps.
    order = [at for at, name in enumerate(late.buckets) if name in about and not about[name].first_steps_only]
    order = order or list(range(len(late.buckets)))
    order = sorted(
        order, key=lambda at: -about[late.buckets[at]].cost_ms if late.buckets[at] in about else 0.0
    )[:MOST_COLUMNS]
    rows = _latest_rows(late)
    names = [late.buckets[at] for at in order]
    values = [plain(late.median_ms[row, order], 3) for row in rows]
    texts = [["-" if value is None else number(value) for value in row] for row in values]
    hover = [
        [
            f"rank {late.ranks[row]}; bucket {name[:8]}; {_parameters(about.get(name))}; {text} ms after the first rank"
            for name, text in zip(names, cells, strict=True)
        ]
        for row, cells in zip(rows, texts, strict=True)
    ]
    table: dict[str, list[str]] = {"rank": [str(late.ranks[row]) for row in rows]}
    for column, name in enumerate(names):
        table[name[:8]] = [cells[column] for cells in texts]
    clock_note = ""
    if late.clock_error_ms is None:
        clock_note = " Nothing ties some of the clocks to the others: between hosts, this is a guess."
    elif late.clock_error_ms > 0:
        clock_note = f" Between hosts it is no better than the clocks: {number(late.clock_error_ms)} ms."
    left = (
        ""
        if len(rows) == len(late.ranks)
        else f" The {len(rows)} latest of {len(late.ranks)} ranks are shown."
    )
    return Chart(
        "lateness",
        "How late each rank brings each bucket",
        f"Milliseconds after the first rank, median of {late.steps} steps.{clock_note}{left}",
        [
            Panel(
                [Heat(values, "ms late", texts, hover)],
                Axis("", labels=[f"rank {late.ranks[row]}" for row in rows]),
                height=min(900, max(110, 30 * len(rows))),
            )
        ],
        Axis("bucket, the costliest first", labels=[name[:8] for name in names]),
        Table("How late each rank brings each bucket, median milliseconds", table, 0),
        legend=False,
    )


def _latest_rows(late: Lateness) -> list[int]:
    if len(late.ranks) <= MOST_ROWS:
        return list(range(len(late.ranks)))
    worst = np.nan_to_num(late.median_ms).max(axis=1)
    return sorted(np.argsort(-worst, kind="stable")[:MOST_ROWS].tolist())


def _bandwidth(buckets: Sequence[BucketStats]) -> Chart:
    known = [b for b in buckets if b.bytes > 0 and b.times.busbw_gbps.median and b.times.wire_ms.median]
    lasting = [b for b in known if not b.first_steps_only] or known
    fitted = _fitted(known)
    few = len(lasting) <= FEW_BUCKETS
    columns = {
        "bucket": [b.bucket for b in known],
        "bytes": [str(b.bytes) for b in known],
        "wire (ms)": [cell(b.times.wire_ms) for b in known],
        "algbw (GB/s)": [cell(b.times.algbw_gbps) for b in known],
        "busbw (GB/s)": [cell(b.times.busbw_gbps) for b in known],
    }
    line = f" {'The line is the fit to them' if not few else 'A fit to all'}: {fitted[1]}" if fitted else ""
    panel, x = _bars(known) if few else _cloud(lasting, fitted[0] if fitted else None)
    return Chart(
        "bandwidth",
        "Bandwidth by bucket" if few else "Bandwidth by size of bucket",
        f"Load on a link while a bucket is on the wire (busbw), median of its occurrences.{line}",
        [panel],
        x,
        Table("Bandwidth by size of bucket", columns, 1),
    )


def _about(b: BucketStats) -> str:
    return (
        f"bucket {b.bucket[:8]}, {size(b.bytes)}; {_parameters(b)}; {cell(b.times.busbw_gbps)} GB/s; "
        f"{cell(b.times.wire_ms)} ms on the wire"
    )


def _bars(known: Sequence[BucketStats]) -> tuple[Panel, Axis]:
    """A bar for each of a few buckets, the smallest first: points would leave most of a picture empty."""
    order = sorted(known, key=lambda b: b.bytes)[:MOST_BARS]
    series = []
    for name, role, first in (("bucket", "accent", False), ("bucket of the first layout", "rest", True)):
        bars = []
        for lane, b in enumerate(order):
            if b.first_steps_only == first:
                rate = float(b.times.busbw_gbps.median or 0.0)
                bars.append(Bar(0.0, rate, lane, _about(b), number(rate)))
        if bars:
            series.append(Spans(name, bars, role))
    labels = [f"{size(b.bytes)}, {b.bucket[:8]}" for b in order]
    return Panel(series, Axis("", labels=labels), height=24 * len(order) + 16), Axis("GB/s", from_zero=True)


def _cloud(lasting: Sequence[BucketStats], fit: Line | None) -> tuple[Panel, Axis]:
    """A point for each bucket that lasts, by its size."""
    rates = [b.times.busbw_gbps.median for b in lasting]
    points = Points(
        "bucket", [b.bytes for b in lasting], plain(rates), "accent", "circle", [_about(b) for b in lasting]
    )
    at = _ticks([b.bytes for b in lasting])
    return (
        Panel(
            [points, fit] if fit else [points],
            Axis("GB/s", logarithmic=True, ticks=_ticks(rates)),
            height=220,
        ),
        Axis("size of the bucket", logarithmic=True, ticks=at, tick_texts=[size(round(each)) for each in at]),
    )


def _fitted(known: Sequence[BucketStats]) -> tuple[Line, str] | None:
    lasting = lasting_buckets(known)
    fit = fit_wire(lasting)
    if fit is None or not lasting:
        return None
    low, high = min(b.bytes for b in lasting), max(b.bytes for b in lasting)
    if high <= low:
        return None
    n = lasting[0].group_size
    x = np.geomspace(low, high, 40)
    y = [amount * 2 * (n - 1) / n / (fit.wire_ms(amount) * 1e6) for amount in x.tolist()]
    rate = "" if fit.ms_per_byte <= 0 else f" and {number(1e-6 / fit.ms_per_byte)} GB/s"
    words = f"{number(fit.latency_ms)} ms for each all-reduce{rate}."
    return Line(
        "fit: latency + bytes / bandwidth", [rounded(v) for v in x.tolist()], plain(y), "bad", "dash"
    ), words


def _table(buckets: Sequence[BucketStats]) -> Table:
    found = buckets_table(buckets[:MOST_BUCKETS])
    return (
        replace(found, note="Faint: DDP's first layout, replaced after the first step.")
        if any(found.dim)
        else found
    )


def _parameters(bucket: BucketStats | None) -> str:
    return listed(bucket.parameters, 6) if bucket and bucket.parameters else "parameters not known"


def _ticks(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value]
    return log_ticks(min(known), max(known)) if known else []


MOST_RANKS = 64
LEAST = 0.1
"""Of the bytes of the busiest link: what carries less waits more than it sends."""


def link_parts(report: RunReport) -> list[Part]:
    """Matrices of what was sent and how long it took, and the table of links."""
    links = report.links
    if not links:
        return []
    ranks = sorted({rank for link in links for rank in (link.rank, link.peer)})[:MOST_RANKS]
    found: list[Part] = [
        _matrix(
            links,
            ranks,
            "links-sent",
            "What each rank sent to each other one",
            "Megabytes that the receiver confirmed. In a ring, payload goes from each rank to the one before it.",
            "MB",
            lambda link: None if link.bytes is None else link.bytes / 1e6,
        )
    ]
    most = max((link.bytes or 0 for link in links), default=0)
    if any(link.busy_ms_per_mb is not None for link in links):
        found.append(
            _matrix(
                [link for link in links if link.bytes and link.bytes >= LEAST * most],
                ranks,
                "links-busy",
                "How long each link takes for a megabyte",
                "Milliseconds with something to send or not yet confirmed, for each 10^6 bytes. Links that carried "
                f"less than {percent(LEAST)} of what the busiest one did are left out.",
                "ms per MB",
                lambda link: link.busy_ms_per_mb,
            )
        )
    return [*found, links_table(links, len(links))]


def _matrix(
    links: Sequence[LinkStats],
    ranks: Sequence[int],
    name: str,
    title: str,
    says: str,
    unit: str,
    value: Callable[[LinkStats], float | None],
) -> Chart:
    cells: dict[tuple[int, int], float] = {}
    about: dict[tuple[int, int], list[str]] = {}
    for link in links:
        amount = value(link)
        if amount is not None:
            key = (link.rank, link.peer)
            cells[key] = cells.get(key, 0.0) + amount
            about.setdefault(key, []).append(_say(link))
    values: list[list[Number]] = [
        [rounded(cells[a, b], 3) if (a, b) in cells else None for b in ranks] for a in ranks
    ]
    texts = [["" if cell is None else number(cell) for cell in row] for row in values]
    hover = [
        [
            "; ".join([f"rank {a} to rank {b}", f"{text} {unit}", *about.get((a, b), [])])
            for b, text in zip(ranks, row, strict=True)
        ]
        for a, row in zip(ranks, texts, strict=True)
    ]
    labels = [f"rank {rank}" for rank in ranks]
    table = {
        "from": labels,
        **{f"to {rank}": [row[at] or "-" for row in texts] for at, rank in enumerate(ranks)},
    }
    return Chart(
        name,
        title,
        says,
        [
            Panel(
                [Heat(values, unit, texts, hover)],
                Axis("from", labels=labels),
                height=min(700, max(120, 34 * len(ranks))),
            )
        ],
        Axis("to", labels=labels),
        Table(f"{title} ({unit})", table, 1),
        legend=False,
    )


def _say(link: LinkStats) -> str:
    loss = "" if link.loss_fraction is None else f", {link.loss_fraction:.2%} lost"
    trip = "" if link.min_rtt_ms is None else f", round trip {number(link.min_rtt_ms)} ms"
    return f"{link.interface or link.local} to {link.peer_interface or link.remote}{trip}{loss}"
