"""The samples of a stack: what is kept of them, how many, and how what was called is named."""

import _thread
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
from support.files_in_use import in_use

from pyddpdiag import _native
from pyddpdiag.model.lines import DEPTH_LIMIT, Stack, from_json, to_json
from pyddpdiag.record import lines as line_sampler
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.record.stacks import called, looks_at_main_thread, named


def _wait_for(seen: threading.Event) -> None:
    seen.wait(60)


def _stacks(looks: _native.StackLooks) -> list[Stack]:
    """What was seen, by sample."""
    _, _, _, places, stacks = looks.kept()
    return [named(stacks[each], looks) for each in places]


def _look_until(there: Callable[[Stack], bool]) -> Callable[[threading.Event, list[Stack]], None]:
    """A thread's body: looks at the main thread until a stack is as wanted, and keeps that."""

    def body(seen: threading.Event, taken: list[Stack]) -> None:
        looks = looks_at_main_thread()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.001)
            looks.look(paused=False)
            if there(_stacks(looks)[-1]):
                taken.append(_stacks(looks)[-1])
                break
        seen.set()

    return body


def test_a_sample_has_the_functions_of_the_script_and_what_they_called() -> None:
    seen, taken = threading.Event(), list[Stack]()
    look = _look_until(lambda stack: bool(stack.lines) and stack.lines[-1].function == "_wait_for")
    thread = threading.Thread(target=look, args=(seen, taken))
    thread.start()
    _wait_for(seen)
    thread.join()
    innermost = taken[0].lines[-1]
    assert (Path(innermost.file).name, innermost.function) == (Path(__file__).name, "_wait_for")
    assert innermost.number == _wait_for.__code__.co_firstlineno + 1
    assert taken[0].call.startswith("threading.")
    assert not [line for line in taken[0].lines if "_pytest" in line.file or "threading" in line.file]


def _waits_in_comprehension(seen: threading.Event) -> list[bool]:
    return [
        each.wait(60)  # the line that runs
        for each in (seen,)
    ]


def test_what_runs_in_a_comprehension_is_a_line_of_its_function() -> None:
    """As Python has it from 3.12 on."""
    seen, taken = threading.Event(), list[Stack]()
    function = _waits_in_comprehension.__name__
    inside = _waits_in_comprehension.__code__.co_firstlineno + 2
    look = _look_until(lambda stack: bool(stack.lines) and stack.lines[-1].number == inside)
    thread = threading.Thread(target=look, args=(seen, taken))
    thread.start()
    _waits_in_comprehension(seen)
    thread.join()
    assert [line.function for line in taken[0].lines[-2:]] == [
        "test_what_runs_in_a_comprehension_is_a_line_of_its_function",
        function,
    ]


def _waits_in_generator(seen: threading.Event) -> bool:
    return any(each.wait(60) for each in (seen,))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code knows no function around it")
def test_what_runs_in_a_generator_expression_has_the_name_of_its_function() -> None:
    seen, taken = threading.Event(), list[Stack]()
    inside = _waits_in_generator.__code__.co_firstlineno + 1
    look = _look_until(lambda stack: [line.number for line in stack.lines[-2:]] == [inside, inside])
    thread = threading.Thread(target=look, args=(seen, taken))
    thread.start()
    _waits_in_generator(seen)
    thread.join()
    assert {line.function for line in taken[0].lines[-2:]} == {_waits_in_generator.__name__}


def _sleep_below(depth: int, over: threading.Event) -> None:
    if depth:
        _sleep_below(depth - 1, over)
    while not over.is_set():
        time.sleep(0.01)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions know no columns")
def test_of_a_deep_stack_the_innermost_lines_are_kept_with_the_function_of_c_that_was_called() -> None:
    seen, taken = threading.Event(), list[Stack]()
    thread = threading.Thread(
        target=_look_until(lambda stack: stack.call == "time.sleep"), args=(seen, taken)
    )
    thread.start()
    _sleep_below(300, seen)
    thread.join()
    assert [line.function for line in taken[0].lines] == ["_sleep_below"] * DEPTH_LIMIT
    assert taken[0].lines[-1].number == _sleep_below.__code__.co_firstlineno + 4
    # Where the others are is the line of the call, and only that.
    assert {line.number for line in taken[0].lines[:-1]} == {_sleep_below.__code__.co_firstlineno + 2}


def test_a_look_while_nothing_is_recorded_keeps_nothing() -> None:
    looks = looks_at_main_thread()
    looks.look(paused=True)
    assert not looks.kept()[2]
    looks.look(paused=False)
    assert len(looks.kept()[2]) == 1


def test_looks_come_at_random_moments_some_20_times_a_second() -> None:
    looks = looks_at_main_thread()
    waits = [looks.look(paused=True) for _ in range(1000)]
    assert min(waits) >= 0.025 and max(waits) <= 0.075
    assert 0.048 < sum(waits) / len(waits) < 0.052
    assert len(set(waits)) > 900
    assert waits[:10] != [looks_at_main_thread().look(paused=True) for _ in range(10)]


def test_a_thread_that_is_not_there_is_refused_and_so_is_a_function_that_nobody_saw() -> None:
    with pytest.raises(ValueError, match="no thread of Python has the number 1"):
        _native.StackLooks(1, str, samples=1, stacks=2, depth=1)
    with pytest.raises(IndexError):
        looks_at_main_thread().code(1)


def test_an_error_in_naming_files_is_the_callers_and_the_next_look_works() -> None:
    asked: list[str] = []

    def fails_once(file: str) -> str:
        asked.append(file)
        if len(asked) == 1:
            raise LookupError(file)
        return file

    looks = _native.StackLooks(threading.main_thread().ident or 0, fails_once, samples=4, stacks=4, depth=2)
    with pytest.raises(LookupError):
        looks.look(paused=False)
    looks.look(paused=False)
    assert len(looks.kept()[2]) == 1
    # Each file is asked for once, however often it is on a stack.
    looks.look(paused=False)
    assert len(asked) == 1 + len(set(asked))


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


def test_a_training_without_a_thread_to_spare_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
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


class Core:
    """A recorder that records."""

    paused = False


def test_a_reader_of_the_file_does_not_end_the_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads for longer than several writings try, and again while the last one is written."""
    monkeypatch.setattr(line_sampler, "WRITE_S", (0.01, 0.01))
    failed, core = in_use(monkeypatch, 40), Core()
    sampler = line_sampler.LineSampler(tmp_path / "rank_0.ddptrace", bytes(16), core)  # type: ignore[arg-type]
    path = tmp_path / "rank_0.lines"
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert len(failed) == 40
    seen = from_json(json.loads(path.read_text(encoding="utf-8")))
    failed = in_use(monkeypatch, 3)
    sampler.close()
    last = from_json(json.loads(path.read_text(encoding="utf-8")))
    assert len(failed) == 3 and seen is not None and last is not None
    assert len(last.at_ns) >= len(seen.at_ns) > 1


def test_the_documented_example_is_the_schema() -> None:
    example = json.loads(
        (Path(__file__).parents[3] / "docs/examples/rank_0.lines").read_text(encoding="utf-8")
    )
    lines = from_json(example)
    assert lines is not None
    assert to_json(lines) == example
