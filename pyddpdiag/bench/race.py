"""Who won a race of interfaces, and what to export. Needs neither torch nor the native module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyddpdiag.bench.intervals import Estimate, estimate, verdict
from pyddpdiag.bench.results import Entry
from pyddpdiag.model.words import number


@dataclass(frozen=True)
class Place:
    """One entrant: its median time over the winner's, with interval and verdict (`slower`, `no difference`)."""

    interface: str
    median_ms: float
    ratio: Estimate
    word: str


@dataclass(frozen=True)
class Race:
    """A race's outcome.

    Attributes:
        winner: GLOO_SOCKET_IFNAME of rank 0 for the fastest.
        clear: whether all others are slower by more than the noise.
        places: all entrants, the fastest first.
        exports: what to export, by rank.
        hosts: on how many machines the ranks were.
        lines: the outcome in sentences.
    """

    winner: str
    clear: bool
    places: tuple[Place, ...]
    exports: tuple[str, ...]
    hosts: int
    lines: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judge(entries: Sequence[Entry]) -> Race:
    """The outcome of a race; the entries are of one sweep and differ in their interface only.

    Rounds are paired: they were interleaved, so what the machine did meanwhile hit all alike.
    """
    medians = {entry.name: estimate(entry.round_s).median for entry in entries}
    order = sorted(entries, key=lambda entry: medians[entry.name])
    best = order[0]
    # Among entrants that cannot be told apart the simplest is the one to take.
    level = [entry for entry in order if _compared(entry, best).word == "no difference"]
    best = min(level or [best], key=lambda entry: (_name(entry).count(","), medians[entry.name]))
    places = tuple(
        sorted(
            (_compared(entry, best) for entry in entries),
            key=lambda p: (p.interface != _name(best), p.median_ms),
        )
    )
    clear = all(place.word == "slower" for place in places if place.interface != _name(best))
    exports = tuple(f"export GLOO_SOCKET_IFNAME={names}" for names in best.extra_info["interfaces_by_rank"])
    return Race(
        _name(best), clear, places, exports, int(best.extra_info["hosts"]), tuple(_lines(places, clear))
    )


def _name(entry: Entry) -> str:
    return str(entry.extra_info["interface"])


def _compared(entry: Entry, best: Entry) -> Place:
    rounds = min(len(entry.round_s), len(best.round_s))
    if entry is best:
        one = Estimate(1.0, 1.0, 1.0)
        return Place(_name(entry), 1e3 * estimate(entry.round_s).median, one, "no difference")
    ratios = estimate([a / b for a, b in zip(entry.round_s, best.round_s, strict=False)])
    return Place(_name(entry), 1e3 * estimate(entry.round_s).median, ratios, verdict(ratios, rounds))


def _lines(places: Sequence[Place], clear: bool) -> list[str]:
    best, *others = places
    if not others:
        return [f"{best.interface} is the only one: {number(best.median_ms)} ms, nothing to choose."]
    lines = []
    if clear:
        lines.append(f"{best.interface} is the fastest: {number(best.median_ms)} ms.")
    same = [place.interface for place in others if place.word == "no difference"]
    if same:
        lines.append(f"No difference between {best.interface} and {'; '.join(same)}.")
    unknown = [place.interface for place in others if place.word == "cannot tell"]
    if unknown:
        lines.append(f"Too few rounds to judge {' and '.join(unknown)}.")
    for place in others:
        if place.word == "slower":
            lines.append(
                f"{place.interface} takes {number(place.ratio.median)} times as long "
                f"({number(place.ratio.low)} to {number(place.ratio.high)})."
            )
    several = [place for place in others if "," in place.interface and place.word == "slower"]
    if several:
        lines.append(
            f"Several interfaces at once hurt here: {several[0].interface} is slower than {best.interface} alone."
        )
    return lines
