"""What the connections between ranks carried: rank by rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import number, percent
from pyddpdiag.report.charts.chart import Axis, Chart, Heat, Number, Panel, rounded
from pyddpdiag.report.page import Part
from pyddpdiag.report.table import Table
from pyddpdiag.report.tables import links_table

MOST_RANKS = 64
LEAST = 0.1
"""Of the bytes of the busiest link: what carries less waits more than it sends."""


def parts(report: RunReport) -> list[Part]:
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
