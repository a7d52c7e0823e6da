"""From what all ranks saw to what is wrong with which pair, and the lines that mend it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyddpdiag.doctor.mesh import differences, pairs
from pyddpdiag.doctor.mesh.facts import Facts
from pyddpdiag.doctor.mesh.probe import Attempt
from pyddpdiag.doctor.mesh.verdict import Trouble, Verdict
from pyddpdiag.messages.explain import explain
from pyddpdiag.model import words


def judge(
    world_size: int,
    came: Sequence[Facts],
    odd: Sequence[Facts],
    silent: Mapping[int, str],
    attempts: Sequence[Attempt],
    formed: Mapping[int, Mapping[str, Any]],
) -> Verdict:
    """The verdict.

    Args:
        world_size: as rank 0 was started.
        came: the ranks that took part.
        odd: those that came and had no place.
        silent: ranks that came, and then did not answer rank 0; how that showed.
        attempts: of every rank to every address of every other.
        formed: what forming a group gave, by rank; empty if it was not tried.
    """
    ranks = {facts.rank: facts for facts in came}
    troubles = [
        *_missing(world_size, ranks),
        *_odd(world_size, odd),
        *_silent(silent),
        *differences.look(list(ranks.values())),
        *pairs.look(ranks, attempts),
        *_group(ranks, formed),
    ]
    failed = bool(formed) and not all(answer.get("ok") for answer in formed.values())
    return Verdict(
        world_size,
        tuple(sorted(ranks)),
        tuple(pairs.cells(ranks, attempts)),
        tuple(sorted(troubles, key=lambda trouble: trouble.warning)),
        "failed" if failed else ("formed" if formed else "not tried"),
        max((float(answer.get("seconds", 0.0)) for answer in formed.values()), default=0.0),
    )


def _missing(world_size: int, ranks: Mapping[int, Facts]) -> Iterator[Trouble]:
    missing = [rank for rank in range(world_size) if rank not in ranks]
    if missing:
        yield Trouble(
            "missing",
            tuple(missing),
            f"{words.ranks(missing)} never came.",
            "Start the same command there, or see its output; check that it can reach rank 0, and the world size.",
        )


def _odd(world_size: int, odd: Sequence[Facts]) -> Iterator[Trouble]:
    for facts in odd:
        inside = 0 <= facts.rank < world_size
        yield Trouble(
            "duplicate" if inside else "world_size",
            (facts.rank,),
            f"a second rank {facts.rank} came, from {facts.machine.split(' ')[0]}."
            if inside
            else f"rank {facts.rank} came with a world size of {facts.world_size}; rank 0's is {world_size}.",
            "Give each process a rank of its own." if inside else "Start all ranks with the same world size.",
        )


def _silent(silent: Mapping[int, str]) -> Iterator[Trouble]:
    for rank, why in sorted(silent.items()):
        yield Trouble(
            "silent",
            (rank,),
            f"rank {rank} came, and then did not answer rank 0: {why}",
            "See its output; if its machine is only busy, --timeout waits longer.",
        )


def _group(ranks: Mapping[int, Facts], formed: Mapping[int, Mapping[str, Any]]) -> Iterator[Trouble]:
    broken = {rank: str(answer.get("error", "")) for rank, answer in formed.items() if not answer.get("ok")}
    if not broken:
        return
    # The one closest to a cause speaks for all.
    explained = {rank: explain(error, lines_for=ranks[rank].shell) for rank, error in broken.items()}
    rank, found = min(explained.items(), key=lambda item: (not item[1].known, item[1].role, item[0]))
    said = found.line or (broken[rank].strip().splitlines() or ["it ended without a word"])[-1]
    yield Trouble(
        "group",
        tuple(sorted(broken)),
        f"a real Gloo group could not be formed; rank {rank}: {said}"
        + (f" {found.cause}" if found.known else ""),
        found.fix if found.known else "Read the message above; the pairs' connections are in the table.",
        {rank: found.lines} if found.lines else {},
    )
