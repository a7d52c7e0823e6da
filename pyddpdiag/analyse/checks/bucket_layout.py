"""Communication is exposed, and the way in which gradients are put into buckets explains most of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from pyddpdiag.analyse.assignment import FINEST, MIB, Parameter, assignment
from pyddpdiag.analyse.bounds import (
    ALL_LATENCY_BYTES,
    HALVED,
    LATENCY_PART,
    LEAST_MS,
    LOOPBACK_MS_PER_BYTE,
    MATTERS_SHARE,
    MOST,
    PIECES,
    TWICE,
    least_ms,
)
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.hiding import saved_by_hiding
from pyddpdiag.analyse.links.other_traffic import single_flow
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wire_fit import HALF, fit_wire, lasting_buckets, most_latency_ms
from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.words import count, milliseconds, percent, size

_ASSUMED: Final = " if the link carries 1 Gbit/s"


def _look(view: RunView) -> Iterator[Finding]:
    if not view.exposure.is_found or not view.judged.can_judge:
        return
    if single_flow(view.other_traffic):
        # How long transfers take, and what another layout saves, is then that program's doing.
        return
    buckets = lasting_buckets(view.buckets)
    if len({bucket.group for bucket in buckets}) == 1:
        yield from list(_small(view, buckets)) or _last(view, buckets)


def _small(view: RunView, buckets: Sequence[BucketStats]) -> Iterator[Finding]:
    fit = fit_wire(buckets, _most_ms_per_byte(view), most_latency_ms(view.links))
    amount, number = sum(bucket.bytes for bucket in buckets), len(buckets)
    if fit is None or fit.latency_ms <= 0:
        return
    wanted = amount / 2
    if fit.ms_per_byte > 0:
        wanted = min(wanted, (1 / LATENCY_PART - 1) * fit.latency_ms / fit.ms_per_byte)
    cap, better = _joined(view, buckets, wanted)
    saved_part = 1 - fit.wire_ms(amount, better) / fit.wire_ms(amount, number)
    if better >= number or saved_part < MOST or saved_part * view.exposure.cost_ms < LEAST_MS:
        return
    exposed = view.exposure.cost_ms
    latency_part = number * fit.latency_ms / fit.wire_ms(amount, number)
    provided = _ASSUMED if fit.assumed else ""
    yield Finding(
        kind="small_buckets",
        severity="warning",
        message=f"the buckets are small: {percent(latency_part)} of the transfer time of {count(number, 'bucket')} "
        f"({size(amount // number)} on average) is latency, {milliseconds(fit.latency_ms)} each{provided}, "
        f"and {view.exposure.of_step} are exposed.",
        confidence="low" if fit.assumed else _confidence(view),
        since_step=min(bucket.first_step for bucket in buckets),
        # What is exposed is the end of a queue: it shrinks as the whole queue does.
        cost_ms=saved_part * exposed,
        evidence={
            "buckets": number,
            "bytes": amount,
            "latency_ms": fit.latency_ms,
            "bandwidth_assumed": "yes" if fit.assumed else "no",
            "bandwidth_gbps": 1e-6 / fit.ms_per_byte if fit.ms_per_byte > 0 else None,
            "latency_part": latency_part,
            "exposed_ms": exposed,
            "better_buckets": better,
            "bucket_cap_mb": cap,
        },
        change_mind="The link is slower than that: then fewer buckets would not help."
        if fit.assumed
        else "Small buckets only come late, or wait for another program: then their time is not latency.",
        advice=_with_cap(view, cap),
    )


def _joined(view: RunView, buckets: Sequence[BucketStats], wanted: float) -> tuple[float, int]:
    """The cap for buckets of so many bytes, and how many it makes: no cap joins what is of several modules."""
    known, cap = assignment(view.names, buckets), _cap(wanted)
    if known is None:
        return cap, ceil(sum(bucket.bytes for bucket in buckets) / wanted)
    # In a single bucket nothing would be sent before backward ends.
    made = ((each, known.buckets(each)) for each in (cap, _cap(wanted / 2), _cap(wanted / 4)))
    return next(((each, number) for each, number in made if number > 1), (cap, 1))


def _most_ms_per_byte(view: RunView) -> float | None:
    """What a bucket's byte takes on the links at most: in the time that they are busy is their latency, too."""
    largest = max((link.bytes or 0 for link in view.links), default=0)
    busy = [
        link.busy_ms_per_mb
        for link in view.links
        if link.busy_ms_per_mb is not None and (link.bytes or 0) >= MATTERS_SHARE * largest > 0
    ]
    ranks = len({link.rank for link in view.links})
    if not busy or ranks < 2:
        return None
    # In a ring each rank sends 2 (n - 1) / n of a bucket's bytes.
    most = max(busy) / 1e6 * 2 * (ranks - 1) / ranks
    return min(most, LOOPBACK_MS_PER_BYTE) if view.on_loopback else most


def _last(view: RunView, buckets: Sequence[BucketStats]) -> Iterator[Finding]:
    """The only bucket, or the last one if it is the largest by far: nothing of it is sent before backward ends."""
    name, exposed = _last_bucket(view), view.exposure.cost_ms
    found = next((bucket for bucket in buckets if bucket.bucket == name), None)
    amount, single = sum(bucket.bytes for bucket in buckets), len(buckets) == 1
    if found is None or found.bytes < MOST * amount or found.bytes <= ALL_LATENCY_BYTES:
        return
    if any(found.bytes < TWICE * other.bytes for other in buckets if other is not found):
        return
    wire = found.times.wire_ms.median or 0.0
    split = _split(view, buckets, found, PIECES if single else 2 * PIECES)
    giant = split.giant if split.part < HALVED else None
    alone = giant is not None or len(found.parameters) == 1
    if alone:
        # No cap helps where one parameter is nearly all: it can only be made smaller.
        saved = min(exposed, HALVED * wire)
    else:
        saved = saved_by_hiding(view, buckets, split.part * min(exposed, wire))
        if (most := _most_ms_per_byte(view)) is not None:
            # What is more than the bytes take is latency, of which each bucket has as much.
            saved = min(saved, split.part * found.bytes * most)
    # Of a last parameter that no layout divides the advice rests on no calculation of another one.
    least = LEAST_MS if alone and not single else least_ms(view.exposure.step_ms)
    if wire < max(TWICE * LEAST_MS, MOST * exposed) or saved < least:
        return
    if single and (len(found.parameters) == 1 or (not alone and split.buckets < 2)):
        return
    what = f"parameter '{found.parameters[0]}' alone" if alone else count(len(found.parameters), "parameter")
    if giant is not None and len(found.parameters) > 1:
        what = f"parameter '{giant.name}' alone is {size(giant.bytes)} of {size(found.bytes)}"
    which = f"all gradients are in one bucket: {size(found.bytes)}"
    if not single:
        which = f"the last bucket is the largest: {size(found.bytes)} of {size(amount)}"
    gain = f"{split.buckets} buckets would save up to {milliseconds(saved)}"
    said = (
        f"{which} ({what}) can only be sent when backward ends and take {milliseconds(wire)}, and "
        f"{view.exposure.of_step} are exposed; {'DDP does not split a parameter' if alone else gain}."
    )
    yield Finding(
        kind="single_bucket" if single else "large_last_bucket",
        severity="warning",
        message=said,
        confidence=_confidence(view),
        bucket=found.bucket,
        parameter=giant.name if giant else found.parameters[0] if found.parameters and not single else None,
        since_step=found.first_step,
        cost_ms=saved,
        evidence={
            "bytes": found.bytes,
            "all_bytes": amount,
            "parameter_bytes": giant.bytes if giant else None,
            "wire_ms": wire,
            "exposed_ms": exposed,
            "saved_ms": saved,
            "bucket_cap_mb": None if alone else split.cap_mb,
        },
        change_mind="The order in which gradients become ready changes from step to step, or one parameter is most of "
        "the model: DDP does not split it.",
        advice=_for_giant(view, found, giant) if alone else _with_cap(view, split.cap_mb),
    )


def _last_bucket(view: RunView) -> str | None:
    """The bucket that is usually the last of a step; None if there is none."""
    all_reduces = view.occurrences
    step = all_reduces.step
    # By group, and in each by sequence: the last of a step is followed by another step, or another group.
    last = np.ones(len(step), np.bool_)
    last[:-1] = (step[1:] != step[:-1]) | (all_reduces.group[1:] != all_reduces.group[:-1])
    references, counts = np.unique(
        all_reduces.reference[last & np.isin(step, view.judged.step)], return_counts=True
    )
    return view.names.bucket(int(references[counts.argmax()])) if len(references) else None


def _confidence(view: RunView) -> Confidence:
    # That another layout helps is a calculation and was not seen.
    return "low" if view.exposure.confidence == "low" else "medium"


def _cap(amount: float) -> float:
    """A cap in DDP's megabytes, of two digits."""
    return float(f"{max(amount / MIB, 0.01):.2g}")


@dataclass(frozen=True)
class _Split:
    """What another cap makes of the largest bucket.

    Attributes:
        cap_mb: the cap.
        part: of its bytes, what could be sent earlier.
        buckets: how many there would be.
        giant: the parameter that is most of it, if the sizes are known and there is one.
    """

    cap_mb: float
    part: float
    buckets: int
    giant: Parameter | None = None


def _split(view: RunView, buckets: Sequence[BucketStats], found: BucketStats, most: int) -> _Split:
    """The best split of a bucket into its parameters, in so many buckets of a layout; DDP splits none of them."""
    known = assignment(view.names, [bucket for bucket in buckets if bucket.module == found.module])
    if known is None or found.bytes <= ALL_LATENCY_BYTES:
        # Few bytes take no time.
        pieces = min(PIECES, len(found.parameters) or PIECES) if found.bytes > ALL_LATENCY_BYTES else 1
        amount = sum(bucket.bytes for bucket in buckets)
        return _Split(_cap(max(found.bytes / PIECES, amount / FINEST)), 1 - 1 / pieces, pieces)
    cap, left = known.best_split((_cap(known.bytes / pieces) for pieces in range(2, FINEST + 1)), most)
    own = known.of(found)
    total = sum(each.bytes for each in own)
    part = max(0.0, 1 - left / total)
    return _Split(cap, part, known.buckets(cap) if cap else 1, _giant(own))


def _giant(parameters: Sequence[Parameter]) -> Parameter | None:
    largest = max(parameters, key=lambda each: each.bytes)
    return largest if largest.bytes > MOST * sum(each.bytes for each in parameters) else None


def _with_cap(view: RunView, cap_mb: float) -> str:
    # The line to paste says all of it; without one, the option or argument does.
    line = view.advice.line("--bucket-cap-mb", f"{cap_mb:g}")
    return f"Make buckets of {cap_mb:g} MiB:{line}" if line else view.advice.bucket_cap(cap_mb)


def _for_giant(view: RunView, bucket: BucketStats, giant: Parameter | None) -> str:
    """What helps where no cap does. `giant`: None where nothing is known of the parameter but that it is alone."""
    sparse = view.advice.sparse() if giant is not None and giant.table else ""
    ways, line = [sparse or "use it later in forward"], ""
    if view.on_loopback and not bucket.shared_memory and view.advice.fits("--shared-memory"):
        ways.append(f"average in shared memory: {view.advice.share_memory()}".rstrip(","))
        line = view.advice.line("--shared-memory", "auto")
    if bucket.dtype not in HALF and view.advice.fits("--compress"):
        ways.append(f"send it in 16 bits: {view.advice.compress()}".rstrip(","))
        line = line or view.advice.line("--compress", "bf16")
    return f"DDP does not split a parameter: {', or '.join(ways)}.{line}"


CHECK = Check(("single_bucket", "small_buckets", "large_last_bucket"), _look, per_group=True)
