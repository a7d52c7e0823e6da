"""A model of the ranks that average in shared memory, small enough to try every order of their steps.

A step is what one rank does to one word that the others see, or to their buckets. Memory is sequentially consistent, as
those words are in csrc/core/shared/board.cpp. Any wait for other ranks may end by its time at any moment.

A bucket is free when its owner may do with it what it likes: it has the average, or an error. Whoever reads a free
bucket sums nonsense, and whoever writes to one destroys something. All buckets are read in one step: what is free stays
free, so reads one after the other find nothing that one at the time of the last would not find. A look at one rank's
standing after the other finds no less than a look at all of them at the time of the first, for the same reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Protocol:
    """What the ranks do; the defaults are what they should do."""

    looks_before: bool = True  # whether a rank has failed, before it touches the buckets of others
    says_first: bool = True  # that it is at them, before it looks; False: after that
    looks_after: bool = True  # whether a rank has failed, before it calls a unit done
    waits: bool = True  # a rank that fails, for those who are at the buckets
    moves: bool = (
        True  # a rank for which that took too long goes on with other memory; False: with its bucket
    )
    hands_out: bool = False  # as with several hosts, each then writes its part into the buckets of the others


# As it was: a rank that fails says so and lets go, and nobody looks.
OLD = Protocol(looks_before=False, looks_after=False, waits=False)


WRONG_SUM = "a rank got a sum of something else than what all ranks brought"
SPOILT = "a rank wrote into a bucket that its owner had back"


@dataclass(frozen=True)
class Found:
    """What a search has found: the faults, and whether all ranks can come to the end."""

    states: int
    faults: frozenset[str]
    ends: bool


class Rank(NamedTuple):
    """At which step of which operation it is."""

    at: str = "brings"
    number: int = 0
    announced: int = 0  # so many operations
    tainted: bool = False  # the unit that it sums
    handed_out: int = 0  # of so many operations
    not_there: int = 0  # so many others, which it has looked at one after the other, were not at the buckets


class Operation(NamedTuple):
    """Its units."""

    claimed: int = 0
    done: int = 0
    wrong: bool = False


State = tuple[tuple[Rank, ...], tuple[Operation, ...]]
LOOKS = {"looks", "looks to hand out"}
AT_BUCKETS = {"claims", "reads", "writes", "looks again", "calls done", "hands out"}
FAILED = {"fails", "free", "moved"}


class Exchange:
    """The steps of some ranks in some operations of some units each."""

    def __init__(self, protocol: Protocol, ranks: int, operations: int = 2, units: int = 1) -> None:
        self._protocol = protocol
        self._units = units
        self._operations = operations
        self.begin: State = ((Rank(),) * ranks, (Operation(),) * operations)

    def search(self) -> Found:
        """Tries every order of all steps."""
        known = {self.begin}
        todo = [self.begin]
        faults: set[str] = set()
        ends = False
        while todo:
            state = todo.pop()
            faults.update(self._faults(*state))
            ends = ends or all(rank.number == self._operations for rank in state[0])
            for new in self._steps(state):
                if new not in known:
                    known.add(new)
                    todo.append(new)
        return Found(len(known), frozenset(faults), ends)

    @staticmethod
    def _faults(ranks: tuple[Rank, ...], operations: tuple[Operation, ...]) -> Iterator[str]:
        for i, rank in enumerate(ranks):
            if any(operation.wrong for operation in operations[: rank.number]):
                yield WRONG_SUM
            others = [other for k, other in enumerate(ranks) if k != i]
            if rank.at in {"writes", "hands out"} and any(_is_free(other, rank.number) for other in others):
                yield SPOILT

    def _steps(self, state: State) -> Iterator[State]:
        ranks, operations = state
        for i, rank in enumerate(ranks):
            for new in self._own_steps(i, ranks, operations):
                yield (*ranks[:i], new, *ranks[i + 1 :]), operations
            for new, operation in self._shared_steps(rank, operations):
                changed = (*operations[: rank.number], operation, *operations[rank.number + 1 :])
                yield (*ranks[:i], new, *ranks[i + 1 :]), changed

    def _own_steps(
        self, i: int, ranks: tuple[Rank, ...], operations: tuple[Operation, ...]
    ) -> Iterator[Rank]:
        """What a rank does that changes nothing but what is said of itself."""
        rank = ranks[i]
        if rank.at in FAILED:
            if rank.at == "fails":
                yield self._lets_go(rank, [*ranks[:i], *ranks[i + 1 :]])
            return
        if rank.announced < self._operations:
            yield rank._replace(announced=rank.announced + 1)  # by another thread, in any order with the rest
        if rank.number == self._operations:
            return
        done = operations[rank.number].done == self._units
        failed = any(other.at in FAILED for other in ranks)
        if rank.at in {"brings", "awaits sum", "awaits parts"}:
            yield _failed(rank)  # the time is over, or it sees that another one has failed
        if rank.at == "brings" and done:
            yield rank._replace(at="awaits sum")
        elif rank.at == "brings" and all(other.announced > rank.number for other in ranks):
            yield rank._replace(at="looks" if self._protocol.looks_before else "claims")
        elif rank.at == "looks":
            yield _failed(rank) if failed and not done else self._may_touch(rank, "claims")
        elif rank.at == "reads":
            tainted = any(_is_free(other, rank.number) for other in ranks)
            yield rank._replace(at="writes", tainted=tainted)
        elif rank.at == "writes":
            yield rank._replace(at="looks again" if self._protocol.looks_after else "calls done")
        elif rank.at == "looks again":
            yield _failed(rank) if failed else rank._replace(at="calls done")
        elif rank.at == "awaits sum" and done:
            if not self._protocol.hands_out:
                yield _through(rank)
            else:
                yield rank._replace(at="looks to hand out" if self._protocol.looks_before else "hands out")
        elif rank.at == "looks to hand out":
            yield _failed(rank) if failed else self._may_touch(rank, "hands out")
        elif rank.at.startswith("says it "):
            yield rank._replace(at=rank.at.removeprefix("says it "))
        elif rank.at == "hands out":
            yield rank._replace(at="awaits parts", handed_out=rank.handed_out + 1)
        elif rank.at == "awaits parts" and all(other.handed_out > rank.number for other in ranks):
            yield _through(rank)

    def _shared_steps(
        self, rank: Rank, operations: tuple[Operation, ...]
    ) -> Iterator[tuple[Rank, Operation]]:
        """What a rank does to the operation's units."""
        if rank.at not in {"claims", "calls done"}:
            return
        claimed, done, wrong = operations[rank.number]
        if rank.at == "calls done":
            yield (
                rank._replace(at="claims", tainted=False),
                Operation(claimed, done + 1, wrong or rank.tainted),
            )
        elif claimed < self._units:
            yield rank._replace(at="reads"), Operation(claimed + 1, done, wrong)
        else:
            yield rank._replace(at="awaits sum"), operations[rank.number]

    def _may_touch(self, rank: Rank, at: str) -> Rank:
        return rank._replace(at=at if self._protocol.says_first else f"says it {at}")

    def _lets_go(self, rank: Rank, others: list[Rank]) -> Rank:
        if not self._protocol.waits or rank.not_there == len(others):
            return rank._replace(at="free")
        at = others[rank.not_there].at
        if at in AT_BUCKETS or (at in LOOKS and self._protocol.says_first):
            return rank._replace(at="moved" if self._protocol.moves else "free")  # it has waited for too long
        return rank._replace(not_there=rank.not_there + 1)


def _failed(rank: Rank) -> Rank:
    return rank._replace(at="fails", tainted=False)


def _through(rank: Rank) -> Rank:
    return rank._replace(at="brings", number=rank.number + 1)


def _is_free(rank: Rank, number: int) -> bool:
    return rank.at == "free" or rank.number > number
