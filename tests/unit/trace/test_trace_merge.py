import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trace_writer import GROUP, RankWriter, fnv

from pyddpdiag.analyse.intake import Intake
from pyddpdiag.trace.ledger import _COMMON, _PER_CLOCK, Ledger
from pyddpdiag.trace.merge import Membership, Merged, memberships
from pyddpdiag.trace.run import open_run


@dataclass
class Found:
    """The all-reduces of a run, and who belongs to their groups."""

    merged: Merged
    groups: dict[int, Membership]

    def ledger(self, group: int = GROUP) -> Ledger:
        return dict(self.merged.groups())[group]

    def paired(self, group: int = GROUP) -> list[bool]:
        there: list[bool] = (self.ledger(group).common["count"] >= self.groups[group].expected).tolist()
        return there


def merged(folder: Path) -> Found:
    run = open_run(folder)
    intake = Intake()
    for trace in run.ranks:
        intake.take(trace)
    return Found(intake.merged, memberships(run, intake.merged))


def contents(found: Found) -> dict[int, list[object]]:
    """All that the ledgers hold."""
    return {
        key: [ledger.sequence.tolist(), sorted(ledger.shares)]
        + [ledger.common[name].tolist() for name in _COMMON]
        + [times[name].tolist() for times in ledger.clocks.values() for name in _PER_CLOCK]
        for key, ledger in found.merged.groups()
    }


def test_pairs_by_group_and_sequence(tmp_path: Path) -> None:
    other = fnv(b"other")
    for rank in range(3):
        writer = RankWriter(rank, 3)
        writer.bucket(0, 10 + rank, 20, 30)
        writer.bucket(0, 40 + rank, 50, 60, group=other)
        writer.bucket(1, 70 + rank, 80, 90)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert len(found.merged) == 3
    for group, begins in ((GROUP, [10, 70]), (other, [40])):
        ledger = found.ledger(group)
        assert ledger.common["count"].tolist() == [3] * len(begins) and all(found.paired(group))
        assert found.groups[group].size == 3
        assert ledger.clocks[0]["earliest_enqueued"].tolist() == begins
        assert ledger.clocks[0]["latest_enqueued"].tolist() == [begin + 2 for begin in begins]
        assert ledger.clocks[0]["last_arriver"].tolist() == [2] * len(begins)


def test_incomplete_pairs_are_kept_apart(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for sequence in range(4 - rank):
            writer.bucket(sequence, 10, 20, 30)
        writer.write(tmp_path)
    assert merged(tmp_path).paired() == [True, True, True, False]


def test_a_rank_may_have_what_those_before_it_have_not(tmp_path: Path) -> None:
    seen = ([4, 5, 9], [0, 4, 5, 6, 7, 9, 10], [1, 5, 8, 12])
    for rank, sequences in enumerate(seen):
        writer = RankWriter(rank, 3)
        for sequence in sequences:
            writer.bucket(sequence, 100 * sequence + rank + 1, 0, 100 * sequence + 90)
        writer.write(tmp_path)
    ledger = merged(tmp_path).ledger()
    there = sorted(set().union(*seen))
    assert ledger.sequence.tolist() == there
    assert ledger.common["count"].tolist() == [sum(one in have for have in seen) for one in there]
    first = [min(rank for rank in range(3) if one in seen[rank]) for one in there]
    last = [max(rank for rank in range(3) if one in seen[rank]) for one in there]
    times = ledger.clocks[0]
    assert times["earliest_enqueued"].tolist() == [
        100 * one + who + 1 for one, who in zip(there, first, strict=True)
    ]
    assert times["last_arriver"].tolist() == last
    for rank, sequences in enumerate(seen):
        share = ledger.shares[rank]
        assert share.count == len(sequences)
        assert [one for one in range(14) if share.has(one)] == sequences


def test_group_of_some_ranks_expects_only_them(tmp_path: Path) -> None:
    pair = fnv(b"pair")
    for rank in range(4):
        writer = RankWriter(rank, 4)
        writer.sidecar["groups"].append({"id": f"{pair:016x}", "name": "pair", "ranks": [1, 3]})
        if rank in (1, 3):
            writer.bucket(0, 10, 20, 30, group=pair)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert found.paired(pair) == [True]
    assert found.groups[pair] == Membership((1, 3), 2)


def test_group_size_counts_ranks_without_a_trace(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 4)
        writer.bucket(0, 10, 20, 30)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert (found.groups[GROUP], found.paired()) == (Membership((0, 1), 4), [True])


def test_unknown_group_seen_on_all_ranks_is_the_world(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10, 20, 30, group=0)
        writer.write(tmp_path, sidecar=False)
    assert merged(tmp_path).groups[0].size == 2


def test_repeated_record_counts_once(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 10, 20, 30)
    writer.bucket(0, 11, 21, 31)
    writer.write(tmp_path)
    found = merged(tmp_path)
    assert (len(found.merged), found.merged.repeated) == (1, 1)
    assert found.ledger().clocks[0]["latest_enqueued"].tolist() == [10]


def test_start_seen_before_the_enqueue_time_was_taken(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 25, 20, 30)
    writer.write(tmp_path)
    assert merged(tmp_path).ledger().clocks[0]["latest_enqueued"].tolist() == [20]


def test_no_buckets_at_all(tmp_path: Path) -> None:
    RankWriter().write(tmp_path)
    found = merged(tmp_path)
    assert len(found.merged) == 0 and found.groups == {}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12))
def test_order_of_records_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ranks: int, sequences: int
) -> None:
    chosen = random.Random(seed)
    facts = [
        (rank, sequence, chosen.choice([fnv(b"a"), fnv(b"b")]), chosen.randrange(1, 10**9))
        for rank in range(ranks)
        for sequence in range(sequences)
    ]
    results = []
    for shuffled in (False, True):
        if shuffled:
            chosen.shuffle(facts)
        folder = tmp_path_factory.mktemp("run")
        writers = [RankWriter(rank, ranks) for rank in range(ranks)]
        for rank, sequence, group, begin in facts:
            writers[rank].bucket(sequence, begin, begin + 5, begin + 9, group=group)
        for writer in chosen.sample(writers, ranks):
            writer.write(folder)
        results.append(merged(folder))
    assert contents(results[0]) == contents(results[1])
