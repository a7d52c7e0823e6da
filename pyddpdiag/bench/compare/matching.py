"""Which entries of two result files are the same case, and why two files cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyddpdiag.bench.compare.comparison import Pair, Series
from pyddpdiag.bench.results import Entry, ResultFile
from pyddpdiag.errors import NotComparableError, ResultError
from pyddpdiag.model.words import size

Key = tuple[Any, ...]

# By kind: what must be equal for a ratio to mean anything, and what a sweep varies.
_WORK: Final = {
    "step": ("model", "dataset", "batch_size", "dtype"),
    "allreduce": ("dtype",),
    "scaling": ("model", "dataset", "batch_size", "dtype"),
}
_VARIED: Final = {
    "step": ("hook", "bucket_cap_mb", "first_bucket_mb", "world_size", "interface"),
    "allreduce": ("bytes", "chunks", "world_size", "interface"),
    "scaling": ("world_size",),
}
# What a case's name leaves out.
_UNSAID: Final = ("", None, "step", "scaling", "float32", "random")


def series_of(files: Sequence[ResultFile], labels: Sequence[str]) -> list[Series]:
    """One series per file, or per `label` in its entries.

    Raises:
        ResultError: a file holds the same case twice.
    """
    found: list[Series] = []
    for file, name in zip(files, labels, strict=True):
        own = list(dict.fromkeys(str(e.extra_info.get("label") or "") for e in file.entries))
        for label in own:
            entries = tuple(e for e in file.entries if str(e.extra_info.get("label") or "") == label)
            series = Series(label or name, entries)
            if len(keys(series)) < len(entries):
                raise ResultError(f"'{file.path}' holds the same case twice.", hint="compare one run's file.")
            found.append(series)
    return found


def keys(series: Series, other: Series | None = None) -> dict[Key, Entry]:
    """The entries, by what identifies their case on any machine when compared with `other`."""
    # Interfaces have different names on different systems; they distinguish cases only if there are several.
    several = {
        kind: any(
            len({e.extra_info.get("interface") for e in side.entries if e.kind == kind}) > 1
            for side in (series, other)
            if side is not None
        )
        for kind in _WORK
    }
    return {_key(entry, several[entry.kind]): entry for entry in series.entries}


def match(base: Series, other: Series) -> list[tuple[Key, Entry, Entry]]:
    """The cases that both have.

    Raises:
        NotComparableError: they have no case in common, or a case that is otherwise the same was measured with
            another batch, data set or data type.
    """
    ours, theirs = keys(base, other), keys(other, base)
    clashes = _clashes(ours.values(), theirs.values())
    if clashes:
        raise NotComparableError(
            f"'{base.label}' and '{other.label}' cannot be compared: {'; '.join(clashes)}.",
            hint="measure both with the same options.",
        )
    common = [(key, ours[key], theirs[key]) for key in ours if key in theirs]
    if not common:
        raise NotComparableError(
            f"'{base.label}' and '{other.label}' have no case in common: "
            f"{_differences(ours.values(), theirs.values(), base.label, other.label)}.",
            hint="measure both with the same options.",
        )
    return common


def settings(key: Key) -> tuple[str, ...]:
    """The parts of a case's name for people; "" for those that it leaves out."""
    return tuple("" if part in _UNSAID else str(part) for part in key)


def name(key: Key) -> str:
    """A case's name for people."""
    return " ".join(part for part in settings(key) if part)


def _key(entry: Entry, with_interface: bool) -> Key:
    kind, info = entry.kind, entry.extra_info
    parts: list[Any] = [kind]
    for field in (*_WORK[kind], *_VARIED[kind]):
        value = info.get(field)
        if field == "interface":
            value = value if with_interface else ""
        elif field == "first_bucket_mb":
            value = "" if value in (None, info.get("bucket_cap_mb")) else f"first {value:g} MiB"
        elif field == "batch_size":
            value = None if value is None else f"batch {value}"
        elif field == "chunks":
            value = "" if value in (None, 1) else f"{value} in flight"
        elif field == "bucket_cap_mb":
            value = f"{value:g} MiB"
        elif field == "world_size":
            value = "1 rank" if value == 1 else f"{value} ranks"
        elif field == "bytes":
            value = size(int(info["bytes"]))
        parts.append(value)
    return tuple(parts)


def _clashes(ours: Iterable[Entry], theirs: Iterable[Entry]) -> list[str]:
    """What differs between entries of one kind and model: values of which the two sides share none."""
    found = []
    left, right = list(ours), list(theirs)
    for kind, fields in _WORK.items():
        shared = _values(left, kind, "model") & _values(right, kind, "model")
        for field in fields[1:] if kind != "allreduce" else fields:
            for model in shared:
                a = {v for v in _values(left, kind, field, model) if v is not None}
                b = {v for v in _values(right, kind, field, model) if v is not None}
                if a and b and not a & b:
                    found.append(f"{field} is {_say(a)} in the one and {_say(b)} in the other")
    return list(dict.fromkeys(found))


def _differences(ours: Iterable[Entry], theirs: Iterable[Entry], base: str, other: str) -> str:
    left, right = list(ours), list(theirs)
    kinds_left, kinds_right = {e.kind for e in left}, {e.kind for e in right}
    if not kinds_left & kinds_right:
        return f"{base} holds {_say(kinds_left)}, {other} holds {_say(kinds_right)}"
    differences = []
    for kind in kinds_left & kinds_right:
        for field in dict.fromkeys((*_WORK[kind], *_VARIED[kind])):
            a, b = _values(left, kind, field), _values(right, kind, field)
            if not a & b:
                differences.append(f"{field} is {_say(a)} in {base}, {_say(b)} in {other}")
    return "; ".join(differences) or "each has other combinations of settings"


def _values(entries: Iterable[Entry], kind: str, field: str, model: Any = ...) -> set[Any]:
    return {
        e.extra_info.get(field)
        for e in entries
        if e.kind == kind and (model is ... or e.extra_info.get("model") == model)
    }


def _say(values: Iterable[Any]) -> str:
    return ", ".join(sorted(str(value) for value in values))


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
