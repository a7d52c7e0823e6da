"""Which rank printed a line, where launchers write that before it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_PREFIXES: Final = re.compile(
    r"^(?:"
    # torch, torchrun --tee, torchrun --log-dir.
    r"\[(?:default|rank)(?P<torch>\d+)\]:? ?"
    # Horovod, mpirun --tag-output.
    r"|\[(?:\d+,)?(?P<mpi>\d+)\]<std(?:err|out)>: ?"
    r")",
    re.IGNORECASE,
)
# Names without a rank: containers of docker compose and of kubectl logs --prefix, and processes of Ray, whose older
# versions give a number only.
_NAMES: Final = re.compile(
    r"^(?:(?P<compose>[A-Za-z][\w.-]*-\d+) +\| ?|\[pod/(?P<pod>[\w.-]+)/[\w.-]+\] ?"
    r"|\((?P<actor>\w+ pid=\d+)(?:, ip=[\d.]+)?\) ?|\(pid=\d+(?:, ip=[\d.]+)?\) ?)"
)
# Of kubectl logs --timestamps, and of programs that log the lines of others.
_STAMP: Final = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*Z?\]?(?: \[\w+\])* ?")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
# srun --label.
_LABEL: Final = re.compile(r"^ *(?P<task>\d+): ?")
_LAUNCHER: Final = re.compile(r"(?:srun|slurmstepd)(?:-\S+)?: ")
# Nobody else begins so many lines so.
_MOST = 0.8
# A line of a traceback behind words of a logger or launcher.
_FRAME: Final = re.compile(r'  File "[^"\n]+", line \d+')
_LONGEST_WORDS: Final = 200
_IN_NAME: Final = re.compile(
    r"(?:rank|local_rank|worker|node|proc)[_\-. ]?(\d+)|(?:^|[/\\])(\d+)[/\\]std(?:out|err)", re.IGNORECASE
)


def lines_of(text: str) -> list[tuple[int | str | None, str]]:
    """Each line with the rank, or else the name, that its prefix says; prefixes, times and colours are cut off.

    So is what a logger or a launcher puts before each line of a traceback, wherever it stands.
    """
    lines = list(_of_ranks(text))
    words = _before_tracebacks([line for _, line in lines])
    return lines if words is None else [(rank, words.sub("", line)) for rank, line in lines]


def _before_tracebacks(lines: Iterable[str]) -> re.Pattern[str] | None:
    """What stands before lines of tracebacks, whatever numbers are in it; None if nothing does."""
    found: set[str] = set()
    for line in lines:
        begin = _FRAME.search(line, 1, _LONGEST_WORDS)
        if begin is not None and line[: begin.start()].strip():
            found.add(re.sub(r"\d+", r"\\d+", re.escape(line[: begin.start()])))
    return re.compile("^(?:" + "|".join(sorted(found)) + ")") if found else None


def _of_ranks(text: str) -> Iterator[tuple[int | str | None, str]]:
    lines = [_without_stamp(line) for line in _COLOUR.sub("", text).splitlines()]
    pattern = _PREFIXES
    filled = [line for line in lines if line.strip() and not _LAUNCHER.match(line)]
    if len(filled) > 1 and sum(1 for line in filled if _LABEL.match(line)) >= _MOST * len(filled):
        pattern = _LABEL
    for whole in lines:
        named = _NAMES.match(whole) if whole[:1] in "[(" or " |" in whole else None
        line = _without_stamp(whole[named.end() :]) if named is not None else whole
        prefix = pattern.match(line)
        if prefix is None:
            yield (next(filter(None, named.groups()), None) if named is not None else None), line
        else:
            rank = next(value for value in prefix.groups() if value is not None)
            yield int(rank), line[prefix.end() :]


def _without_stamp(line: str) -> str:
    # Most lines have none.
    return _STAMP.sub("", line) if line[:1] == "[" or line[:1].isdigit() else line


def rank_in(name: str) -> int | None:
    """The rank that a log's name holds; None if it holds none."""
    named = _IN_NAME.search(name)
    return int(named.group(1) or named.group(2)) if named is not None else None
