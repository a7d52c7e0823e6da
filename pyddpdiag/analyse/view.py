"""Everything that checks and tables ask of a run: each computed once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress
from math import inf

import numpy as np

from pyddpdiag.analyse.account import account
from pyddpdiag.analyse.advice import Advice, advice_for
from pyddpdiag.analyse.batches import FullEvaluation, full_evaluations
from pyddpdiag.analyse.bounds import HEALTHY_SHARE, STILL_MS
from pyddpdiag.analyse.calls.collectives import RankCollectives, collective_stats, exchanged_bytes
from pyddpdiag.analyse.calls.different import (
    UnequalCalls,
    Unmatched,
    awaited_collectives,
    different_calls,
    unequal_calls,
    unmatched_collectives,
)
from pyddpdiag.analyse.calls.parties import (
    CallsInSteps,
    HeldUp,
    Party,
    held_up,
    parties,
    rooted_ms,
    typical_waits,
)
from pyddpdiag.analyse.charges import Charges, charges
from pyddpdiag.analyse.core_waits import Crowding, by_other_programs, crowding, spins
from pyddpdiag.analyse.cube import before_steps, cube
from pyddpdiag.analyse.distinct import joined
from pyddpdiag.analyse.endings import Ending, Interruption, Node, endings, interruption, nodes
from pyddpdiag.analyse.episodes import Lateness, lateness
from pyddpdiag.analyse.exposure import Exposure, exposure
from pyddpdiag.analyse.fingerprints import Compared, WatchedBuckets, compared_weights
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.history import Past, past
from pyddpdiag.analyse.hot_lines import HotLine, hot_lines
from pyddpdiag.analyse.intake import Intake, RankDigest
from pyddpdiag.analyse.late_ranks import LateRank, late_ranks
from pyddpdiag.analyse.lines import RunLines
from pyddpdiag.analyse.links.connections import Connection, links
from pyddpdiag.analyse.links.interface_use import OtherTraffic, other_traffic
from pyddpdiag.analyse.links.link_faults import LinkFaults
from pyddpdiag.analyse.links.stalls import Stalls, lost_in, stalls
from pyddpdiag.analyse.meetings import Alone, Meetings, alone, meetings
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.occurrences import Occurrences, measure
from pyddpdiag.analyse.operations import (
    FirstFailure,
    Listed,
    RankOperations,
    first_failure,
    open_operations,
    operation_errors,
)
from pyddpdiag.analyse.pairing import SkippedSteps, gaps, mismatches, skipped_steps
from pyddpdiag.analyse.rows import bucket_stats, rank_stats
from pyddpdiag.analyse.spans import phase_matrices, phase_stats
from pyddpdiag.analyse.standstill import Awaited, Progress, Standstill, awaited_buckets, progress, standstill
from pyddpdiag.analyse.step_matrix import StepMatrix, are_long, matrix
from pyddpdiag.analyse.steps import StepEnds, step_ends, step_table
from pyddpdiag.analyse.usage import Growth, UsageMatrix, lasting, usage_matrix, usual_load
from pyddpdiag.analyse.windows import Slower, Span, slower
from pyddpdiag.model.account import RankAccount
from pyddpdiag.model.cube import Cube
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.now import Now
from pyddpdiag.model.rows import (
    BucketStats,
    CollectiveStats,
    Gap,
    Mismatch,
    OpenOperation,
    OperationError,
    PhaseStats,
    RankStats,
)
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.clock import ClockOffset, align
from pyddpdiag.trace.header import Header
from pyddpdiag.trace.merge import Membership, Merged, memberships
from pyddpdiag.trace.now import observe
from pyddpdiag.trace.run import Run


# More than 400 lines: it is the one way to what was kept of a run, with one property per table.
class RunView:
    """One run as tables derived from its records.

    What is kept from the records is private: to use more of it, add a table here. Only the intake sees the
    records themselves, one rank after the other.

    Attributes:
        run: the ranks that have a trace.
        gpus: samples of the ranks' GPUs, by the recorders, or taken beside them.
    """

    def __init__(
        self,
        run: Run,
        intake: Intake | None = None,
        *,
        gpus: Sequence[GpuUse] = (),
        now: Now | None = None,
        least_still_ms: float = STILL_MS,
    ) -> None:
        """Look at a run. `now` replaces what is observed of the ranks' processes; it never stands still for less
        than `least_still_ms`.

        `intake` has already taken in the ranks; None: the run still has its records.
        """
        self.run = run
        self._given_intake = intake
        recorded = (trace.sidecar.gpu for trace in run.ranks)
        self.gpus = tuple(gpus) or tuple(use for use in recorded if use is not None)
        self._given_now = now
        self._least_still_ms = least_still_ms

    @cached_property
    def names(self) -> Names:
        """Names of buckets, parameters and groups."""
        return Names(self.run)

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """What the first page of each trace says."""
        return tuple(trace.header for trace in self.run.ranks)

    @cached_property
    def sidecars(self) -> dict[int, Sidecar]:
        """The sidecar of each trace, by rank."""
        return {trace.rank: trace.sidecar for trace in self.run.ranks}

    @cached_property
    def advice(self) -> Advice:
        """How to follow an advice in this run."""
        return advice_for(self.sidecars.values())

    @cached_property
    def now(self) -> Now:
        """How the ranks' processes were when the traces were read."""
        return self._given_now if self._given_now is not None else observe(self.run)

    @cached_property
    def clocks(self) -> tuple[ClockOffset, ...]:
        """The offset of each rank's clock to the lowest rank's."""
        return align(self.run, self.merged)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The machines whose `pyddpdiag run` left a note."""
        return nodes(self.run, self.sidecars, self.clocks)

    @cached_property
    def occurrences(self) -> Occurrences:
        """Every bucket's all-reduces over the ranks, split into their parts."""
        return measure(self.merged, self.memberships, self.clocks)

    @cached_property
    def pairs(self) -> int:
        """The number of buckets' all-reduces that ended on every rank."""
        return int(np.count_nonzero(self.occurrences.complete))

    @cached_property
    def steps(self) -> StepTable:
        """Where each step's time went on each rank."""
        own = [(rank.life.between.step, rank.life.between.own) for rank in self._digests]
        return step_table(self.run, [rank.steps for rank in self._digests], own)

    @cached_property
    def step_ends(self) -> dict[int, StepEnds]:
        """When each rank's steps ended, by rank."""
        return {rank: step_ends(digest.steps) for rank, digest in self._by_rank.items()}

    @cached_property
    def judged(self) -> StepMatrix:
        """The steps that can be judged, with all ranks side by side."""
        return matrix(self.steps)

    @cached_property
    def exposure(self) -> Exposure:
        """The exposed communication of the judged steps."""
        return exposure(self.judged)

    @cached_property
    def usage(self) -> UsageMatrix:
        """What the judged steps cost the processor, with all ranks side by side."""
        mine = [self._by_rank[rank] for rank in self.judged.ranks]
        devices = [(each.steps.step.astype(np.int64), each.steps.device_ms) for each in mine]
        return usage_matrix([each.usage for each in mine], devices, self.judged.step)

    @cached_property
    def foreign_waits(self) -> Float64:
        """What each rank waits for a core because of other programs, at most; [steps, ranks] in ms."""
        return by_other_programs(self.judged, self.usage, self.sidecars)

    @cached_property
    def lateness(self) -> Lateness:
        """How much longer each rank needs than the others, in the judged steps."""
        return lateness(self.judged)

    @cached_property
    def late_ranks(self) -> tuple[LateRank, ...]:
        """The ranks that are late, in a typical step or in a part of the run; the costliest first."""
        usage, foreign = self.usage, self.foreign_waits
        return late_ranks(
            self.judged, self.lateness, usage, foreign, self.sidecars, self.lines, self.hot_lines
        )

    @cached_property
    def past(self) -> Past:
        """The steps whose records were overwritten, summed up."""
        ranks = self.judged.ranks
        return past(ranks, [self._by_rank[rank].life.history for rank in ranks])

    @cached_property
    def late_in_past(self) -> tuple[LateRank, ...]:
        """The ranks that were late in those steps. Sums do not say how busy the machine was: as sure as if it was."""
        steps, usage = self.past.steps, self.past.usage
        found = late_ranks(steps, lateness(steps), usage, usage.run_delay, self.sidecars, RunLines({}))
        return tuple(replace(late, others_wait_ms=inf) for late in found)

    @cached_property
    def slower(self) -> Slower | None:
        """The parts of the run in which all ranks are slower than in the rest of it."""
        return slower(self.judged, self.usage, self.sidecars)

    @cached_property
    def spins(self) -> bool:
        """Whether processor time may be that of threads that spin, because there are too few cores for them."""
        return spins(self.judged, self.usage, self.sidecars)

    @cached_property
    def full_evaluations(self) -> tuple[FullEvaluation, ...]:
        """The evaluations that every rank makes in full, the longest first."""
        return full_evaluations(self.sidecars) if len(self.sidecars) == self.run.world_size else ()

    @cached_property
    def crowding(self) -> tuple[Crowding, ...]:
        """The hosts whose ranks have more threads than cores and wait for them."""
        return crowding(self.sidecars, self.judged, self.usage)

    @cached_property
    def buckets(self) -> tuple[BucketStats, ...]:
        """Buckets over all their occurrences, the one that cost most first."""
        return bucket_stats(self.run, self.occurrences, self.names, self.steps.left_out)

    @cached_property
    def ranks(self) -> tuple[RankStats, ...]:
        """What each rank's trace holds and where its time went."""
        return rank_stats(self)

    @cached_property
    def collectives(self) -> tuple[CollectiveStats, ...]:
        """Other Gloo operations by name and rank."""
        return collective_stats(self.run, self._collectives, self.names, typical_waits(self.parties))

    @cached_property
    def exchanged_bytes(self) -> float:
        """The most that a rank put into collectives other than buckets."""
        return exchanged_bytes(self._collectives)

    @cached_property
    def _collectives(self) -> list[RankCollectives]:
        return [rank.collectives for rank in self._digests]

    @cached_property
    def parties(self) -> tuple[Party, ...]:
        """The ranks that call the same collectives other than buckets."""
        return tuple(parties(self.run, self._collectives, self.memberships, self.progress, self.clocks))

    @cached_property
    def held_up(self) -> HeldUp:
        """What collectives other than buckets cost each judged step."""
        judged = (trace.rank in self.judged.place_of for trace in self.run.ranks)
        rooted = rooted_ms(self.parties, self.judged)
        return held_up(self.judged, [*compress(self._collectives, judged)], rooted)

    @cached_property
    def calls_in_steps(self) -> CallsInSteps:
        """The other collectives that come back in the judged steps."""
        return CallsInSteps(self.parties, self.judged)

    @cached_property
    def phases(self) -> tuple[PhaseStats, ...]:
        """Named parts of the program, by name and rank."""
        return phase_stats(self.run, [rank.phases for rank in self._digests])

    @cached_property
    def account(self) -> tuple[RankAccount, ...]:
        """Where each rank's whole life went."""
        return account(tuple(self._by_rank), [rank.life for rank in self._digests], self.cube)

    @cached_property
    def cube(self) -> Cube:
        """What each step's time went to on each rank."""
        return cube(tuple(self._by_rank), [rank.life for rank in self._digests])

    @property
    def charges(self) -> Charges:
        """Who and what the judged steps' time went to; not kept, as only the verdict takes from it."""
        most_are_late = any(late.than is not None for late in self.late_ranks)
        judged = self.steps.step[self.steps.judged]
        before = before_steps(self.cube, [rank.life for rank in self._digests])
        return charges(self.cube, before, self.judged, np.unique(judged), earliest=most_are_late)

    @cached_property
    def meetings(self) -> Meetings:
        """What each judged rank did from one meeting with the others to the next."""
        mine = [self._by_rank[rank] for rank in self.judged.ranks]
        return meetings(
            self.judged.ranks, [each.life.between for each in mine], [each.usage for each in mine]
        )

    @cached_property
    def alone(self) -> Alone | None:
        """The rank that works alone outside of the steps while the others wait."""
        return alone(self.meetings, self.judged.wall_ms) if self.judged.can_judge else None

    @cached_property
    def phase_times(self) -> dict[str, Float64]:
        """By phase, its time before each judged step's all-reduces: [steps, ranks] float64 in ms."""
        mine = [self._by_rank[rank].life.between for rank in self.judged.ranks]
        return phase_matrices([(each.step, each.phases) for each in mine], self.judged.step)

    @cached_property
    def step_spans(self) -> Float64:
        """Each judged step with the phases before it, whichever is known of its parts: [steps, ranks] in ms."""
        phases = sum(self.phase_times.values(), np.zeros(self.judged.own.shape))
        return np.asarray(np.fmax(self.judged.wall, self.judged.own + phases))

    @cached_property
    def lines(self) -> RunLines:
        """At which lines of the script the ranks were."""
        digests = self._by_rank.items()
        return RunLines({rank: each.lines for rank, each in digests if each.lines is not None})

    @cached_property
    def memory_growth(self) -> dict[int, Growth]:
        """How the memory of ranks grows, of those whose does until none is left."""
        grow = {rank: each.growth for rank, each in self._by_rank.items() if each.growth is not None}
        return lasting(grow)

    @cached_property
    def hot_lines(self) -> tuple[HotLine, ...]:
        """Lines that take a part of each usual step and belong to no part of a training step, the most first."""
        # A host goes on while its device computes, and waits for it at any line.
        if not self.judged.can_judge or (self.usage.device > 0).any():
            return ()
        spans = np.fmax.reduce(self.step_spans, axis=1)
        usual = self.judged.step[~are_long(spans)]
        stepped = (one for sidecar in self.sidecars.values() for one in sidecar.training.stepped)
        lines = {rank: each for rank, each in self.lines.by_rank.items() if rank in self.judged.place_of}
        return tuple(hot_lines(lines, usual, {place for one in stepped for place in one.where}))

    @cached_property
    def progress(self) -> tuple[Progress, ...]:
        """How far each rank has come, in the run's order."""
        return progress(self.run, self.merged)

    @cached_property
    def awaited(self) -> tuple[Awaited, ...]:
        """Operations in which ranks wait, and the ranks that never began them."""
        found = [*awaited_buckets(self), *awaited_collectives(self.parties, self._collectives)]
        # Nobody knows what a rank without a trace began.
        return tuple(replace(one, unsure=(*one.unsure, *self.run.missing)) for one in found)

    @cached_property
    def unmatched(self) -> tuple[Unmatched, ...]:
        """Collectives that ended on some ranks though others never began them."""
        return tuple(unmatched_collectives(self.parties))

    @cached_property
    def standstill(self) -> Standstill | None:
        """The standstill of the run, if there is one and it can be seen."""
        return standstill(self, self._least_still_ms)

    @cached_property
    def skipped(self) -> SkippedSteps:
        """Steps in which a rank has fewer buckets than the others."""
        return skipped_steps(self)

    @cached_property
    def in_flight(self) -> Listed[OpenOperation]:
        """Operations that had begun and not ended."""
        return open_operations(self)

    @cached_property
    def errors(self) -> Listed[OperationError]:
        """Operations that failed, the earliest first."""
        return operation_errors(self)

    @cached_property
    def first_failure(self) -> FirstFailure | None:
        """The operation that failed first, and what its ranks did; None: none failed."""
        return first_failure(self)

    def line_between(self, rank: int, from_ms: float, to_ms: float) -> str:
        """The line at which a rank mostly was between two moments of the common clock; empty: not known."""
        place = next(place for place, trace in enumerate(self.run.ranks) if trace.rank == rank)
        zero_ns = self.headers[0].monotonic_ns - self.clocks[place].offset_ns
        found = self.lines.where(rank, zero_ns + int(from_ms * 1e6), zero_ns + int(to_ms * 1e6))
        return str(found.line) if found is not None else ""

    @cached_property
    def endings(self) -> dict[int, Ending]:
        """How each rank's process ended, by rank."""
        return endings(self)

    @cached_property
    def interruption(self) -> Interruption | None:
        """By what the run was ended from outside, before anything else went wrong."""
        return interruption(self)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """Where a rank has no record of an all-reduce that others have."""
        return gaps(self)

    @cached_property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """All-reduces in which the ranks did different things."""
        return mismatches(self)

    @cached_property
    def different_calls(self) -> tuple[Mismatch, ...]:
        """Other collectives into which the ranks put different things."""
        return tuple(
            found
            for party in self.parties
            for found in different_calls(party, self.names.group(party.group) if party.group else "")
        )

    @cached_property
    def unequal_calls(self) -> tuple[UnequalCalls, ...]:
        """Other collectives that some ranks called more often than others."""
        finished = {
            rank.rank for rank in self.ranks if rank.ended == "orderly" or (rank.closed and not rank.ended_by)
        }
        last_step = {rank.rank: rank.last_step for rank in self.ranks}
        buckets = {one.rank: one.buckets for one in self.progress}
        return tuple(unequal_calls(self.parties, buckets, finished, last_step))

    @cached_property
    def watched(self) -> WatchedBuckets:
        """The gradients of watched passes."""
        return joined([rank.watched for rank in self._digests])

    @cached_property
    def weights(self) -> Compared:
        """Every comparison of a parameter between ranks."""
        return compared_weights([rank.weights for rank in self._digests])

    @cached_property
    def connections(self) -> tuple[Connection, ...]:
        """The TCP connections of all ranks' processes, by rank."""
        return tuple(each for rank in self._digests for each in rank.connections)

    @cached_property
    def links(self) -> tuple[LinkStats, ...]:
        """What each rank sent to each other one, as far as their connections were read."""
        return links(self.connections, self.sidecars)

    @property
    def on_loopback(self) -> bool:
        """Whether all that ranks send to each other goes over one machine's loopback interface."""
        return bool(self.links) and all(link.loopback for link in self.links)

    @cached_property
    def link_faults(self) -> LinkFaults:
        """Which links lose, delay or hold up what they carry."""
        return LinkFaults(self.links, self.buckets, self.sidecars, self.other_traffic)

    def link_faults_in(self, span: Span) -> LinkFaults:
        """The same by what was read from the end of the first of these steps to that of the last one."""
        edges = self.judged.step[[span.begin, span.end - 1]]

        def there(one: Connection) -> Connection:
            ends = self.step_ends[one.rank]
            since, until = ends.at_ns[np.searchsorted(ends.step, edges)].tolist()
            return one.between(since, until)

        return LinkFaults(links(map(there, self.connections), self.sidecars), self.buckets, self.sidecars)

    @cached_property
    def other_traffic(self) -> tuple[OtherTraffic, ...]:
        """What other programs send and receive over the interfaces that the ranks use, most of it first."""
        # What a rank without a trace sends, and is sent, is told from that only by its own connections.
        return () if self.run.missing_count else other_traffic(self.links, self.sidecars)

    @cached_property
    def stalls(self) -> Stalls | None:
        """The links that carry nothing for moments."""
        return stalls(self.link_faults.carrying, self.connections)

    @cached_property
    def stalled_s(self) -> float:
        """What the steps lost to these moments; 0: too little to be told."""
        found, steps = self.stalls, self.judged
        ends = self.step_ends.get(found.links[0].rank) if found else None
        if found is None or ends is None or not steps.can_judge:
            return 0.0
        # While it is down, the ranks also compute and wait for other reasons.
        lost_s = min(lost_in(found, steps, ends), max(0.0, self.exposure.mean_ms) * steps.steps / 1e3)
        return lost_s if lost_s >= HEALTHY_SHARE * found.seconds else 0.0

    def buckets_of(self, step: int) -> tuple[BucketStats, ...]:
        """`buckets` of one step."""
        return bucket_stats(self.run, self.occurrences, self.names, (), self.occurrences.step == step)

    def ranks_of(self, step: int) -> tuple[RankStats, ...]:
        """`ranks` in one step."""
        return rank_stats(self, step)

    def collectives_of(self, step: int) -> tuple[CollectiveStats, ...]:
        """`collectives` of one step."""
        return collective_stats(self.run, self._collectives, self.names, {}, step)

    @cached_property
    def loads(self) -> list[float | None]:
        """The usual load of each rank's machine."""
        return [usual_load(rank.usage) for rank in self._digests]

    @cached_property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """The ranks of each process group that reduced buckets, by its id."""
        return {
            key: tuple(self.run.ranks[who].rank for who in member.members)
            for key, member in self.memberships.items()
        }

    @cached_property
    def intake(self) -> Intake:
        """What was kept of every rank's records."""
        if self._given_intake is not None:
            return self._given_intake
        intake = Intake()
        for trace in self.run.ranks:
            intake.take(trace)
        return intake

    @property
    def _digests(self) -> Sequence[RankDigest]:
        return self.intake.ranks

    @cached_property
    def _by_rank(self) -> dict[int, RankDigest]:
        return {trace.rank: each for trace, each in zip(self.run.ranks, self._digests, strict=True)}

    @cached_property
    def operations(self) -> list[RankOperations]:
        """What each rank could not end."""
        return [rank.operations for rank in self._digests]

    @property
    def merged(self) -> Merged:
        """The all-reduces of all ranks, paired, on each rank's own clock."""
        return self.intake.merged

    @cached_property
    def memberships(self) -> dict[int, Membership]:
        """Who belongs to each process group."""
        return memberships(self.run, self.merged)
