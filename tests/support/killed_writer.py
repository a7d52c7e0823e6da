"""Kills `trace_victim` at random moments and holds what it left against what it had counted."""

import random
import time
from pathlib import Path

import numpy as np

from pyddpdiag.trace.layout import CollectiveTime, Kind, Records, StepTime
from pyddpdiag.trace.reader import RankTrace, is_in_flight, read_trace, tickets_of
from support.trace_victim import NAMES, WRITERS, start

# The writers, the step loop, and the recorder's own thread that sums steps.
THREADS = WRITERS + 2
ROOMY = 16 << 20
WRAPPING = 128 << 10


def killed(folder: Path, capacity_bytes: int, seed: int, *, records: int = 0) -> tuple[RankTrace, list[int]]:
    """The trace of a writer killed at a random moment after so many records, and what it had finished."""
    process, path, counts = start(folder, capacity_bytes)
    try:
        while sum(counts.written()) < records and process.is_alive():
            time.sleep(0.001)
        time.sleep(random.Random(seed).uniform(0.0, 0.03))
    finally:
        # SIGKILL, or TerminateProcess.
        process.kill()
        process.join(30)
    assert process.exitcode not in (0, None)
    return read_trace(path), counts.written()


def of_name(trace: RankTrace, name: str) -> Records:
    """The collectives that one writer recorded."""
    records = trace.of_kind(Kind.COLLECTIVE)
    return records[records["name"] == name.encode()]


def check_whole(trace: RankTrace) -> None:
    """What holds in every case: whole records, and every ticket accounted for."""
    assert (trace.malformed, trace.unknown) == (0, 0)
    assert trace.torn <= THREADS
    header = trace.header
    assert not header.closed
    assert header.dropped == 0
    # The recorder's own, which are no events: a slow victim lives long enough for sums of its steps.
    here = len(trace) + sum(len(trace.of_kind(kind)) for kind in (Kind.CONNECTION, Kind.HISTORY))
    lost = header.tickets - here - trace.torn - header.overwritten - header.skipped
    # A thread died between taking a ticket and its slot, or between that and counting what it replaced.
    assert 0 <= lost <= THREADS, (lost, header, trace.torn, here)
    # Sums of steps stay in flight until the recorder is closed.
    written = [kind for kind in Kind if kind is not Kind.HISTORY]
    assert sum(int(is_in_flight(trace.of_kind(kind)).sum()) for kind in written) <= THREADS
    references = set()
    for name in NAMES:
        records = of_name(trace, name)
        done = records[~is_in_flight(records)]
        started, ended = done["times"][:, CollectiveTime.STARTED], done["times"][:, CollectiveTime.ENDED]
        assert (started > 0).all()
        assert (started <= ended).all()
        # One thread wrote them one after the other.
        assert (ended[:-1] <= started[1:]).all()
        assert len(set(records["thread"].tolist())) <= 1
        references |= set(records["reference"].tolist())
    assert len(references) <= WRITERS
    assert len(trace.of_kind(Kind.COLLECTIVE)) == sum(len(of_name(trace, name)) for name in NAMES)
    steps = trace.of_kind(Kind.STEP)
    done = steps[~is_in_flight(steps)]
    for first, second in ((StepTime.WAIT_BEGIN, StepTime.BEGIN), (StepTime.BEGIN, StepTime.END)):
        assert (done["times"][:, first] > 0).all()
        assert (done["times"][:, first] <= done["times"][:, second]).all()


def kill_a_roomy_one(folder: Path, seed: int) -> int:
    """Every published record is there: kill a writer before its ring is full. How many records were checked."""
    trace, written = killed(folder, ROOMY, seed)
    check_whole(trace)
    assert (trace.header.overwritten, trace.header.skipped) == (0, 0)
    for name, count in zip(NAMES, written, strict=False):
        records = of_name(trace, name)
        done = records[~is_in_flight(records)]
        # All that were counted, each once; at most one more, finished and not yet counted.
        assert done["sequence"].tolist() == list(range(len(done)))
        assert count <= len(done) <= count + 1
    steps = trace.of_kind(Kind.STEP)
    done = steps[~is_in_flight(steps)]
    assert done["step"].tolist() == list(range(len(done)))
    assert written[-1] <= len(done) <= written[-1] + 1
    return len(trace)


def kill_a_wrapping_one(folder: Path, seed: int) -> int:
    """The newest records are there: kill a writer whose ring has wrapped. How many records were checked."""
    capacity = WRAPPING // 128
    trace, written = killed(folder, WRAPPING, seed, records=3 * capacity)
    check_whole(trace)
    header = trace.header
    assert header.capacity == capacity
    assert header.overwritten >= capacity
    # What was finished is in the ring or was counted as overwritten.
    done = sum(int((~is_in_flight(trace.of_kind(kind))).sum()) for kind in Kind)
    assert sum(written) <= done + header.overwritten + THREADS
    assert done + header.overwritten <= sum(written) + THREADS
    # The ring holds the newest: of the last tickets none is missing but those skipped or cut off.
    window = header.tickets - capacity
    present = np.sort(np.concatenate([tickets_of(trace.of_kind(kind)) for kind in Kind]))
    newest = present[present >= window]
    assert len(np.unique(newest)) == len(newest)
    assert capacity - len(newest) <= header.skipped + THREADS
    for name, count in zip(NAMES, written, strict=False):
        records = of_name(trace, name)
        recent = records[(tickets_of(records) >= window) & ~is_in_flight(records)]["sequence"].astype(
            np.int64
        )
        if len(recent):
            assert (np.diff(recent) == 1).all()
            assert count - 1 <= recent[-1] <= count
    return len(trace)
