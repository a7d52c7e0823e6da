"""Short names of cases that are shown together: what several have in common is said once, in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyddpdiag.bench.compare.comparison import Pair


def short_cases(pairs: Sequence[Pair]) -> tuple[str, list[str]]:
    """What the cases have in common, as a sentence, and what is left of each.

    What is left is never nothing, and of cases that are not alike never the same.
    """
    cases = [pair.case for pair in pairs]
    parts = [pair.settings or (pair.case,) for pair in pairs]
    if len(set(cases)) < 2 or len({len(each) for each in parts}) > 1:
        return "", cases
    differ = [place for place, values in enumerate(zip(*parts, strict=True)) if len(set(values)) > 1]
    follows = {place: first for place in differ for first in _settled_by(parts, place, differ)[:1]}
    named = [place for place in differ if place not in follows]
    if not all(_said(each, named) for each in parts):
        # One case has what another lacks: what stands before that names both.
        named = sorted({*named, *_before(parts[0], named[0])})
    rests = [_said(each, named) for each in parts]
    if not all(rests) or len(set(rests)) < len(set(cases)):
        return "", cases
    common = _said(parts[0], [place for place in range(len(parts[0])) if place not in (*named, *follows)])
    sentences = [f"All are {common}"] if common else []
    for first in dict.fromkeys(follows.values()):
        own = [place for place in follows if follows[place] == first]
        each_of = {each[first]: _said(each, own) for each in parts}
        sentences += [f"{value}: {said}" for value, said in each_of.items() if said]
    return "; ".join(sentences) + ("." if sentences else ""), rests


def short_names(pairs: Sequence[Pair]) -> tuple[str, list[str]]:
    """The same for rows without a column that says of what they are: with the other's name if there are several."""
    common, rests = short_cases(pairs)
    if len({pair.other for pair in pairs}) < 2:
        return common, rests
    if len({pair.case for pair in pairs}) == 1:
        return f"All are {pairs[0].case}.", [pair.other for pair in pairs]
    return common, [f"{pair.other}: {rest}" for pair, rest in zip(pairs, rests, strict=True)]


def _settled_by(parts: Sequence[Sequence[str]], place: int, differ: Sequence[int]) -> list[int]:
    """The earlier parts of which each value, which several cases have, comes with one value of the part at `place`."""
    found = []
    for first in (other for other in differ if other < place):
        often = Counter(each[first] for each in set(parts))
        both = {(each[first], each[place]) for each in parts}
        if len(both) == len(often) and min(often.values()) > 1 and "" not in often:
            found.append(first)
    return found


def _said(parts: Sequence[str], places: Sequence[int]) -> str:
    return " ".join(parts[place] for place in places if parts[place])


def _before(parts: Sequence[str], first: int) -> list[int]:
    return [place for place in range(first) if parts[place]][-1:]
