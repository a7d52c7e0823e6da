"""From result files to a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyddpdiag.bench.compare.comparison import PARTS, Comparison, Curve, Pair, Scaling, Series
from pyddpdiag.bench.compare.matching import Key, keys, match, name, series_of, settings
from pyddpdiag.bench.intervals import ALIKE, MARGIN, WIDE, estimate, ratio_of_runs, typical, verdict, why_not
from pyddpdiag.bench.results import Entry, ResultFile, article, by_launch, launches_of
from pyddpdiag.model.words import milliseconds, number

_BUSY: Final = 0.5
"""Of the cores: a load above this part of them is worth a warning."""
_ALONE_MARGIN: Final = 0.25
"""What two runs of one launch each must differ by: how much launches differ is not known then."""
_OTHERS: Final = 0.1
"""Of all processors: if other programs took so much more during one run, its being slower is not the case's."""
_OTHER_LOAD: Final = "another load"


def compare(files: Sequence[ResultFile], *, with_article: bool = True) -> Comparison:
    """Compares result files with the first of them.

    `files`: at least one; with only one there is no ratio, but its table. `with_article`: show the article's
    published figures beside the user's scaling runs.

    Raises:
        NotComparableError: other model, batch, data set or data type, or no case in common.
        ResultError: a file holds one case twice.
    """
    series = series_of(files, _labels([file.path for file in files]))
    pairs: list[Pair] = []
    only: dict[str, tuple[str, ...]] = {}
    base = series[0]
    for other in series[1:]:
        common = match(base, other)
        pairs += [_pair(base, other, *one) for one in common]
        met = {key for key, _, _ in common}
        for side, against in ((base, other), (other, base)):
            alone = tuple(name(key) for key in keys(side, against) if key not in met)
            if alone:
                only[f"{side.label}, not {against.label}"] = alone
    rows = [row for one in series for row in _scaling(one)]
    source = ""
    if with_article and any(entry.kind == "scaling" for one in series for entry in one.entries):
        published = article()
        source = str(published.sweep.get("source", ""))
        if not any(row.label.startswith("article") for row in rows):
            for one in series_of([published], ["article"]):
                rows += _scaling(one, reference=True)
    curves = [curve for one in series for curve in _curves(one)]
    notes = [note for one in series for note in _notes(one)] + _caveats(series, pairs)
    return Comparison(tuple(series), tuple(pairs), tuple(rows), tuple(curves), only, source, tuple(notes))


def _notes(series: Series) -> list[str]:
    """Warns about a busy machine: it slows all cases of one run alike, but not those of two runs."""
    busy = [
        (float(e.extra_info["load_before"]), int(e.extra_info["cores"]))
        for e in series.entries
        if isinstance(e.extra_info.get("load_before"), (int, float))
        and isinstance(e.extra_info.get("cores"), int)
    ]
    worst = max(busy, default=(0.0, 1))
    if worst[0] <= _BUSY * worst[1]:
        return []
    return [
        f"{series.label}: the machine was busy before the run began (load {number(worst[0])} on {worst[1]} cores). "
        "Intervals cover noise within a run, not a different load in another run: repeat it."
    ]


def _caveats(series: Sequence[Series], pairs: Sequence[Pair]) -> list[str]:
    """What the verdicts leave out."""
    caveats = []
    alone = [
        one.label
        for one in series
        if any(e.kind != "scaling" and len(launches_of(e)) == 1 for e in one.entries)
    ]
    if pairs and alone:
        caveats.append(
            f"{' and '.join(alone)}: measured in one launch. One set of processes is faster than the next by chance, "
            f"and how much is not known: if both are, only differences of {_ALONE_MARGIN:.0%} count as different, "
            f"and intervals are too narrow. Measure with --sittings 5."
        )
    loaded = [pair for pair in pairs if pair.why == _OTHER_LOAD]
    if loaded:
        caveats.append(
            f"{len(loaded)} of {len(pairs)} cases took longer where other programs took over {_OTHERS:.0%} of the "
            "processors more, and how much of the difference is theirs is unknown. Repeat it at an equal load."
        )
    wide = [pair for pair in pairs if pair.why == WIDE]
    if wide:
        caveats.append(
            f"{len(wide)} of {len(pairs)} cases could hide a difference of {ALIKE - 1:.0%} or more: their launches "
            "scatter, see the intervals. Repeat it on a quieter machine, or with more --sittings."
        )
    return caveats


def _labels(paths: Sequence[str]) -> list[str]:
    """The files' names, or their whole paths where names are not unique."""
    stems = [Path(path).stem for path in paths]
    alike = [stem for stem in stems if len({p for p, s in zip(paths, stems, strict=True) if s == stem}) > 1]
    labels = [path if stem in alike else stem for path, stem in zip(paths, stems, strict=True)]
    # The same file twice is allowed: it must compare as no difference.
    return [
        f"{label} ({labels[: place + 1].count(label)})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]


def _pair(base: Series, other: Series, key: Key, ours: Entry, theirs: Entry) -> Pair:
    left, right = by_launch(ours), by_launch(theirs)
    ratio = ratio_of_runs(right, left)
    alone = len(left) == len(right) == 1
    rounds = min(len(ours.round_s), len(theirs.round_s))
    word = verdict(ratio, rounds, _ALONE_MARGIN if alone else MARGIN)
    why = why_not(word, rounds)
    before_others, after_others = _others(ours), _others(theirs)
    if word in ("faster", "slower") and None not in (before_others, after_others):
        # More load makes a run slower by an unknown amount: only a change in the other direction is a
        # difference.
        more = (after_others or 0.0) - (before_others or 0.0)
        if (word == "slower" and more > _OTHERS) or (word == "faster" and more < -_OTHERS):
            word, why = "cannot tell", _OTHER_LOAD
    parts = _parts(ours.extra_info.get("split"), theirs.extra_info.get("split"))
    before, after = typical(left), typical(right)
    cause = _cause(parts, after - before) if word in ("faster", "slower") else ""
    labels = base.label, other.label
    return Pair(
        ours.kind, name(key), *labels, before, after, ratio, word, parts, cause, why, settings=settings(key)
    )


def _others(entry: Entry) -> float | None:
    """The share of the processors that other programs used during the case; None if unknown."""
    samples = entry.extra_info.get("others_share")
    shares = [s for s in samples if isinstance(s, (int, float))] if isinstance(samples, list) else []
    return sum(shares) / len(shares) if shares else None


def _parts(ours: Any, theirs: Any) -> dict[str, float]:
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return {}
    return {
        part: float(theirs[part]) - float(ours[part])
        for part in PARTS
        if isinstance(ours.get(part), (int, float)) and isinstance(theirs.get(part), (int, float))
    }


def _cause(parts: Mapping[str, float], change: float) -> str:
    """The part of the step that changed most in the direction of the change; for exposed time, also why."""
    along = {part: moved if change > 0 else -moved for part, moved in parts.items()}
    part = max(PARTS[:3], key=lambda one: along.get(one, 0.0))
    if not along.get(part, 0.0) > 0:
        return ""
    words = {"compute_s": "compute", "data_wait_s": "waiting for data", "exposed_s": "exposed communication"}
    cause = f"{words[part]} {milliseconds(1e3 * parts[part])}"
    within = max(PARTS[3:], key=lambda one: along.get(one, 0.0))
    if part == "exposed_s" and along.get(within, 0.0) > 0:
        cause += f", by {within.removesuffix('_s')}"
    return cause


def _scaling(series: Series, reference: bool = False) -> list[Scaling]:
    """One row for each set of entries that differ only in the number of ranks."""
    rows: dict[Key, dict[int, float]] = {}
    for key, entry in keys(series).items():
        if entry.kind == "allreduce":
            continue
        rest = tuple(part for part in key if not str(part).endswith((" rank", " ranks")))
        rows.setdefault(rest, {})[int(entry.extra_info["world_size"])] = estimate(entry.round_s).median
    found = []
    for rest, durations in rows.items():
        if len(durations) < 2:
            continue
        durations = dict(sorted(durations.items()))
        alone = durations.get(1)
        # Ranks share the work of a whole training; n ranks do n times the work in a step.
        grows = rest[0] == "step"
        speedup = {} if alone is None else {n: alone / t * (n if grows else 1) for n, t in durations.items()}
        efficiency = {n: gain / n for n, gain in speedup.items()}
        found.append(Scaling(series.label, name(rest), durations, speedup, efficiency, reference))
    return found


def _curves(series: Series) -> list[Curve]:
    found = []
    for entry in series.entries:
        epochs = [e for e in entry.extra_info.get("epochs") or [] if _has_loss(e)]
        if entry.kind == "scaling" and epochs:
            found.append(
                Curve(
                    f"{series.label}, {entry.extra_info['world_size']} ranks",
                    tuple(float(e["elapsed_s"]) for e in epochs),
                    tuple(float(e["loss"]) for e in epochs),
                    tuple(e.get("accuracy") for e in epochs),
                )
            )
    return found


def _has_loss(epoch: object) -> bool:
    return isinstance(epoch, dict) and all(
        isinstance(epoch.get(key), (int, float)) for key in ("elapsed_s", "loss")
    )
