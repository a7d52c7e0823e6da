from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trace_writer import RankWriter, fnv

from pyddpdiag.trace.merge import Merged, merge
from pyddpdiag.trace.run import open_run

ROWS = ("who", "group", "sequence", "reference", "bytes", "step", "enqueued", "started", "ended")


def merged(folder: Path) -> Merged:
    return merge(open_run(folder))


def test_pairs_by_group_and_sequence(tmp_path: Path) -> None:
    other = fnv(b"other")
    for rank in range(3):
        writer = RankWriter(rank, 3)
        writer.bucket(0, 10 + rank, 20, 30)
        writer.bucket(0, 40 + rank, 50, 60, group=other)
        writer.bucket(1, 70 + rank, 80, 90)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert found.count.tolist() == [3, 3, 3]
    assert found.paired.all()
    assert found.group_size.tolist() == [3, 3, 3]
    for first in found.first.tolist():
        begin = found.rows.enqueued[first]
        assert found.rows.enqueued[first : first + 3].tolist() == [begin, begin + 1, begin + 2]


def test_incomplete_pairs_are_kept_apart(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for sequence in range(4 - rank):
            writer.bucket(sequence, 10, 20, 30)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert found.paired.tolist() == [True, True, True, False]


def test_group_of_some_ranks_expects_only_them(tmp_path: Path) -> None:
    pair = fnv(b"pair")
    for rank in range(4):
        writer = RankWriter(rank, 4)
        writer.sidecar["groups"].append({"id": f"{pair:016x}", "name": "pair", "ranks": [1, 3]})
        if rank in (1, 3):
            writer.bucket(0, 10, 20, 30, group=pair)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert found.paired.tolist() == [True]
    assert (found.group_size.tolist(), found.members[pair]) == ([2], (1, 3))


def test_group_size_counts_ranks_without_a_trace(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 4)
        writer.bucket(0, 10, 20, 30)
        writer.write(tmp_path)
    found = merged(tmp_path)
    assert (found.expected.tolist(), found.group_size.tolist(), found.paired.tolist()) == ([2], [4], [True])


def test_unknown_group_seen_on_all_ranks_is_the_world(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10, 20, 30, group=0)
        writer.write(tmp_path, sidecar=False)
    assert merged(tmp_path).group_size.tolist() == [2]


def test_repeated_record_counts_once(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 10, 20, 30)
    writer.bucket(0, 11, 21, 31)
    writer.write(tmp_path)
    found = merged(tmp_path)
    assert (len(found), found.repeated, found.rows.enqueued.tolist()) == (1, 1, [10])


def test_start_seen_before_the_enqueue_time_was_taken(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 25, 20, 30)
    writer.write(tmp_path)
    assert merged(tmp_path).rows.enqueued.tolist() == [20]


def test_no_buckets_at_all(tmp_path: Path) -> None:
    RankWriter().write(tmp_path)
    found = merged(tmp_path)
    assert len(found) == 0 and found.paired.all()


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
    one, two = results
    for name in ROWS:
        assert np.array_equal(getattr(one.rows, name), getattr(two.rows, name)), name
    assert one.first.tolist() == two.first.tolist() and one.expected.tolist() == two.expected.tolist()
