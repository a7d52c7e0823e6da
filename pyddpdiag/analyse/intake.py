"""What analysis keeps from each rank's records, so that only one rank's need be in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from pyddpdiag.analyse.calls.collectives import RankCollectives, rank_collectives
from pyddpdiag.analyse.filing import RankLines, file_lines
from pyddpdiag.analyse.fingerprints import WatchedBuckets, WeightMarks, rank_watched, rank_weights
from pyddpdiag.analyse.life import RankLife, rank_life
from pyddpdiag.analyse.links.connections import Connection, rank_connections
from pyddpdiag.analyse.operations import RankOperations, rank_operations, trained_until_ns
from pyddpdiag.analyse.spans import Passes, RankPhases, rank_phases
from pyddpdiag.analyse.steps import RankSteps, StepCounter, step_ends
from pyddpdiag.analyse.usage import Growth, RankUsage, growth, rank_usage
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.ledger import Places
from pyddpdiag.trace.lines import LinesReader
from pyddpdiag.trace.merge import Merged
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import CHUNK, arrange


class Empty:
    """The empty arrays that were seen, each once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[np.dtype[Any], tuple[int, ...]], np.ndarray[Any, Any]] = {}

    def shared(self, part: Any) -> Any:
        """The same, where every empty array in it is the one that others have as well.

        Args:
            part: an array, or a dataclass or dictionary with such parts; anything else is given back as it is.
        """
        if isinstance(part, np.ndarray):
            return part if part.size else self._seen.setdefault((part.dtype, part.shape), part)
        if isinstance(part, dict):
            return {key: self.shared(value) for key, value in part.items()}
        if is_dataclass(part) and not isinstance(part, type):
            return replace(
                part, **{each.name: self.shared(getattr(part, each.name)) for each in fields(part)}
            )
        return part


@dataclass(frozen=True, eq=False)
class RankDigest:
    """One rank's share of every table; `lines` is None without samples of its stack, `growth` if its memory does
    not grow."""

    steps: RankSteps
    operations: RankOperations
    collectives: RankCollectives
    watched: WatchedBuckets
    usage: RankUsage
    phases: RankPhases
    weights: WeightMarks
    life: RankLife
    connections: tuple[Connection, ...] = ()
    lines: RankLines | None = None
    growth: Growth | None = None


class Intake:
    """Takes in the ranks of a run, in its order; their records are not needed after that.

    `merged` holds the all-reduces of the ranks so far, `ranks` what else was kept from each.
    """

    def __init__(self, rows: int = CHUNK) -> None:
        """Begin with nothing. `rows` buckets are worked on at a time."""
        self.merged = Merged()
        self.ranks: list[RankDigest] = []
        self._rows = rows
        self._lines = LinesReader()
        self._empty = Empty()

    def take(self, trace: RankTrace) -> None:
        """Take in the next rank."""
        passes = Passes(trace.of_kind(Kind.BACKWARD))
        collectives = trace.of_kind(Kind.COLLECTIVE)
        phases = rank_phases(trace.of_kind(Kind.PHASE))
        steps = self._take_buckets(trace, passes).finish(collectives)
        lines = self._lines.read(trace)
        cut = trace.begins_late
        usage, ended = rank_usage(trace.of_kind(Kind.USAGE)), step_ends(steps).at_ns
        digest = RankDigest(
            steps,
            rank_operations(trace),
            rank_collectives(collectives, passes),
            rank_watched(trace),
            usage,
            phases,
            rank_weights(trace),
            rank_life(trace, steps, collectives, phases, usage),
            rank_connections(trace, trained_until_ns(trace)),
            file_lines(lines, steps, passes, collectives, phases, cut=cut) if lines and lines.at_ns else None,
            None if lines is None else growth(lines.memory, ended[ended > 0]),
        )
        self.ranks.append(self._empty.shared(digest))

    def _take_buckets(self, trace: RankTrace, passes: Passes) -> StepCounter:
        """Add the rank's buckets to the all-reduces, to its passes and to its steps."""
        who, clock = self.merged.rank(trace.header)
        arranged = arrange(trace.of_kind(Kind.BUCKET))
        self.merged.repeated += arranged.repeated
        steps = StepCounter(trace, arranged.step, passes)
        if trace.on_device:
            # Host and device end apart: what is hidden of a bucket is known only when all of its pass have been seen.
            for _, rows in arranged.chunks(self._rows):
                passes.match(rows)
        number = -1
        at: Places = slice(0)
        for begin, rows in arranged.chunks(self._rows):
            found = passes.match(rows)
            steps.add(rows, found)
            hidden = passes.hidden(rows, found)
            # The groups of this piece: the rest of the last one's, and those that begin in it.
            done = 0
            while done < len(rows):
                if number < 0 or begin + done == arranged.bounds[number + 1]:
                    number += 1
                    ledger = self.merged.ledger(arranged.groups[number])
                    at = ledger.enter(who, clock, arranged.sequence_of(number))
                first, end = arranged.bounds[number : number + 2]
                part = slice(done, min(end - begin, len(rows)))
                offset = begin - first
                places = _part(at, offset + part.start, offset + part.stop)
                ledger.add(who, clock, places, rows.part(part), hidden[part])
                done = part.stop
        return steps


def _part(places: Places, begin: int, end: int) -> Places:
    """Some of the places, counted from the first."""
    if isinstance(places, slice):
        return slice(places.start + begin, places.start + end)
    return places[begin:end]
