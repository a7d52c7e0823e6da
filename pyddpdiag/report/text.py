"""The report for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TextIO

import numpy as np
from rich.text import Text

from pyddpdiag.analyse.step_matrix import judged_walls
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import brief, kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import BucketStats, RankStats
from pyddpdiag.model.words import count, number, ranges, sentence, size
from pyddpdiag.output import clean
from pyddpdiag.report.life import (
    account_rows,
    grouped_account,
    life_bars,
    phases_line,
    short_table,
    stacked_bar,
)
from pyddpdiag.report.rank_rows import screen_ranks, shown_ranks
from pyddpdiag.report.screen import Screen, screen_for
from pyddpdiag.report.step_tree import print_step
from pyddpdiag.report.tables import (
    buckets_table,
    charges_table,
    collectives_table,
    links_table,
    paths_in_words,
)
from pyddpdiag.report.trial import print_trial

STATUS_STYLE = {"healthy": "bold green", "findings": "bold yellow", "cannot_tell": "bold magenta"}
SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan"}
PARTS = (("arrival", "yellow", "█", "."), ("queue", "magenta", "▓", "q"), ("wire", "cyan", "░", "w"))
HEADS = {"arrival": "waiting", "queue": "queue", "wire": "on the wire"}
WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
BAR = 14
LEAST_NAME = 12
GOOD_NAME = 20
MOST_NAME = 32
SHOWN_COLLECTIVES = 16
SHOWN_OPERATIONS = 8
SHOWN_LINKS = 16
LEAST_LINK = 0.01
SHOWN_FINDINGS = 4


def print_text(
    report: RunReport, file: TextIO, *, top: int = 10, tables: bool = False, every_rank: bool = False
) -> None:
    """Print the report: one screen, or with its tables.

    Args:
        file: the output; its width, colours and encoding are respected.
        top: how many buckets the table shows; 0 = all.
        tables: show these, and each finding in full.
        every_rank: in tables a row for each of them, however many.
    """
    screen = screen_for(file)
    _head(screen, report)
    _verdict(screen, report, whole=tables)
    if report.tried is not None:
        print_trial(screen, report.tried)
    print_step(screen, report)
    _machines(screen, report)
    if tables:
        _tables(screen, report, top, every_rank)
    else:
        _operations(screen, report)
        screen.console.print()
        more = count(len(report.warnings), "remark")
        screen.print_whole(f"Tables, all findings, {more}: pyddpdiag report {clean(report.folder)} --all", 2)


def _tables(screen: Screen, report: RunReport, top: int, every_rank: bool) -> None:
    ranks = shown_ranks(report, every_rank=every_rank)
    if ranks:
        screen_ranks(screen, report, ranks)
    # Of the whole run, whatever the other tables are narrowed to.
    if every_rank and report.verdict.charges and report.step is None:
        screen.table(charges_table(report))
    _steps(screen, report)
    _buckets(screen, report, top)
    _links(screen, report)
    _collectives(screen, report)
    _life(screen, report, {rank.rank for rank in ranks})
    _operations(screen, report)
    _warnings(screen, report)


def _head(screen: Screen, report: RunReport) -> None:
    dot = screen.sign(" · ", " | ")
    numbers = sorted({int(step) for step in report.steps.step[[0, -1]]}) if len(report.steps) else []
    parts = [clean(report.folder), f"{len(report.ranks)} of {count(report.world_size, 'rank')}"]
    if report.step is not None:
        parts.append(f"step {report.step} only")
    elif numbers:
        parts.append("step " + " to ".join(str(step) for step in numbers))
    parts += sorted({f"torch {rank.torch}" for rank in report.ranks if rank.torch})[:2]
    screen.print(Text(dot.join(parts), "dim"))


def _verdict(screen: Screen, report: RunReport, *, whole: bool) -> None:
    """The verdict; its first finding in full and the others in brief, or with `whole` all of them in full."""
    screen.console.print()
    verdict = report.verdict
    screen.print(Text(verdict.line, STATUS_STYLE[verdict.status]), 2)
    full = verdict.findings if whole else verdict.findings[:1]
    for place, finding in enumerate(full):
        print_finding(screen, finding, is_headline=place == 0 and verdict.line == sentence(finding.message))
    others = verdict.findings[len(full) :]
    # One line to copy is enough: the first finding's that has one.
    cure = next((each for each in (*full, *others) if "\n" in each.advice), None)
    shown = [each for place, each in enumerate(others) if place < SHOWN_FINDINGS or each is cure]
    for finding in shown:
        screen.print(Text(f"Also: {brief(finding)}{':' if finding is cure else '.'}", "dim"), 4)
        if finding is cure:
            screen.print_whole(cure.advice.partition(chr(10))[2], 6)
    if len(others) > len(shown):
        screen.print(Text(f"{len(others) - len(shown)} more; --all shows them.", "dim"), 4)
    _where_to_look(screen, report)


def _machines(screen: Screen, report: RunReport) -> None:
    line = machines_line(report)
    if line:
        screen.console.print()
        screen.print(Text(line, "dim"), 2)


def _where_to_look(screen: Screen, report: RunReport) -> None:
    """A run that is held up now: there is a command that sees more of it."""
    live = any(rank.process in ("running", "stopped") and not rank.closed for rank in report.ranks)
    if live and any(kind_of(one).end in ("ended", "stuck") for one in report.verdict.findings):
        screen.print_whole(f"Every rank's state and stack now: pyddpdiag hang {clean(report.folder)}", 4)


def print_finding(screen: Screen, finding: Finding, *, is_headline: bool) -> None:
    """Print a finding; without its message if that is the headline above it."""
    if not is_headline:
        screen.print(
            Text.assemble((f"{finding.severity}: ", SEVERITY_STYLE[finding.severity]), finding.message), 4
        )
    advice, _, line = finding.advice.partition("\n")
    if advice:
        screen.print(Text(advice), 4)
    if line:
        screen.print_whole(line, 4)
    mind = f" What would disprove it: {finding.change_mind}" if finding.change_mind else ""
    screen.print(Text(f"Confidence: {finding.confidence}.{mind}", "dim"), 4)


def _steps(screen: Screen, report: RunReport) -> None:
    """One line about the spread of the steps; look next at steps far above it."""
    number_of, walls = judged_walls(report.steps)
    if len(walls) < 2 or report.step is not None:
        return
    middle, late = float(np.median(walls)), float(np.percentile(walls, 95))
    line = f"Steps: median {number(middle)} ms, 95th percentile {number(late)} ms"
    slowest = [row for row in (-walls).argsort(kind="stable")[:3].tolist() if walls[row] > 1.5 * middle]
    if slowest:
        line += "; slowest: " + ", ".join(f"{number_of[row]} ({number(walls[row])} ms)" for row in slowest)
    screen.console.print()
    screen.print(Text(line), 2)


def _life(screen: Screen, report: RunReport, ranks: Collection[int]) -> None:
    """The whole life of these ranks and of the others, and the named parts of the program."""
    if report.account and report.step is None:
        rows = account_rows(report.account, ranks)
        screen.table(short_table(rows))
        screen.console.print()
        for line in life_bars(
            {name: grouped_account(each) for name, each in rows.items()}, screen.console.width - 2
        ):
            screen.print(line, 2)
    if report.phases:
        screen.console.print()
        screen.print(Text(phases_line(report)), 2)


def _buckets(screen: Screen, report: RunReport, top: int) -> None:
    if not report.buckets:
        return
    shown = report.buckets[:top] if top > 0 else report.buckets
    table = buckets_table(shown)
    # The same bucket of a module in another group is another bucket.
    without = {"type", "comes last", *(["group"] if len({bucket.group for bucket in shown}) < 2 else [])}
    columns = {name: cells for name, cells in table.columns.items() if name not in without}
    # The parameters' names come later, in the remaining width.
    columns["parameters"] = [""] * len(shown)
    longest = max(sum(_split(bucket)) for bucket in shown)
    columns[" bar"] = [_bar(screen, bucket, longest) for bucket in shown]
    heading = len("parameters")
    screen.fit(columns, ["p95"], GOOD_NAME - heading)
    screen.fit(columns, [" bar", "n", "size"], LEAST_NAME - heading)
    room = min(max(screen.room(columns) + heading, LEAST_NAME), MOST_NAME)
    columns["parameters"] = [screen.cut(_parameters(bucket), room) for bucket in shown]
    notes = []
    if len(shown) < len(report.buckets):
        notes.append(f"{len(report.buckets) - len(shown)} more; --top 0 shows all.")
    if any(bucket.first_steps_only for bucket in shown):
        notes.append("*: seen in the first steps only, before DDP rebuilt its buckets.")
    if saved := _saved(report.buckets):
        notes.append(saved)
    if paths := paths_in_words(report.groups):
        notes.append(f"{paths}.")
    if " bar" in columns:
        signs = ", ".join(f"{screen.sign(fancy, plain)} {HEADS[name]}" for name, _, fancy, plain in PARTS)
        notes.append(f"Bars: {signs}.")
    screen.table(replace(table, columns=columns, texts=3 if "group" in columns else 2, note=" ".join(notes)))


def _saved(buckets: Sequence[BucketStats]) -> str:
    """How much less traffic each step has because gradients travel in 16 bits; empty if none do."""
    lasting = [b for b in buckets if not b.first_steps_only] or buckets
    short = [
        b for b in lasting if b.dtype != b.gradient_dtype and b.gradient_dtype in WIDTHS and b.dtype in WIDTHS
    ]
    if not short:
        return ""
    travels = sum(b.bytes for b in short)
    gradients = sum(b.bytes * WIDTHS[b.gradient_dtype] // WIDTHS[b.dtype] for b in short)
    kinds = " and ".join(sorted({b.dtype for b in short}))
    between = " between hosts" if all(b.shared_memory for b in short) else ""
    return f"In {kinds}, {size(travels)} travel{between} in place of {size(gradients)} of gradients."


def _parameters(bucket: BucketStats) -> str:
    mark = "* " if bucket.first_steps_only else ""
    if not bucket.parameters:
        return mark + "?"
    more = len(bucket.parameters) - 1
    return f"{mark}{f'+{more} ' if more else ''}{bucket.parameters[0]}"


def _split(bucket: BucketStats) -> tuple[float, ...]:
    return tuple(getattr(bucket.times, f"{name}_ms").median or 0.0 for name, *_ in PARTS)


def _bar(screen: Screen, bucket: BucketStats, longest: float) -> Text:
    """Arrival, queue and wire, to the scale of the longest bucket shown."""
    split = zip(_split(bucket), PARTS, strict=True)
    return stacked_bar(
        ((value, screen.sign(fancy, plain), style) for value, (_, style, fancy, plain) in split), longest, BAR
    )


def _links(screen: Screen, report: RunReport) -> None:
    """Links that carry gradients; most pairs of ranks exchange next to nothing."""
    most = max((link.bytes or 0 for link in report.links), default=0)
    links = [link for link in report.links if most and (link.bytes or 0) >= LEAST_LINK * most]
    if links:
        table = links_table(links, SHOWN_LINKS)
        screen.table(table.only("from", "to", "over", "sent", "ms per MB", "round trip", "lost"))


def _collectives(screen: Screen, report: RunReport) -> None:
    if report.other_collectives:
        table = collectives_table(report, SHOWN_COLLECTIVES)
        empty = {
            name for name in ("group", "in flight", " called at") if {*table.columns[name]} <= {"-", "0"}
        }
        screen.table(table.only(*(name for name in table.columns if name not in {"total", *empty})))


def _operations(screen: Screen, report: RunReport) -> None:
    lines = [
        (f"rank {e.rank}, step {e.step}, {e.kind} {e.what}: {e.text or 'failed'}", "red")
        for e in report.errors[:SHOWN_OPERATIONS]
    ]
    if report.errors_total > SHOWN_OPERATIONS:
        lines.append((f"{report.errors_total - SHOWN_OPERATIONS} more errors; see --json.", "dim"))
    lines += [
        (
            f"rank {o.rank}, step {o.step}, {o.kind} {o.what}: "
            f"{'abandoned' if o.abandoned else 'in flight'}, "
            f"{'started' if o.started else 'not started'}{o.lasted}",
            "yellow",
        )
        for o in report.in_flight_operations[:SHOWN_OPERATIONS]
    ]
    if report.in_flight_total > SHOWN_OPERATIONS:
        lines.append((f"{report.in_flight_total - SHOWN_OPERATIONS} more in flight; see --json.", "dim"))
    if lines:
        screen.console.print(Text("\nFailed or unfinished", "bold"))
    for text, style in lines:
        screen.print(Text(text, style), 2)


def _warnings(screen: Screen, report: RunReport) -> None:
    if not report.warnings:
        return
    screen.console.print(Text("\nGood to know", "bold"))
    for warning in report.warnings[:24]:
        screen.print(Text(f"- {warning}", "dim"), 2)
    if len(report.warnings) > 24:
        screen.print(Text(f"{len(report.warnings) - 24} more; see --json.", "dim"), 2)


_HOSTS: Final = 2
"""So many machines are named; of more, those with a blamed rank first."""


def machines_line(report: RunReport) -> str:
    """Empty where nothing is known."""
    hosts: dict[str, list[RankStats]] = {}
    for rank in report.ranks:
        if rank.cores:
            hosts.setdefault(rank.host, []).append(rank)
    blamed = {finding.rank for finding in report.verdict.findings}
    first = sorted(hosts.values(), key=lambda ranks: not any(each.rank in blamed for each in ranks))
    said = "; ".join(_of_host(ranks) for ranks in first[:_HOSTS])
    more = len(first) - _HOSTS
    return said + (f"; {count(more, 'more machine')}" if more > 0 else "")


def _of_host(ranks: list[RankStats]) -> str:
    who = f"rank{'s' if len(ranks) > 1 else ''} {ranges([each.rank for each in ranks])}"
    host = clean(ranks[0].host or "?")
    parts = [f"Machine {host} with {who}: {_span([each.cores for each in ranks], 'core')}"]
    if all(each.threads for each in ranks):
        parts.append(_span([each.threads for each in ranks], "thread") + (" each" if len(ranks) > 1 else ""))
    loads = [each.load for each in ranks if each.load is not None]
    if loads:
        parts.append(f"load {number(max(loads))}")
    used = [each.memory_bytes / 1e9 for each in ranks if each.memory_bytes]
    if used:
        least, most = number(min(used)), number(max(used))
        each_of = least if least == most else f"{least} to {most}"
        parts.append(f"memory {each_of} of {number(ranks[0].machine_memory_bytes / 1e9)} GB")
    return ", ".join(parts)


def _span(values: list[int], noun: str) -> str:
    least, most = min(values), max(values)
    return count(most, noun) if least == most else f"{least} to {count(most, noun)}"
