"""What all ranks must have in common: world size, operating system, versions, variables, interfaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pyddpdiag.doctor.mesh.facts import SHARED, Facts
from pyddpdiag.doctor.mesh.verdict import Trouble
from pyddpdiag.messages.shells import SetVariable, UnsetVariable, write

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
