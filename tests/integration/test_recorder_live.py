"""Two processes read a trace while the native recorder writes it from several threads."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from support.forks import context
from support.ranks import receive
from support.trace_victim import NAMES, start

from pyddpdiag.trace.layout import CollectiveTime, Kind, StepTime
from pyddpdiag.trace.reader import is_in_flight, read_trace, tickets_of

CAPACITY_BYTES = 64 << 10
READ_S = 3.0


def _watch(path: str, pipe: Any) -> None:
    """Reads again and again; answers with what it saw, or with what was wrong."""
    try:
        answer: Any = _read_for(Path(path), READ_S)
    except BaseException as error:
        answer = repr(error)
    pipe.send(answer)
    pipe.close()


def _read_for(path: Path, seconds: float) -> dict[str, int]:
    seen = {"snapshots": 0, "records": 0, "first": 0, "last": 0, "overwritten": 0}
    slots = CAPACITY_BYTES // 128
    tickets_before = np.zeros(slots, np.uint64)
    numbers_before = np.zeros(slots, np.uint64)
    threads: dict[bytes, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        trace = read_trace(path)
        assert (trace.malformed, trace.unknown) == (0, 0)
        assert trace.header.tickets >= seen["last"], "the count of tickets went back"
        assert trace.header.overwritten >= seen["overwritten"], "the count of overwritten records went back"
        collectives, steps = trace.of_kind(Kind.COLLECTIVE), trace.of_kind(Kind.STEP)
        for name in NAMES:
            mine = collectives[collectives["name"] == name.encode()]
            assert (np.diff(mine["sequence"].astype(np.int64)) > 0).all(), "a mixed record: sequence"
            for thread in set(mine["thread"].tolist()):
                assert threads.setdefault(name.encode(), thread) == thread, "a mixed record: thread"
            done = mine[~is_in_flight(mine)]["times"]
            assert (done[:, CollectiveTime.STARTED] > 0).all()
            assert (done[:, CollectiveTime.STARTED] <= done[:, CollectiveTime.ENDED]).all()
            assert (done[:-1, CollectiveTime.ENDED] <= done[1:, CollectiveTime.STARTED]).all(), "mixed times"
        assert set(collectives["name"].tolist()) <= {name.encode() for name in NAMES}
        assert (np.diff(steps["step"].astype(np.int64)) > 0).all(), "a mixed record: step"
        ended = steps[~is_in_flight(steps)]["times"]
        for first, second in ((StepTime.WAIT_BEGIN, StepTime.BEGIN), (StepTime.BEGIN, StepTime.END)):
            assert (ended[:, first] > 0).all()
            assert (ended[:, first] <= ended[:, second]).all()
        # By slot: a ticket never goes back, and the same ticket is the same record.
        for records, field in ((collectives, "sequence"), (steps, "step")):
            tickets = tickets_of(records) + np.uint64(1)
            places = (tickets - np.uint64(1)) % np.uint64(slots)
            assert (tickets >= tickets_before[places]).all(), "a slot went back to an older ticket"
            same = tickets == tickets_before[places]
            assert (numbers_before[places][same] == records[field][same]).all(), "a record changed"
            tickets_before[places], numbers_before[places] = tickets, records[field]
        seen["snapshots"] += 1
        seen["records"] += len(trace)
        seen["first"] = seen["first"] or trace.header.tickets
        seen["last"], seen["overwritten"] = trace.header.tickets, trace.header.overwritten
    return seen


def test_two_readers_of_a_live_trace(tmp_path: Path) -> None:
    writer, path, _ = start(tmp_path, CAPACITY_BYTES)
    readers, pipes = [], []
    try:
        for _ in range(2):
            ours, theirs = context().Pipe(duplex=False)
            reader = context().Process(target=_watch, args=(str(path), theirs), daemon=True)
            reader.start()
            theirs.close()
            readers.append(reader)
            pipes.append(ours)
        for pipe in pipes:
            seen = receive(pipe, 100)
            assert isinstance(seen, dict), seen
            assert seen["snapshots"] >= 10
            assert seen["records"] > 0
            # It was written meanwhile, round and round.
            assert seen["last"] - seen["first"] > CAPACITY_BYTES // 128
        assert writer.is_alive()
    finally:
        for process in (*readers, writer):
            process.kill()
            process.join(30)
