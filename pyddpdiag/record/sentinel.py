"""The sentinel: after every n-th backward pass the ranks compare what they reduced and report differences.

A sum is silently wrong when one rank skips an all-reduce, calls another one of the same size, or puts a NaN in.
Nothing fails then, so it goes unnoticed. Every rank takes a fingerprint of each bucket in a watched pass. After
the pass the ranks exchange them over a separate process group, so that a rank that is one all-reduce behind
cannot disturb the check, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import GradientError, UsageError
from pyddpdiag.record.ddp_modules import Description

Mode = Literal["off", "warn", "raise"]
MODES: Final = ("off", "warn", "raise")
TIMEOUT: Final = timedelta(seconds=60)

Fingerprints = npt.NDArray[np.void]
"""One rank's buckets of one pass, of dtype `FINGERPRINT`, by sequence number."""

FINGERPRINT: Final = np.dtype(
    [
        ("sequence", "u8"),
        ("collectives", "u8"),
        ("identity", "u8"),
        ("bytes", "u8"),
        ("checksum", "u8"),
        ("non_finite", "u8"),
        ("first_non_finite", "u8"),
        ("weights", "u8"),
        ("step", "u4"),
        ("bucket", "u4"),
        ("parameter", "u4"),
        ("type", "u4"),
    ]
)
"""`Fingerprint` in csrc/torch/probe/gradient_watch.hpp, field by field."""

NO_PARAMETER: Final = 2**32 - 1
# What must agree in an all-reduce, most informative first, in the words of the message.
_MUST_AGREE: Final = {
    "step": "step",
    "sequence": "number of the all-reduce in its group",
    "identity": "parameters of the bucket",
    "bytes": "bytes",
    "type": "dtype or operation",
}


class Sentinel:
    """Compares the ranks' fingerprints of one recorder.

    Args:
        rank: this rank, for messages.
        mode: "warn" or "raise".
    """

    def __init__(self, rank: int, mode: Mode) -> None:
        self._rank = rank
        self._mode = mode
        self._groups: dict[str, dist.ProcessGroup] = {}
        self._modules: dict[int, tuple[dist.ProcessGroup, list[int], list[str]]] = {}
        self._gone = False

    def watch(self, module: int, description: Description) -> None:
        """Prepares for a DDP module. All ranks of its group call this together.

        Raises:
            GradientError: not all ranks took part; the sentinel is on only for some of them.
        """
        group = description.group
        ranks = dist.get_process_group_ranks(group)
        if group.group_name not in self._groups:
            try:
                self._groups[group.group_name] = dist.new_group(
                    ranks,
                    timeout=TIMEOUT,
                    backend="gloo",
                    use_local_synchronization=True,
                    group_desc=_native.OWN_GROUP,
                )
            except RuntimeError as error:
                raise GradientError(
                    f"rank {self._rank}: the sentinel cannot reach the other ranks of {description.name}: {error}",
                    hint="give every rank's Recorder the same `sentinel`.",
                ) from error
        self._modules[module] = (self._groups[group.group_name], ranks, description.names)

    def check(self, module: int, ours: bytes) -> None:
        """Exchanges and compares the fingerprints of the pass that has just ended.

        Raises:
            GradientError: something does not agree, on every rank alike (mode "raise").
        """
        known = self._modules.get(module)
        if known is None or self._gone:
            return
        group, ranks, names = known
        try:
            theirs = _exchange(group, np.frombuffer(ours, FINGERPRINT))
        except RuntimeError as error:
            # A rank is lost or stuck, or has no more batches. In any case the next check would wait again.
            self._gone = True
            self._tell(
                [
                    f"not all ranks came to the check within {TIMEOUT.seconds} s ({error}). One of them is lost, "
                    "stuck, or makes fewer backward passes than the others. The sentinel is off from here on."
                ]
            )
            return
        found = compare(dict(zip(ranks, theirs, strict=True)), names)
        if found:
            self._tell(found)

    def _tell(self, found: Sequence[str]) -> None:
        more = f"\n  and {len(found) - 8} more" if len(found) > 8 else ""
        message = (
            f"rank {self._rank}: the sentinel found wrong gradients:\n  " + "\n  ".join(found[:8]) + more
        )
        if self._mode == "raise":
            raise GradientError(
                message,
                hint="the gradients of this step are wrong: do not take the optimizer's step with them. "
                "`pyddpdiag help sentinel` explains each line.",
            )
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def compare(theirs: dict[int, Fingerprints], names: Sequence[str]) -> list[str]:
    """What does not agree, one line each; ranks with the same input get the same lines.

    Args:
        theirs: the fingerprints of one backward pass by rank; empty for a rank whose recorder is paused.
        names: of the module's parameters.
    """
    marked = {rank: marks for rank, marks in theirs.items() if len(marks)}
    found = [line for rank, marks in marked.items() for line in _non_finite(rank, marks, names)]
    if len(marked) < 2:
        return found
    counts = {rank: len(marks) for rank, marks in marked.items()}
    if len(set(counts.values())) > 1:
        found.append(f"the ranks reduced different numbers of buckets: {_by_value(counts)}")
    spoiled = {int(mark["bucket"]) for marks in marked.values() for mark in marks[marks["non_finite"] > 0]}
    for place in range(min(counts.values())):
        line = _one_all_reduce({rank: marks[place] for rank, marks in marked.items()}, spoiled)
        if line:
            found.append(line)
    return found if found else _weights(marked)


def _one_all_reduce(marks: dict[int, Any], spoiled: set[int]) -> str | None:
    """What does not agree in one all-reduce."""
    any_mark = next(iter(marks.values()))
    where = f"bucket {int(any_mark['bucket'])} of step {int(any_mark['step'])}"
    for field, words in _MUST_AGREE.items():
        values = {rank: int(mark[field]) for rank, mark in marks.items()}
        if len(set(values.values())) > 1:
            return (
                f"{where}: the ranks reduced different things together; {words} differs: {_by_value(values)}"
            )
    sums = {rank: int(mark["checksum"]) for rank, mark in marks.items()}
    if len(set(sums.values())) < 2 or 0 in sums.values() or int(any_mark["bucket"]) in spoiled:
        return None
    return f"{where}: the ranks hold different sums: {_by_value(sums, hexadecimal=True)}.{_behind(marks)}"


def _weights(theirs: dict[int, Fingerprints]) -> list[str]:
    """The first bucket of whose parameters the ranks have other weights, though they agree on all else."""
    for marks in zip(*theirs.values(), strict=True):
        by_rank = {rank: int(mark["weights"]) for rank, mark in zip(theirs, marks, strict=True)}
        if len(set(by_rank.values())) > 1 and 0 not in by_rank.values():
            return [
                f"bucket {int(marks[0]['bucket'])} of step {int(marks[0]['step'])}: the ranks hold different weights: "
                f"{_by_value(by_rank, hexadecimal=True)}. One of them changed its parameters or its optimizer's "
                "settings, or loaded a checkpoint alone."
            ]
    return []


def _behind(marks: dict[int, Any]) -> str:
    """Which ranks made a different number of collectives: the likely cause of different sums."""
    begun = {rank: int(mark["collectives"]) for rank, mark in marks.items()}
    if len(set(begun.values())) < 2:
        return (
            " All made the same number of collectives before it, so one of them called another collective, or its "
            "memory was written to meanwhile."
        )
    return (
        f" They had begun different numbers of collectives in this group: {_by_value(begun)}; one "
        "skipped a call, or called in another order."
    )


def _non_finite(rank: int, marks: Fingerprints, names: Sequence[str]) -> Iterable[str]:
    for mark in marks[marks["non_finite"] > 0]:
        index = int(mark["parameter"])
        where = f"'{names[index]}'" if index < len(names) else "a parameter"
        yield (
            f"rank {rank} put {int(mark['non_finite'])} non-finite values into bucket {int(mark['bucket'])} of step "
            f"{int(mark['step'])}, the first in {where}"
        )


def _by_value(values: dict[int, int], *, hexadecimal: bool = False) -> str:
    """Such as "5 on ranks 0, 2; 4 on rank 1"."""
    ranks: dict[int, list[int]] = {}
    for rank, value in sorted(values.items()):
        ranks.setdefault(value, []).append(rank)
    most_first = sorted(ranks.items(), key=lambda entry: (-len(entry[1]), entry[1]))
    return "; ".join(
        f"{f'{value:016x}' if hexadecimal else value} on rank{'s' if len(who) > 1 else ''} "
        + ", ".join(map(str, who[:8]))
        + (" and others" if len(who) > 8 else "")
        for value, who in most_first[:4]
    )


def _exchange(group: dist.ProcessGroup, ours: Fingerprints) -> list[Fingerprints]:
    """Every rank's fingerprints, by their rank in the group."""
    size = group.size()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([len(ours)]), group=group)
    most = max(int(count) for count in counts)
    if most == 0:
        return [ours] * size
    padded = np.zeros(most, FINGERPRINT)
    padded[: len(ours)] = ours
    gathered = [torch.zeros(most * FINGERPRINT.itemsize, dtype=torch.uint8) for _ in range(size)]
    dist.all_gather(gathered, torch.from_numpy(padded.view(np.uint8)), group=group)
    return [
        blob.numpy().view(FINGERPRINT)[: int(count)] for blob, count in zip(gathered, counts, strict=True)
    ]


def require_mode(mode: str) -> None:
    """Refuses an unknown mode.

    Raises:
        UsageError: it is none of `MODES`.
    """
    if mode not in MODES:
        raise UsageError(f"sentinel must be one of {', '.join(map(repr, MODES))}, not {mode!r}.")
