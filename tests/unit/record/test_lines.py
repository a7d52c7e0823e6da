"""The samples of a stack: what is kept of them, how many, and how what was called is named."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import CodeType

import pytest

from pyddpdiag.model.lines import Stack, from_json, to_json
from pyddpdiag.record.lines import INTERVAL_NS, Samples
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.record.stacks import Sample, called, named, sample

MS = 1_000_000


def _frames(number: int) -> Sample:
    """A stack of its own: the same function at another line."""
    taken = sample()
    assert taken is not None
    return (0, 0, taken[2], number, -1)


def _wait_for(seen: threading.Event) -> None:
    seen.wait(60)


def test_a_sample_has_the_functions_of_the_script_and_what_they_called() -> None:
    seen, taken = threading.Event(), list[Stack]()

    def look() -> None:
        while True:
            found = sample()
            if found is not None and any(code == id(_wait_for.__code__) for code in found[2::3]):
                taken.append(named(found))
                seen.set()
                return
            time.sleep(0.001)

    thread = threading.Thread(target=look)
    thread.start()
    _wait_for(seen)
    thread.join()
    innermost = taken[0].lines[-1]
    assert (Path(innermost.file).name, innermost.function) == (Path(__file__).name, "_wait_for")
    assert innermost.number == _wait_for.__code__.co_firstlineno + 1
    assert taken[0].call.startswith("threading.")
    assert not [line for line in taken[0].lines if "_pytest" in line.file or "threading" in line.file]


def _calls(labels: object) -> None:
    time.sleep(0.0)
    labels.reader.read(len("x")).close()  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions know no columns")
def test_a_function_of_c_is_named_by_the_names_that_call_it() -> None:
    import dis

    def at_calls(code: CodeType) -> list[str]:
        calls = [each.offset for each in dis.get_instructions(code) if each.opname.startswith("CALL")]
        return [called(code, offset) for offset in calls]

    assert at_calls(_calls.__code__) == [
        "time.sleep",
        "len",
        "labels.reader.read",
        "labels.reader.read.close",
    ]
    assert called(_calls.__code__, 10**6) == ""


def test_a_long_run_keeps_few_samples_of_all_of_it() -> None:
    samples = Samples(limit=64)
    at, looks, hour = 0, 0, 3600 * 1000 * MS
    while (at := at + samples.interval_ns) < hour:
        samples.add(at, _frames(4 * at // hour))
        looks += 1
    lines = samples.lines("run")
    assert 32 <= len(lines.at_ns) == len(lines.stack) <= 64
    assert looks < 1000
    assert lines.interval_ns == samples.interval_ns == 2048 * INTERVAL_NS
    assert min(after - before for before, after in pairwise(lines.at_ns)) >= lines.interval_ns // 2
    seen = Counter(lines.stacks[each].lines[0].number for each in lines.stack)
    assert set(seen) == {0, 1, 2, 3} and max(seen.values()) - min(seen.values()) <= 3


def test_looks_that_cost_too_much_come_half_as_often() -> None:
    samples = Samples()
    for at in range(1000):
        samples.add(at * MS, _frames(1))
        samples.spent(90_000 if at < 100 else 190_000)
    # 0.18% of a core, then 0.38%, then 0.19%.
    assert samples.interval_ns == 2 * INTERVAL_NS
    for _ in range(10_000):
        samples.spent(900 * MS)
    assert samples.interval_ns == 8 * INTERVAL_NS


def test_a_training_without_a_thread_to_spare_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    SideThread("beside", _until_over).close()
    assert not Over().wait(0.0)


def _until_over(over: Over) -> None:
    assert over.wait(60.0)


def test_a_thread_ends_when_it_is_told_to_however_often() -> None:
    seen: list[bool] = []
    looked = threading.Event()

    def look(over: Over) -> None:
        seen.append(over.wait(-1.0))
        looked.set()
        seen.append(over.wait(60.0))
        seen.append(over.wait(60.0))

    beside = SideThread("beside", look)
    assert looked.wait(60.0)
    for _ in range(3):
        beside.close()
    assert seen == [False, True, True]


def test_stacks_are_bounded_and_make_room_for_later_ones() -> None:
    samples = Samples(limit=100, stacks=10)
    for at in range(100):
        samples.add(at * MS, _frames(at))
    lines = samples.lines("run")
    assert len(lines.stacks) == 10
    # There is no room for the name of the others, but for the samples.
    assert sum(not lines.stacks[each].lines for each in lines.stack) == 100 - 9
    for at in range(100, 1000):
        samples.add(at * MS, _frames(7777))
    lines = samples.lines("run")
    assert lines.stacks[lines.stack[-1]].lines[0].number == 7777


def test_a_look_that_was_held_up_is_counted_as_missed_and_all_comes_back_from_the_file() -> None:
    samples = Samples()
    for at, late_ms in enumerate((0, 5, 400, 30)):
        samples.add((50 + at) * MS, _frames(at % 2), late_ms * MS)
    lines = samples.lines("run")
    assert lines.missed_ns == 430 * MS
    back = from_json(json.loads(json.dumps(to_json(lines))))
    assert back is not None
    assert (back.at_ns, back.interval_ns, back.missed_ns) == (lines.at_ns, INTERVAL_NS, 430 * MS)
    assert [back.stacks[each] for each in back.stack] == [lines.stacks[each] for each in lines.stack]


def test_the_documented_example_is_the_schema() -> None:
    text = (Path(__file__).parents[3] / "docs" / "trace-format.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```\n(\{\n  \"format\": \"ddplines\".*?)```", text, re.DOTALL)
    lines = from_json(json.loads(example))
    assert lines is not None
    assert to_json(lines) == json.loads(example)
