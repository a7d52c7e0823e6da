"""What `pyddpdiag try --restart` tries: names of cures with their values, and what fits the run when none is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from pyddpdiag.cures.options import Cures, sizes_of
from pyddpdiag.errors import UsageError
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.paths.options import Compress, SharedMemory

BY_DEFAULT: Final = ("interface", "threads", "pin-ranks")
"""What only another process can have, and keeps what is trained: it is tried where no cure is named."""

BUCKET_SIZES: Final = (1.0, 5.0, 100.0)
"""In MiB, around DDP's own 25."""


@dataclass(frozen=True)
class Wanted:
    """A cure that the user named, with its value; empty: what fits the run."""

    name: str
    value: str = ""


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
    """The cures in `NAME[=VALUE],...`; those of `BY_DEFAULT` if it is empty.

    Raises:
        UsageError: there is no such cure, or a value is none of it.
    """
    if not text.strip():
        return tuple(Wanted(name) for name in BY_DEFAULT)
    found = []
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in _KINDS:
            raise UsageError(
                f"--cures: there is no cure '{name}'.",
                hint=f"with --restart, choose among: {', '.join(_KINDS)}.",
            )
        one = Wanted(name, value)
        if value:
            _with_value(one, Cures())
        found.append(one)
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
    for one in wanted:
        values = [one.value] if one.value else _KINDS[one.name](run)
        made = [
            Setting(_named(one.name, value), _with_value(Wanted(one.name, value), today)) for value in values
        ]
        new = [setting for setting in made if setting.cures != today]
        if not new:
            notes.append(f"{one.name} is not tried: {_WHY_NOT.get(one.name, 'today has it already')}.")
        found.update({setting.name: setting for setting in new})
    return list(found.values()), notes


def _named(name: str, value: str) -> str:
    return f"{name} {value}" if value not in ("", "auto") else name


def _with_value(one: Wanted, today: Cures) -> Cures:
    """Today's setting with a cure.

    Raises:
        UsageError: the value is none of that cure.
    """
    try:
        return _CHANGES[one.name](today, one.value)
    except (ValueError, IndexError):
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


def _buckets(today: Cures, value: str) -> Cures:
    sizes = sizes_of(value.replace(":", ","))
    if len(sizes) > 1:
        return replace(today, bucket_cap_mb=None, bucket_cap_mb_list=sizes)
    return replace(today, bucket_cap_mb=sizes[0], bucket_cap_mb_list=())


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
    "buckets": _buckets,
    "views": lambda today, value: replace(today, gradient_as_bucket_view=_flag(value)),
    "compress": lambda today, value: replace(today, compress=cast(Compress, value)),
    "interface": lambda today, value: replace(today, interfaces=tuple(value.split("+"))),
    "threads": lambda today, value: replace(today, threads=int(value)),
    "pin-ranks": lambda today, value: replace(today, pin_ranks=_flag(value)),
    "workers": lambda today, value: replace(today, num_workers=int(value)),
}

_EXAMPLES: Final = {
    "compress": "compress=bf16 or compress=fp16",
    "buckets": "buckets=4, or buckets=1:4:25 for a size of each bucket, in MiB",
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
