"""Several ranks save into the same file: at the same time, which damages it, or one after the other, for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.saves import shared_files
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, ranks, times


def _look(view: RunView) -> Iterator[Finding]:
    found = shared_files(view.sidecars, {header.rank: header.clock_identity for header in view.headers})
    if not found:
        return
    worst = found[0]
    at = f" at {worst.where}" if worst.where else ""
    more = "" if len(found) == 1 else f"; and into {count(len(found) - 1, 'more file')} likewise"
    if worst.at_once:
        result = (
            f"{worst.at_once} of {times(worst.known)} while another rank did: the file may hold a mixture of what they "
            "wrote, and not load"
        )
    else:
        result = (
            f"{times(worst.times)} in all, one after the other: the last one replaces what the others wrote"
        )
    yield Finding(
        kind="same_checkpoint",
        severity="warning" if worst.at_once else "note",
        message=f"{ranks(worst.ranks)} save into the same file {worst.name}{at}, {result}{more}.",
        confidence="high",
        where=worst.where or None,
        cost_ms=None,  # of time it costs little; it may cost what the run has learnt
        evidence={
            "ranks": len(worst.ranks),
            "saves": worst.times,
            "saves_at_once": worst.at_once,
            "saves_with_times": worst.known,
            "files": len(found),
        },
        change_mind="The ranks hold a lock of their own while they save.",
        advice="Save on one rank: if torch.distributed.get_rank() == 0: torch.save(...). DDP keeps the weights of all "
        "ranks equal. torch.distributed.barrier() behind it, before another rank loads the file. What differs between "
        'ranks goes into a file of each: f"state_{rank}.pt".',
    )


CHECK = Check(("same_checkpoint",), _look, rests_on="records")
