"""Tables, and those of a report that the screen and the page both show; the screen drops some of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.text import Text

from pyddpdiag.model.cube import NAMES
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import BucketStats, GroupStats, RankStats
from pyddpdiag.model.stats import Stat
from pyddpdiag.model.words import listed, number, percent, ranks, size
from pyddpdiag.output import clean

Cell = str | Text


@dataclass(frozen=True)
class Table:
    """Columns by name; the first `texts` hold text, the others numbers.

    A column whose name begins with a blank shows no name and holds text. `dim` says which rows to show
    faintly; empty: none. `note` is printed below the table.
    """

    title: str
    columns: Mapping[str, Sequence[Cell]]
    texts: int
    dim: Sequence[bool] = ()
    note: str = ""

    def is_text(self, place: int, name: str) -> bool:
        """Whether the column at `place` holds text, which is aligned to the left."""
        return place < self.texts or name.startswith(" ")

    def rows(self) -> list[tuple[tuple[Cell, ...], bool]]:
        """The cells of each row, and whether to show it faintly."""
        cells = list(zip(*self.columns.values(), strict=True))
        return list(zip(cells, self.dim or [False] * len(cells), strict=True))

    def only(self, *names: str) -> Table:
        """These of its columns."""
        texts = sum(name in names for name in list(self.columns)[: self.texts])
        return replace(self, columns={name: self.columns[name] for name in names}, texts=texts)


def path_in_words(group: GroupStats) -> str:
    """The way of one group's buckets, and why."""
    if group.shared_buckets:
        some = "" if group.shared_buckets == group.buckets else f"{group.shared_buckets} of {group.buckets} "
        return f"{some}in shared memory" + _split(group)
    if group.shared_memory == "used":
        return "over Gloo, though the ranks share memory"
    return f"over Gloo: {clean(group.shared_memory)}" if group.shared_memory else "over Gloo"


def paths_in_words(groups: tuple[GroupStats, ...]) -> str:
    """One line about the groups for which somebody asked for shared memory; empty if nobody did."""
    asked = [group for group in groups if group.shared_memory or group.shared_buckets]
    return "; ".join(
        ("Buckets" if len(groups) == 1 else f"Buckets of {ranks(list(group.ranks))}")
        + f" {path_in_words(group)}"
        for group in asked
    )


def _split(group: GroupStats) -> str:
    if group.waiting_fraction is None or group.summing_fraction is None:
        return ""
    return f" ({percent(group.waiting_fraction)} of their time waiting, {percent(group.summing_fraction)} summing)"


Column = str | Callable[[Any], object]
"""A row's attribute, or a function of the row."""

_MOST: Final = 200
_CHARGED: Final = 0.05
"""Of the judged steps."""


def cell(value: object) -> str:
    """A value for people, about three digits of a number; of several the median. `-`: it is not known."""
    if isinstance(value, Stat):
        value = value.median
    if value is None or value == "":
        return "-"
    return number(value) if isinstance(value, float) else str(value)


def share(fraction: float | None) -> str:
    """A fraction as percent; `-`: it is not known."""
    return "-" if fraction is None else percent(fraction)


def table_of(
    title: str, rows: Sequence[Any], columns: Mapping[str, Column], texts: int, most: int = _MOST
) -> Table:
    """A row for each of these objects, at most so many. `texts`: so many columns hold text. `most`: of rows."""
    found = {
        name: [cell(getattr(row, of) if isinstance(of, str) else of(row)) for row in rows[:most]]
        for name, of in columns.items()
    }
    more = len(rows) - most
    return Table(title, found, texts, note=f"{more} more; see --json." if more > 0 else "")


def ranks_table(ranks: Sequence[RankStats]) -> Table:
    """All ranks, a row for each."""
    return table_of(
        "Ranks: median milliseconds per step",
        ranks,
        {
            "rank": "rank",
            "host": lambda rank: rank.host or "?",
            "steps": "steps",
            "step": "wall_ms",
            "compute": "compute_ms",
            "data": "data_wait_ms",
            "exposed": "exposed_ms",
            "other calls": "other_ms",
            "own part": "own_ms",
            "comes last": lambda rank: percent(rank.last_arrivals / rank.arrivals) if rank.arrivals else None,
            "clock +/-": lambda rank: "?" if rank.clock.uncertainty_ms is None else rank.clock.uncertainty_ms,
            "records": "records",
            "overwritten": "overwritten",
            "in flight": "in_flight",
            "errors": "errors",
            " trace": lambda rank: "closed" if rank.closed else "open",
            " process": lambda rank: rank.ended_by or rank.ended or rank.process,
        },
        2,
        len(ranks),
    )


def charges_table(report: RunReport) -> Table:
    """Whom and what each second of the judged steps is charged to, as far as that is worth a look."""
    among = any(each.among for each in report.verdict.charges)
    found = table_of(
        "Each second of the judged steps, charged once",
        [each for each in report.verdict.charges if each.share >= _CHARGED],
        {
            **({"among": lambda each: ranks(each.among)} if among else {}),
            "charged to": lambda each: "all ranks" if each.rank is None else f"rank {each.rank}",
            "for": lambda each: NAMES[each.part],
            "s": "seconds",
            "share": lambda each: percent(each.share),
            "of it explained": lambda each: percent(each.explained_s / each.seconds),
            " by": lambda each: ", ".join(each.explained_by),
        },
        2 + among,
    )
    return replace(found, note=f"Charges below {percent(_CHARGED)}: see --json.")


def buckets_table(buckets: Sequence[BucketStats]) -> Table:
    """What each bucket takes."""
    # As many digits as distinguish them.
    ids = {bucket.bucket for bucket in buckets}
    digits = next(n for n in (8, 12, 16) if n == 16 or len({one[:n] for one in ids}) == len(ids))
    found = table_of(
        "Buckets, by what they cost (median ms; GB/s)",
        buckets,
        {
            "bucket": lambda bucket: bucket.bucket[:digits],
            "group": lambda bucket: bucket.group[:8],
            "parameters": lambda bucket: listed(bucket.parameters, 12),
            "size": lambda bucket: size(bucket.bytes),
            "type": "dtype",
            "n": "count",
            "waiting": lambda bucket: bucket.times.arrival_ms,
            "queue": lambda bucket: bucket.times.queue_ms,
            "on the wire": lambda bucket: bucket.times.wire_ms,
            "total": lambda bucket: bucket.times.total_ms,
            "p95": lambda bucket: bucket.times.total_ms.p95,
            "busbw": lambda bucket: bucket.times.busbw_gbps,
            "hidden": lambda bucket: share(bucket.times.hidden_fraction.median),
            "comes last": _last,
        },
        3,
        len(buckets),
    )
    return replace(found, dim=[bucket.first_steps_only for bucket in buckets])


def _last(bucket: BucketStats) -> str:
    rank, often = max(bucket.last_arrivals.items(), key=lambda item: item[1], default=(0, 0))
    return f"rank {rank}: {percent(often / sum(bucket.last_arrivals.values()))}" if often else ""


def collectives_table(report: RunReport, most: int = _MOST) -> Table:
    """Other collectives than buckets'."""
    return table_of(
        "Other collectives, by name and rank (ms)",
        report.other_collectives,
        {
            "name": "name",
            "group": "group",
            "rank": "rank",
            "count": "count",
            "median": "median_ms",
            "p95": "p95_ms",
            "waits for the last rank": "wait_ms",
            "total": "total_ms",
            "in flight": "in_flight",
            " called at": "where",
        },
        2,
        most,
    )


def links_table(links: Sequence[LinkStats], most: int) -> Table:
    """What the connections between ranks carried."""
    return table_of(
        "Links between ranks (ms; least round trip)",
        links,
        {
            "from": "rank",
            "to": "peer",
            "over": lambda link: "loopback" if link.loopback else link.interface or link.local,
            "address": "local",
            "peer's address": "remote",
            "sent": lambda link: None if link.bytes is None else size(link.bytes),
            "ms per MB": "busy_ms_per_mb",
            "round trip": "min_rtt_ms",
            "segments": "segments",
            "sent again": "retransmitted",
            "lost": lambda link: None if link.loss_fraction is None else f"{link.loss_fraction:.2%}",
            "read for (s)": "seconds",
        },
        5,
        most,
    )


def rest_tables(report: RunReport) -> list[Table]:
    """Phases, what was in flight, what failed, and where ranks did different things."""

    def state(row: Any) -> str:
        return "abandoned" if row.abandoned else "started" if row.started else "not started"

    what: dict[str, Column] = {"what": "what", "kind": "kind", "rank": "rank", "step": "step"}
    return [
        table_of(
            "Phases that the program names: milliseconds",
            report.phases,
            {"name": "name", "rank": "rank", "count": "count", "median": "median_ms", "total": "total_ms"},
            1,
        ),
        table_of(
            f"In flight: {report.in_flight_total} operations that began and did not end",
            report.in_flight_operations,
            {
                **what,
                "sequence": "sequence",
                "open for (ms)": lambda row: row.open_ms or None,
                " state": state,
            },
            2,
        ),
        table_of(
            f"Failed: {report.errors_total} operations, the earliest first",
            report.errors,
            {**what, "sequence": "sequence", "at (ms)": "at_ms", " error": "text"},
            2,
        ),
        table_of(
            "All-reduces in which the ranks did different things",
            report.mismatches,
            {
                "group": "group",
                "operation": lambda row: row.operation or "a bucket's all-reduce",
                "field": "field",
                "step": "step",
                "count": "count",
                " values": lambda row: ", ".join(f"rank {rank}: {each}" for rank, each in row.values.items()),
            },
            3,
        ),
    ]
