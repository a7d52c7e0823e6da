"""What `pyddpdiag try --restart` tries: names of cures with their values, and what fits the run when none is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from pyddpdiag.cures.names import Named, together_of
from pyddpdiag.cures.options import Cures, layout_of, with_layout
from pyddpdiag.errors import UsageError
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.paths.options import Compress, SharedMemory

BY_DEFAULT: Final = ("interface", "threads", "pin-ranks")
"""What only another process can have, and keeps what is trained: it is tried where no cure is named."""

BUCKET_SIZES: Final = (1.0, 5.0, 100.0)
"""In MiB, around DDP's own 25."""


Wanted = tuple[Named, ...]
"""Cures that the user named, to be on together."""


@dataclass(frozen=True)
class Setting:
    """A setting to try: what it is called, and all that is applied in it."""

    name: str
    cures: Cures


@dataclass(frozen=True)
class Seen:
    """What a start with today's setting shows of the ranks.

    Attributes:
        ranks: on the machine that has most of them.
        cores: that they may use there, all together; 0: not known.
        threads: of torch in each of them; 0: not known.
        hosts: on which they are.
        interfaces: of all their hosts, but those of the loopback where there are several; in use: first.
        in_use: the interfaces that Gloo was told to use; empty: its own choice.
    """

    ranks: int
    cores: int
    threads: int
    hosts: int
    interfaces: tuple[str, ...]
    in_use: str


def seen(sidecars: Sequence[Sidecar]) -> Seen:
    """The same, from the sidecars of all ranks."""
    hosts: dict[str, list[Sidecar]] = {}
    for one in sidecars:
        hosts.setdefault(one.host, []).append(one)
    fullest = max(hosts.values(), key=len)
    cores = {core for one in fullest for core in one.cores}
    usable = [
        {name for name, face in one.interfaces.items() if face.up and face.addresses} for one in sidecars
    ]
    common = sorted(set.intersection(*usable)) if usable else []
    several = len(hosts) > 1
    names = [name for name in common if not (several and _is_loopback(sidecars[0], name))]
    return Seen(
        ranks=len(fullest),
        cores=len(cores),
        threads=max(one.torch_threads for one in fullest),
        hosts=len(hosts),
        interfaces=tuple(names),
        in_use=sidecars[0].environment.get("GLOO_SOCKET_IFNAME", ""),
    )


def _is_loopback(sidecar: Sidecar, name: str) -> bool:
    return all(address.startswith(("127.", "::1/")) for address in sidecar.interfaces[name].addresses)


def wanted_of(text: str) -> tuple[Wanted, ...]:
    """The cures in `NAME[=VALUE][+NAME...],...`; those of `BY_DEFAULT` if it is empty.

    Raises:
        UsageError: there is no such cure, or a value is none of it.
    """
    if not text.strip():
        return tuple((Named(name),) for name in BY_DEFAULT)
    hint = f"with --restart, choose among: {', '.join(_KINDS)}."
    found = [together_of(part, _KINDS, hint) for part in text.split(",")]
    for one in itertools.chain(*found):
        if one.value:
            _with_value(one, Cures())
    return tuple(dict.fromkeys(found))


def settings(wanted: Sequence[Wanted], today: Cures, run: Seen) -> tuple[list[Setting], list[str]]:
    """What is tried beside today's setting.

    Args:
        wanted: what the user named.
        today: what is applied today.
        run: what a start with that has shown.

    Returns:
        The settings, none of which is today's; and a sentence for each cure that nothing can be tried of.
    """
    found: dict[str, Setting] = {}
    notes = []
    for together in wanted:
        # Of each, every value that changes something.
        each = [_values(one, today, run) for one in together]
        for one, values in zip(together, each, strict=True):
            if not values:
                name = "+".join(part.name for part in together)
                why = _WHY_NOT.get(one.name, "today has it already")
                other = f"{one.name}: " if len(together) > 1 else ""
                notes.append(f"{name} is not tried: {other}{why}.")
        for parts in itertools.product(*each):
            cures = today
            for part in parts:
                cures = _with_value(part, cures)
            name = " + ".join(_named(part) for part in parts)
            found[name] = Setting(name, cures)
    return list(found.values()), notes


def _values(one: Named, today: Cures, run: Seen) -> list[Named]:
    """A cure with each of its values that is not today's."""
    values = [one.value] if one.value else _KINDS[one.name](run)
    named = [Named(one.name, value) for value in values]
    return [each for each in named if _with_value(each, today) != today]


def _named(one: Named) -> str:
    return f"{one.name} {one.value}" if one.value not in ("", "auto") else one.name


def _with_value(one: Named, today: Cures) -> Cures:
    """Today's setting with a cure.

    Raises:
        UsageError: the value is none of that cure.
    """
    try:
        return _CHANGES[one.name](today, one.value)
    except ValueError:
        raise UsageError(
            f"--cures {one.name}={one.value}: that is no value of {one.name}.",
            hint=f"write {_EXAMPLES.get(one.name, one.name)}.",
        ) from None


def _flag(value: str) -> Literal[True]:
    if value:
        raise ValueError
    return True


def _shared(today: Cures, value: str) -> Cures:
    return replace(today, shared_memory=cast(SharedMemory, value or "auto"))


def _interfaces(run: Seen) -> list[str]:
    return [name for name in run.interfaces if name != run.in_use] if len(run.interfaces) > 1 else []


def _threads(run: Seen) -> list[str]:
    share = max(1, run.cores // run.ranks)
    return [str(number) for number in dict.fromkeys((share, 1)) if run.cores and number != run.threads]


def _pinned(run: Seen) -> list[str]:
    return [""] if run.cores >= run.ranks else []


_KINDS: Final[dict[str, Callable[[Seen], list[str]]]] = {
    "shared-memory": lambda run: ["auto"],
    "buckets": lambda run: [f"{size:g}" for size in BUCKET_SIZES],
    "views": lambda run: [""],
    "compress": lambda run: ["bf16"],
    "interface": _interfaces,
    "threads": _threads,
    "pin-ranks": _pinned,
    "workers": lambda run: ["1", "2"],
}

_CHANGES: Final[dict[str, Callable[[Cures, str], Cures]]] = {
    "shared-memory": _shared,
    "buckets": lambda today, value: with_layout(today, layout_of(value)),
    "views": lambda today, value: replace(today, gradient_as_bucket_view=_flag(value)),
    "compress": lambda today, value: replace(today, compress=cast(Compress, value)),
    "interface": lambda today, value: replace(today, interfaces=tuple(value.split("+"))),
    "threads": lambda today, value: replace(today, threads=int(value)),
    "pin-ranks": lambda today, value: replace(today, pin_ranks=_flag(value)),
    "workers": lambda today, value: replace(today, num_workers=int(value)),
}

_EXAMPLES: Final = {
    "compress": "compress=bf16 or compress=fp16",
    "threads": "threads=4",
    "workers": "workers=2",
    "interface": "interface=eth0, or interface=eth0+eth1",
}

_WHY_NOT: Final = {
    "interface": "the ranks' machines have no other one",
    "threads": "the ranks have the threads that fit their cores",
    "pin-ranks": "there are fewer cores than ranks, or the ranks are pinned already",
}


__all__ = ["BY_DEFAULT", "Seen", "Setting", "Wanted", "seen", "settings", "wanted_of"]
