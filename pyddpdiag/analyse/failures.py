"""Findings about correctness: operations that failed, lost ranks, ranks that did different things."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.model import Finding, Gap, Mismatch, OpenOperation, OperationError, RankStats
from pyddpdiag.model.words import count, listed
from pyddpdiag.trace.run import Run


def find_failures(
    run: Run,
    ranks: Sequence[RankStats],
    errors: Sequence[OperationError],
    open_operations: Sequence[OpenOperation],
    gaps: Sequence[Gap],
    mismatches: Sequence[Mismatch],
) -> list[Finding]:
    """All findings about correctness."""
    found = _mismatched(mismatches) + _world_sizes(run)
    lost = _lost(ranks, errors)
    found += lost + _failed(errors, len(lost) > 0) + _uneven_ends(ranks, gaps)
    if not lost:
        found += _open(ranks, open_operations)
    return found


def _failed(errors: Sequence[OperationError], has_lost: bool) -> list[Finding]:
    if not errors:
        return []
    first = min(errors, key=lambda error: (error.step, error.sequence))
    text = f": {first.text}" if first.text else ""
    return [
        Finding(
            kind="operation_failed",
            severity="error",
            message=f"{count(len(errors), 'operation')} failed; the earliest on rank {first.rank} in step "
            f"{first.step} "
            f"({first.kind} {first.what}){text}",
            confidence="certain",
            rank=first.rank,
            bucket=first.what if first.kind == "bucket" else None,
            evidence={"failed": len(errors), "step": first.step, "text": first.text},
            change_mind="Nothing: the records say so. Who caused it is another question: a rank that "
            "reports an error "
            "often only lost its neighbour.",
            advice="" if has_lost else "Look at the rank that reports no error first.",
        )
    ]


def _lost(ranks: Sequence[RankStats], errors: Sequence[OperationError]) -> list[Finding]:
    """Ranks that stopped without a word while the others went on, failed or closed."""
    blamed = {error.rank for error in errors}
    silent = [rank for rank in ranks if not rank.closed and rank.rank not in blamed]
    others = [rank for rank in ranks if rank.closed or rank.rank in blamed]
    if not silent or not others:
        return []
    names = listed(rank.rank for rank in silent)
    last = max((rank.last_step for rank in silent if rank.last_step is not None), default=None)
    where = f" (last seen in step {last})" if last is not None else ""
    after = f"{count(len(blamed), 'other rank')} then failed" if blamed else "the others closed theirs"
    return [
        Finding(
            kind="rank_lost",
            severity="error",
            message=f"{'rank' if len(silent) == 1 else 'ranks'} {names} stopped without closing the "
            f"trace{where}; {after}.",
            confidence="high" if blamed else "medium",
            rank=silent[0].rank if len(silent) == 1 else None,
            evidence={"last_step": last, "others_failed": len(blamed)},
            change_mind="The process still runs, or its script ends without recorder.close().",
            advice="Look at this rank's own output, its memory use and the system's log of killed processes.",
        )
    ]


def _mismatched(mismatches: Sequence[Mismatch]) -> list[Finding]:
    found = []
    for mismatch in mismatches:
        told = listed((f"rank {rank}: {value}" for rank, value in mismatch.values.items()), 4)
        found.append(
            Finding(
                kind="mismatched_all_reduce",
                severity="error",
                message=f"the ranks reduced different things: {mismatch.field} differs in "
                f"{count(mismatch.count, 'all-reduce')}, first in step {mismatch.step} ({told}). The sums "
                "are wrong.",
                confidence="medium" if mismatch.field == "bucket" else "certain",
                evidence={
                    "all_reduces": mismatch.count,
                    "step": mismatch.step,
                    "sequence": mismatch.sequence,
                },
                change_mind="The traces are of different runs."
                if mismatch.field != "bucket"
                else "The modules were attached in another order on one rank, or its trace lost records.",
                advice="Build the same model, in the same order, with the same dtype and bucket_cap_mb on "
                "every rank.",
            )
        )
    return found


def _world_sizes(run: Run) -> list[Finding]:
    sizes = sorted({trace.header.world_size for trace in run.ranks})
    if len(sizes) < 2:
        return []
    told = listed((f"rank {t.rank}: {t.header.world_size}" for t in run.ranks), 4)
    return [
        Finding(
            kind="world_size_differs",
            severity="error",
            message=f"the ranks disagree about the world size ({told}).",
            confidence="certain",
            evidence={"smallest": sizes[0], "largest": sizes[-1]},
            change_mind="The traces are of different runs.",
            advice="Start every rank with the same world size: the first collective hangs otherwise.",
        )
    ]


def _uneven_ends(ranks: Sequence[RankStats], gaps: Sequence[Gap]) -> list[Finding]:
    """Closed ranks that made fewer all-reduces than the others, though no record was lost."""
    whole = {rank.rank for rank in ranks if rank.closed and not (rank.dropped or rank.torn or rank.malformed)}
    behind = [gap for gap in gaps if gap.after and gap.rank in whole]
    if not behind:
        return []
    worst = max(behind, key=lambda gap: gap.after)
    return [
        Finding(
            kind="fewer_all_reduces",
            severity="error",
            message=f"rank {worst.rank} made {count(worst.after, 'bucket all-reduce')} fewer in group "
            f"{worst.group} than "
            "the others, though it closed its trace in good order. Results may be silently wrong.",
            confidence="high",
            rank=worst.rank,
            evidence={"fewer": worst.after, "ranks_behind": len({gap.rank for gap in behind})},
            change_mind="The ranks have different numbers of batches and train under DDP's Join.",
            advice="Give every rank the same number of batches, and the same branches that skip backward.",
        )
    ]


def _open(ranks: Sequence[RankStats], operations: Sequence[OpenOperation]) -> list[Finding]:
    if not operations:
        return []
    still = {rank.rank for rank in ranks if not rank.closed}
    waiting = sorted({operation.rank for operation in operations})
    longest = max(operations, key=lambda operation: operation.open_ms)
    running = any(operation.rank in still for operation in operations)
    return [
        Finding(
            kind="operations_in_flight",
            severity="note" if running else "warning",
            message=f"{count(len(operations), 'operation')} had begun and not ended on rank "
            f"{listed(waiting)}; the longest, "
            f"{longest.kind} {longest.what} of step {longest.step}, for at least {longest.open_ms:.0f} ms.",
            confidence="certain",
            rank=waiting[0] if len(waiting) == 1 else None,
            bucket=longest.what if longest.kind == "bucket" else None,
            evidence={"operations": len(operations), "open_ms": longest.open_ms},
            change_mind="The run goes on: read it again." if running else "",
        )
    ]
