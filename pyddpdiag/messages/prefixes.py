"""Which rank printed a line, where launchers write that before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_PREFIXES: Final = re.compile(
    r"^(?:"
    # torch, torchrun --tee, torchrun --log-dir.
    r"\[(?:default|rank)(?P<torch>\d+)\]:? ?"
    # Horovod, mpirun --tag-output.
    r"|\[(?:\d+,)?(?P<mpi>\d+)\]<std(?:err|out)>: ?"
    # docker compose, and kubectl logs --prefix.
    r"|(?:\[pod/)?[A-Za-z][\w.-]*?-(?P<pod>\d+)(?:/[\w.-]+\]| +\|) ?"
    r")",
    re.IGNORECASE,
)
# Of kubectl logs --timestamps, and of programs that log the lines of others.
_STAMP: Final = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*Z?\]?(?: \[\w+\])* ?")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
# Ray: whose lines they are is known by process only.
_ACTOR: Final = re.compile(r"^\(\w+ pid=\d+(?:, ip=[\d.]+)?\) ?")
# srun --label.
_LABEL: Final = re.compile(r"^ *(?P<task>\d+): ?")
# Nobody else begins so many lines so.
_MOST = 0.8
_IN_NAME: Final = re.compile(
    r"(?:rank|local_rank|worker|node|proc)[_\-. ]?(\d+)|(?:^|[/\\])(\d+)[/\\]std(?:out|err)", re.IGNORECASE
)


def lines_of(text: str) -> Iterator[tuple[int | None, str]]:
    """Each line with the rank that its prefix names; the prefix is cut off, and so are times and colours."""
    lines = [_ACTOR.sub("", _STAMP.sub("", line)) for line in _COLOUR.sub("", text).splitlines()]
    pattern = _PREFIXES
    filled = [line for line in lines if line.strip()]
    if len(filled) > 1 and sum(1 for line in filled if _LABEL.match(line)) >= _MOST * len(filled):
        pattern = _LABEL
    for line in lines:
        prefix = pattern.match(line)
        if prefix is None:
            yield None, line
        else:
            rank = next(value for value in prefix.groups() if value is not None)
            yield int(rank), line[prefix.end() :]


def rank_in(name: str) -> int | None:
    """The rank that a log's name holds; None if it holds none."""
    named = _IN_NAME.search(name)
    return int(named.group(1) or named.group(2)) if named is not None else None
