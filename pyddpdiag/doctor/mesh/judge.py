"""From what all ranks saw to what is wrong with which pair, and the lines that mend it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyddpdiag.doctor.mesh import pairs
from pyddpdiag.doctor.mesh.facts import SHARED, Facts
from pyddpdiag.doctor.mesh.probe import Attempt
from pyddpdiag.doctor.mesh.verdict import Trouble, Verdict
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.shells import SetVariable, UnsetVariable, write
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
        *look(list(ranks.values())),
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


_VARIABLE = "GLOO_SOCKET_IFNAME"


def look(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    """Every difference between the ranks that matters to Gloo."""
    yield from _world_size(ranks)
    yield from _system(ranks)
    yield from _versions(ranks)
    yield from _variables(ranks)
    yield from _interfaces(ranks)


def _said(values: dict[int, str]) -> str:
    return ", ".join(f"{value or 'unset'} on rank {rank}" for rank, value in sorted(values.items())[:8])


def _odd_ones(values: dict[int, str]) -> tuple[int, ...]:
    """The ranks that differ from most; all but rank 0's like, if there is no majority."""
    (first, most), *rest = Counter(values.values()).most_common()
    usual = values[min(values)] if rest and rest[0][1] == most else first
    return tuple(rank for rank, value in sorted(values.items()) if value != usual)


def _differ(values: dict[int, str]) -> bool:
    return len(set(values.values())) > 1


def _world_size(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    values = {facts.rank: str(facts.world_size) for facts in ranks}
    if _differ(values):
        right = next((facts.world_size for facts in ranks if facts.rank == 0), ranks[0].world_size)
        odd = [facts for facts in ranks if facts.world_size != right]
        yield Trouble(
            "world_size",
            tuple(facts.rank for facts in odd),
            f"the world sizes differ: {_said(values)}. torch waits for the ranks that are not there.",
            "Start all ranks with the same world size.",
            {f.rank: (write(SetVariable("WORLD_SIZE", str(right)), f.shell),) for f in odd},
        )


def _system(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    values = {facts.rank: facts.system for facts in ranks}
    if _differ(values):
        yield Trouble(
            "system",
            _odd_ones(values),
            f"the operating systems differ: {_said(values)}. "
            "Gloo's transports of Windows and Linux do not understand each other.",
            "Use one operating system per group.",
        )


def _versions(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    for package in ("torch", "pyddpdiag"):
        values = {facts.rank: facts.versions.get(package, "none").partition("+")[0] for facts in ranks}
        if _differ(values):
            usual = Counter(values.values()).most_common(1)[0][0]
            odd = _odd_ones(values)
            yield Trouble(
                "version",
                odd,
                f"the versions of {package} differ: {_said(values)}.",
                f"Install the same version of {package} everywhere.",
                {rank: (f"pip install {package}=={usual}",) for rank in odd if package == "torch"},
                warning=True,
            )


def _variables(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    for name in SHARED:
        values = {facts.rank: facts.variables.get(name, "") for facts in ranks}
        if _differ(values):
            set_ones = [facts for facts in ranks if facts.variables.get(name)]
            yield Trouble(
                "variable",
                tuple(facts.rank for facts in set_ones),
                f"{name} differs: {_said(values)}."
                + (
                    " Ranks without it crash when they meet one with it."
                    if name == "TORCH_GLOO_LAZY_INIT"
                    else ""
                ),
                "Set it the same on all ranks; not at all is best.",
                {facts.rank: (write(UnsetVariable(name), facts.shell),) for facts in set_ones},
            )


def _interfaces(ranks: Sequence[Facts]) -> Iterator[Trouble]:
    """Lists of interfaces: as many, and the same network at each place."""
    lists = {facts.rank: facts.variables.get(_VARIABLE, "").split(",") for facts in ranks}
    texts = {rank: ",".join(names) for rank, names in lists.items()}
    counts = {rank: str(len(names)) for rank, names in lists.items()}
    first = next(iter(sorted(ranks, key=lambda facts: facts.rank)))
    mend = {
        facts.rank: (write(SetVariable(_VARIABLE, lists[first.rank][0]), facts.shell),)
        for facts in ranks
        if lists[first.rank][0] and any(spot.interface == lists[first.rank][0] for spot in facts.spots)
    }
    if _differ(counts):
        yield Trouble(
            "interfaces",
            _odd_ones(counts),
            f"the ranks name different numbers of interfaces: {_said(texts)}. "
            "Some would wait for connections that nobody makes.",
            "Name the same number of interfaces on each rank, in the same order; one is safe.",
            mend,
        )
    elif len(lists[first.rank]) > 1 and any(
        set(names) == set(lists[first.rank]) and names != lists[first.rank] for names in lists.values()
    ):
        right = texts[first.rank]
        odd = [facts for facts in ranks if texts[facts.rank] != right]
        yield Trouble(
            "interfaces",
            tuple(facts.rank for facts in odd),
            f"the ranks name their interfaces in different orders: {_said(texts)}. All traffic then goes "
            f"over one of them.",
            "Name them in the same order.",
            {facts.rank: (write(SetVariable(_VARIABLE, right), facts.shell),) for facts in odd},
            warning=True,
        )
