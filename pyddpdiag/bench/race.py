"""Who won a race of interfaces, and what to export. Needs neither torch nor the native module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyddpdiag.analyse.links.interface_use import VARIABLE
from pyddpdiag.bench.intervals import Estimate, Word, estimate, ratio_in_pairs, verdict
from pyddpdiag.bench.results import Entry
from pyddpdiag.messages.shells import SetVariable, this_shell, write
from pyddpdiag.model.words import number

_LOOKS: Final = (4, 2)
"""A race is looked at after a quarter of its rounds and after half of them; it ends where it is settled."""
LEVEL: Final = 0.99
"""Of the intervals: high, as a race is looked at up to three times, and the winner is chosen by the same rounds."""


@dataclass(frozen=True)
class Place:
    """One entrant: its median time over the winner's, round by round, with its interval at LEVEL and the verdict."""

    interface: str
    median_ms: float
    ratio: Estimate
    word: Word


@dataclass(frozen=True)
class Race:
    """A race's outcome.

    Attributes:
        winner: GLOO_SOCKET_IFNAME of rank 0 for the fastest; among those without a difference, the simplest.
        clear: whether all others are slower by more than the noise.
        places: all entrants, the fastest first.
        alone: where several interfaces at once won: the single ones, against the fastest of them.
        exports: the line to paste before the start, by rank.
        hosts: on how many machines the ranks were.
        lines: the outcome in sentences.
    """

    winner: str
    clear: bool
    places: tuple[Place, ...]
    alone: tuple[Place, ...]
    exports: tuple[str, ...]
    hosts: int
    lines: tuple[str, ...]


def judge(entries: Sequence[Entry]) -> Race:
    """The outcome of a race; the entries are of one sweep and differ in their interface only.

    Rounds are paired: they were interleaved, so what the machine did meanwhile hit all alike.
    """
    best, places = _placed(entries)
    clear = all(place.word == "slower" for place in places if place.interface != _name(best))
    alone: tuple[Place, ...] = ()
    singles = [entry for entry in entries if "," not in _name(entry)]
    if "," in _name(best) and len(singles) > 1:
        alone = _placed(singles)[1]
    # Ranks of one job have one system: this one's.
    exports = tuple(
        write(SetVariable(VARIABLE, names), this_shell()) for names in best.extra_info["interfaces_by_rank"]
    )
    lines = [*_lines(places, clear), *_lines_alone(alone)]
    return Race(_name(best), clear, places, alone, exports, int(best.extra_info["hosts"]), tuple(lines))


def _placed(entries: Sequence[Entry]) -> tuple[Entry, tuple[Place, ...]]:
    """The one to take, and all entrants against it, itself first."""
    medians = {entry.name: estimate(entry.round_s).median for entry in entries}
    order = sorted(entries, key=lambda entry: medians[entry.name])
    best = order[0]
    # Among entrants that cannot be distinguished, the simplest is the one to take.
    level = [entry for entry in order if _compared(entry, best).word == "no difference"]
    best = min(level or [best], key=lambda entry: (_name(entry).count(","), medians[entry.name]))
    places = (_compared(entry, best) for entry in entries)
    return best, tuple(sorted(places, key=lambda p: (p.interface != _name(best), p.median_ms)))


def _name(entry: Entry) -> str:
    return str(entry.extra_info["interface"])


def _compared(entry: Entry, best: Entry) -> Place:
    rounds = min(len(entry.round_s), len(best.round_s))
    if entry is best:
        one = Estimate(1.0, 1.0, 1.0)
        return Place(_name(entry), 1e3 * estimate(entry.round_s).median, one, "no difference")
    ratio, word = _judged(entry.round_s[:rounds], best.round_s[:rounds])
    return Place(_name(entry), 1e3 * estimate(entry.round_s).median, ratio, word)


def at_a_look(count: int, rounds: int) -> bool:
    """Whether a race of at most `rounds` is to be looked at after so many of them; see _LOOKS."""
    return count in {-(-rounds // part) for part in _LOOKS}


def settled(round_s: Mapping[tuple[int, ...], Sequence[float]]) -> bool:
    """Whether every entrant differs from the fastest or is as fast, and so the single ones among themselves.

    `round_s`: the rounds of each, by which of the interfaces it uses.
    """
    whole = min(map(len, round_s.values()))
    singles = {picks: values for picks, values in round_s.items() if len(picks) == 1}
    return whole > 0 and all(
        _settled([v[:whole] for v in some.values()]) for some in (round_s, singles) if some
    )


def _settled(round_s: Sequence[Sequence[float]]) -> bool:
    best = min(round_s, key=lambda values: estimate(values).median)
    return all(_judged(values, best)[1] != "cannot tell" for values in round_s if values is not best)


def _judged(values: Sequence[float], best: Sequence[float]) -> tuple[Estimate, Word]:
    """The ratio of paired rounds, and what it says of `values`."""
    ratio = ratio_in_pairs(values, best, LEVEL)
    return ratio, verdict(ratio, len(values))


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
        lines.append(
            f"The rounds scatter too much to tell {' and '.join(unknown)} from {best.interface}: "
            "repeat it with more --rounds or a larger --size, or while the machines do less."
        )
    lines += [_slower(place) for place in others if place.word == "slower"]
    if "," not in best.interface:
        hurt = [place.interface for place in others if "," in place.interface and place.word == "slower"]
        several = [names for names in hurt if not _repeats(names)]
        if several:
            lines.append(
                f"Several interfaces at once hurt here: {several[0]} is slower than {best.interface} alone."
            )
        repeated = [names for names in hurt if _repeats(names)]
        if repeated:
            lines.append(f"Repeating a name hurts here: {repeated[0]} is slower than {best.interface} alone.")
    return lines


def _slower(place: Place) -> str:
    return (
        f"{place.interface} takes {number(place.ratio.median)} times as long "
        f"({number(place.ratio.low)} to {number(place.ratio.high)})."
    )


def _lines_alone(alone: Sequence[Place]) -> list[str]:
    """What the single interfaces are to each other, where the winner is none of them."""
    found = []
    for place in alone[1:]:
        if place.word == "slower":
            found.append(f"Alone, {alone[0].interface} is faster: {_slower(place)}")
        elif place.word == "no difference":
            found.append(f"Alone, {alone[0].interface} and {place.interface} make no difference.")
        else:
            found.append(f"Alone, {alone[0].interface} and {place.interface} cannot be distinguished.")
    return found


def _repeats(names: str) -> bool:
    parts = names.split(",")
    return len(set(parts)) < len(parts)
