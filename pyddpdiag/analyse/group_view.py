"""A part of a run whose ranks never meet the others': hybrid and pipeline jobs have several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from pyddpdiag.analyse.lines import RunLines
from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.rows import BucketStats, RankStats
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.clock import ClockOffset


class GroupView(RunView):
    """What a check about time may ask of a run, of some of its ranks only.

    Attributes:
        members: the ranks.
    """

    def __init__(self, whole: RunView, members: Sequence[int]) -> None:
        """Look at some ranks of a run."""
        super().__init__(whole.run, whole.intake, gpus=whole.gpus, now=whole.now)
        self._whole = whole
        self.members = tuple(members)

    @cached_property
    def clocks(self) -> tuple[ClockOffset, ...]:
        """The offset of each rank's clock to the lowest rank's."""
        return self._whole.clocks

    @cached_property
    def sidecars(self) -> dict[int, Sidecar]:
        """The sidecar of each trace, by rank."""
        return {rank: sidecar for rank, sidecar in self._whole.sidecars.items() if rank in self.members}

    @cached_property
    def occurrences(self) -> Occurrences:
        """Every bucket's all-reduces over these ranks."""
        occurrences = self._whole.occurrences
        mine = np.isin(occurrences.group, np.array(self._groups, np.uint64))
        return Occurrences(
            **{name: getattr(occurrences, name)[mine] for name in Occurrences.__dataclass_fields__}
        )

    @cached_property
    def steps(self) -> StepTable:
        """Where each step's time went on each of these ranks."""
        steps = self._whole.steps
        return steps.take(np.isin(steps.rank, np.array(self.members, np.int64)))

    @cached_property
    def buckets(self) -> tuple[BucketStats, ...]:
        """Buckets of these ranks, the one that cost most first."""
        mine = {self.names.group(key) for key in self._groups}
        return tuple(bucket for bucket in self._whole.buckets if bucket.group in mine)

    @cached_property
    def ranks(self) -> tuple[RankStats, ...]:
        """These ranks, their steps and what their traces hold."""
        return tuple(rank for rank in self._whole.ranks if rank.rank in self.members)

    @cached_property
    def links(self) -> tuple[LinkStats, ...]:
        """What these ranks' connections carried from one to another."""
        return tuple(
            link for link in self._whole.links if link.rank in self.members and link.peer in self.members
        )

    @cached_property
    def lines(self) -> RunLines:
        """At which lines of the script these ranks were."""
        return self._whole.lines.of(self.members)

    @cached_property
    def _groups(self) -> tuple[int, ...]:
        """The process groups of these ranks."""
        return tuple(key for key, ranks in self._whole.groups.items() if set(ranks) <= set(self.members))


def meeting(groups: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The sets of ranks that meet, directly or through others; each in ascending order, by its lowest rank."""
    found: list[set[int]] = []
    for group in groups:
        together = set(group)
        apart = []
        for other in found:
            if other & together:
                together |= other
            else:
                apart.append(other)
        found = [*apart, together] if together else apart
    return tuple(sorted(tuple(sorted(ranks)) for ranks in found))


def parts(view: RunView) -> tuple[RunView, ...]:
    """The run itself; or, where not all ranks meet in the all-reduces of buckets, those that do."""
    found = meeting(view.groups.values())
    return (view,) if len(found) < 2 else tuple(GroupView(view, ranks) for ranks in found)


def members(view: RunView) -> tuple[int, ...]:
    """The ranks that a part of a run is about; none: it is the whole run."""
    return view.members if isinstance(view, GroupView) else ()
