"""Hostile traces and sidecars: sound ones, mutated by a seed. The same for the short tests and the long session."""

from __future__ import annotations

import copy
import io
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import report_to_json
from pyddpdiag.report.text import print_text
from support.trace_writer import IN_FLIGHT, RankWriter, record_dtype, write_training

HEADER = 4096
RECORD = 128
# Numbers that programs trip over: nothing, one, the ends of every width, and what looks like a time.
ODD = [0, 1, 2, 3, 7, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 10**9, 2**61, 2**61 + 1, 2**62, 2**63 - 1]
ODD += [2**63, 2**64 - 1, 1_700_000_000_000_000_000]
ODD_JSON: list[Any] = [
    *(None, True, -1, 0, 2**32, 2**64, 1e308, "", "\x1b]0;x\x07", "\u202e", "\ud800"),
    [],
    {},
    [[]],
]
ODD_JSON += [["a"] * 50, {"id": "0"}, "f" * 16, "x" * 5000, [2**70], [0] * 300]
FIELDS = [n for n in record_dtype().names or () if n != "times"]


@dataclass(frozen=True)
class Length:
    """How long an attack goes on: so many cases, but no longer than so many seconds."""

    cases: int
    seconds: float


def length() -> Length:
    """The length of the session `attack`: PYDDPDIAG_ATTACK cases, in at most PYDDPDIAG_ATTACK_S seconds."""
    return Length(
        int(os.environ.get("PYDDPDIAG_ATTACK", "200000")), float(os.environ.get("PYDDPDIAG_ATTACK_S", "3600"))
    )


Tell = Callable[[object], None]
"""Takes what an attack came to: the fixture `figures`."""


class Rounds:
    """The rounds of an attack that starts processes: a folder of its own for each, until count or time is over.

    Cases as such are cheap; of these, one in a thousand is taken.
    """

    def __init__(self, root: Path, share: float = 1.0) -> None:
        self.count = max(2, round(max(4, length().cases // 1000) * share))
        self._root = root
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the attack began."""
        return time.monotonic() - self._begin

    def folder(self, done: int) -> Path | None:
        """The folder of the round after `done` others; None if that was the last one."""
        if done >= self.count or self.seconds >= length().seconds:
            return None
        folder = self._root / str(done)
        folder.mkdir()
        return folder


@dataclass
class Figures:
    """What an attack came to. `slowest` is the case that took longest, to be repeated by its number."""

    cases: int = 0
    files: int = 0
    read: int = 0
    seconds: float = 0.0
    slowest: int = 0
    slowest_s: float = 0.0
    slowest_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.files} files mutated, {self.read} runs still read, {self.seconds:.0f} s; "
            f"slowest: case {self.slowest}, {self.slowest_s:.2f} s, {self.slowest_bytes / 1e6:.1f} MB"
        )


def sound_runs(folder: Path) -> list[dict[str, bytes]]:
    """Some small sound runs, as the content of their files: one, two and three ranks, all kinds, both byte orders."""
    write_training(folder / "plain", steps=4)
    write_training(folder / "clocks", steps=3, world_size=3, clocks={1: ("other", 5_000_000, 9_000_000)})
    for order in "<>":
        writer = RankWriter(capacity=64, order=order, closed=0)
        for step in range(4):
            writer.step(step, 10**9 + step * 1000, 10**9 + step * 1000 + 10, 10**9 + step * 1000 + 900)
            writer.backward(
                step, 10**9 + step * 1000 + 100, 10**9 + step * 1000 + 500, 10**9 + step * 1000 + 800
            )
            ticket = writer.bucket(step, 10**9 + 1, 10**9 + 2, 10**9 + 3, flags=1 if step == 2 else 0)
            writer.add(5, times=(10**9 + step * 1000 + 150,), step=step)
            writer.add(7, times=(0, 0, step, 1, 0, 99, 1000), reference=7, step=step)
            writer.collective("gloo:broadcast", 10**9 + 5, 10**9 + 9)
        writer.error(ticket, "Connection closed by peer [10.0.0.1]:1234 " * 3)
        writer.bucket(9, 10**9 + 5000, 10**9 + 5001, 0, state=IN_FLIGHT)
        writer.write(folder / f"kinds{ord(order)}")
    return [
        {path.name: path.read_bytes() for path in sorted(run.iterdir())} for run in sorted(folder.iterdir())
    ]


def mutated(run: dict[str, bytes], random: np.random.Generator) -> tuple[dict[str, bytes], int]:
    """The run with one to four mutations, and how many of its files have changed."""
    files = dict(run)
    for _ in range(int(random.integers(1, 5))):
        name = str(random.choice(sorted(files)))
        raw = bytearray(files[name])
        if not raw:
            continue
        ways = _OF_ANY + (_OF_TRACE if name.endswith(".ddptrace") else _OF_SIDECAR)
        files[name] = bytes(ways[int(random.integers(len(ways)))](raw, random))
    return files, sum(files[name] != run[name] for name in run)


def survive(folder: Path, *, show: bool = True) -> RunReport | None:
    """Read, analyse and render; the report, if there was one. Only this package's own errors may come out.

    What is shown must be clean: nothing but printable characters and line feeds. Without `show` there is no text,
    which takes longer than all the rest.
    """
    try:
        report = load_report(folder)
    except PyddpdiagError as error:
        assert "ddptrace" in str(error)
        return None
    json.loads(report_to_json(report))
    for tables in (False, True) if show else ():
        shown = io.StringIO()
        print_text(report, shown, tables=tables)
        assert shown.getvalue().replace("\n", "").isprintable()
    return report


def attack(
    folder: Path, limit: Length, *, seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> Figures:
    """Mutate, read and throw away; `seed` is the first case's number, and each case repeats by its own."""
    runs = sound_runs(folder / "sound")
    figures = Figures()
    place = folder / "case"
    place.mkdir()
    begin = time.monotonic()
    for number in range(seed, seed + limit.cases):
        if time.monotonic() - begin > limit.seconds:
            break
        figures.files += _write(place, runs, number)
        before = time.monotonic()
        try:
            figures.read += survive(place, show=number % 4 == 0) is not None
        except BaseException as error:
            raise AssertionError(f"case {number}: {error!r}; its files are in {place}") from error
        took = time.monotonic() - before
        if took > figures.slowest_s:
            figures.slowest, figures.slowest_s = number, took
        figures.cases += 1
        figures.seconds = time.monotonic() - begin
        if figures.cases % 5000 == 0:
            tell(str(figures))
    # The memory of the slowest: measured in a repetition, as measuring is slow.
    _write(place, runs, figures.slowest)
    figures.slowest_bytes = peak_bytes(lambda: survive(place))
    return figures


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python and NumPy held at a time during `work`."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _write(place: Path, runs: list[dict[str, bytes]], number: int) -> int:
    random = np.random.default_rng(number)
    files, changed = mutated(runs[int(random.integers(len(runs)))], random)
    for path in place.iterdir():
        path.unlink()
    for name, raw in files.items():
        (place / name).write_bytes(raw)
    return changed


def _odd(random: np.random.Generator) -> int:
    return ODD[int(random.integers(len(ODD)))]


def _flip(raw: bytearray, random: np.random.Generator) -> bytearray:
    for place in random.integers(0, len(raw), int(random.integers(1, 9))):
        raw[place] = int(random.integers(256))
    return raw


def _cut(raw: bytearray, random: np.random.Generator) -> bytearray:
    return raw[: int(random.integers(len(raw) + 1))]


def _zero(raw: bytearray, random: np.random.Generator) -> bytearray:
    begin, end = sorted(random.integers(0, len(raw) + 1, 2).tolist())
    raw[begin:end] = bytes(end - begin)
    return raw


def _repeat(raw: bytearray, random: np.random.Generator) -> bytearray:
    begin, end = sorted(random.integers(0, len(raw) + 1, 2).tolist())
    raw[end:end] = raw[begin:end]
    return raw


def _header(raw: bytearray, random: np.random.Generator) -> bytearray:
    size, places = [(2, [8, 10]), (4, [12, 16, 20, 40, 44]), (8, [24, 32, 64, 72, 256, 320, 384, 448, 512])][
        int(random.integers(3))
    ]
    place = int(random.choice(places))
    if place + size <= len(raw):
        raw[place : place + size] = (_odd(random) % 2 ** (8 * size)).to_bytes(size, "little")
    return raw


def _fields(raw: bytearray, random: np.random.Generator) -> bytearray:
    """The same odd number in one field of some records, or another in each."""
    count = (len(raw) - HEADER) // RECORD
    if count < 1:
        return raw
    slots = np.frombuffer(raw, record_dtype(), count, HEADER)
    rows = random.integers(0, count, int(random.integers(1, 12)))
    name = str(random.choice([*FIELDS, "times", "times", "times"]))
    field = slots[name][:, int(random.integers(8))] if name == "times" else slots[name]
    same = _odd(random)
    for row in rows:
        value = same if random.random() < 0.5 else _odd(random)
        field[row] = np.array([value % 2**64], np.uint64).astype(field.dtype)[0]
    return raw


def _records(raw: bytearray, random: np.random.Generator) -> bytearray:
    """Records copied over others, with tickets that fit or not."""
    count = (len(raw) - HEADER) // RECORD
    if count < 1:
        return raw
    for _ in range(int(random.integers(1, 6))):
        source, target = (HEADER + RECORD * int(place) for place in random.integers(0, count, 2))
        keep = 8 if random.random() < 0.7 else 0
        raw[target + keep : target + RECORD] = raw[source + keep : source + RECORD]
    return raw


def _values(raw: bytearray, random: np.random.Generator) -> bytearray:
    """Sound JSON with odd values in it."""
    try:
        document = json.loads(bytes(raw))
    except (ValueError, RecursionError):
        return raw
    for _ in range(int(random.integers(1, 5))):
        _replace_one(document, random)
    return bytearray(json.dumps(document).encode())


def _replace_one(inner: Any, random: np.random.Generator) -> None:
    while isinstance(inner, (dict, list)) and inner:
        key: Any = int(random.integers(len(inner)))
        if isinstance(inner, dict):
            key = list(inner)[key]
        if not isinstance(inner[key], (dict, list)) or not inner[key] or random.random() < 0.3:
            inner[key] = copy.deepcopy(ODD_JSON[int(random.integers(len(ODD_JSON)))])
            return
        inner = inner[key]


def _nest(raw: bytearray, random: np.random.Generator) -> bytearray:
    place = int(random.integers(len(raw) + 1))
    raw[place:place] = random.choice([b"[", b"{", b'{"a":', b"[" * 3000, b"9" * 6000, b'"', b"\xff"])
    return raw


_Way = Callable[[bytearray, np.random.Generator], bytearray]
_OF_ANY: tuple[_Way, ...] = (_flip, _cut, _zero, _repeat)
_OF_TRACE: tuple[_Way, ...] = (_header, _header, _fields, _fields, _fields, _records)
_OF_SIDECAR: tuple[_Way, ...] = (_values, _values, _nest)
