"""How much of the transfer backward could still hide, were gradients sent earlier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.bounds import BACKWARD_SHARE
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.rows import BucketStats


def saved_by_hiding(view: RunView, buckets: Sequence[BucketStats], sent_earlier_ms: float) -> float:
    """What a step would take less at most if so much of the exposed transfers were sent while backward goes on; ms.

    Two things bound it. Only backward can hide communication, and only that of the last step of several that
    accumulate; what of the transfers is not exposed is hidden there already. And where ranks have no core to spare,
    backward takes longer by what a hidden transfer takes of the processor.

    Args:
        sent_earlier_ms: what another layout would send earlier.
    """
    backward = BACKWARD_SHARE * min(
        (
            rank.compute_ms.median / rank.micro_steps
            for rank in view.ranks
            if rank.compute_ms.median is not None
        ),
        default=0.0,
    )
    wire = sum(bucket.times.wire_ms.median or 0.0 for bucket in buckets)
    hidden = max(0.0, wire - view.exposure.typical_ms)
    return min(sent_earlier_ms, max(0.0, backward - hidden)) * (1.0 - _taken(view, wire, hidden))


def _taken(view: RunView, wire_ms: float, hidden_ms: float) -> float:
    """How much longer backward is for each millisecond that it hides, from 0 to 1; 0 where nothing is known of it."""
    if not wire_ms > 0 or not _is_crowded(view):
        return 0.0
    usage = view.usage
    # Gloo's threads are nearly all that a rank has besides the one that computes.
    gloo = float(np.nan_to_num(median((usage.process_cpu - usage.cpu).mean(axis=1)))) / wire_ms
    waits = float(np.nan_to_num(median(usage.run_delay.mean(axis=1))))
    seen = waits / hidden_ms if hidden_ms >= waits > 0 else 0.0
    return min(1.0, max(gloo, seen, 0.0))


def _is_crowded(view: RunView) -> bool:
    """Whether the ranks of a host compute on all of its cores."""
    for ranks in by_host(view.sidecars, (rank.rank for rank in view.ranks)).values():
        threads = sum(max(1, view.sidecars[rank].torch_threads) for rank in ranks)
        if 0 < host_cores(view.sidecars, ranks) <= threads:
            return True
    return False
