"""Ranks that never began: Lightning prints a line for each of them, and waits for all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from pyddpdiag.messages.explain import Explanation
from pyddpdiag.messages.message import Role

_MEMBER = re.compile(r"\bGLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<size>\d+)")
_ALL_THERE = re.compile(r"\bAll distributed processes registered\b")


def missing_of(texts: Iterable[str]) -> Explanation | None:
    """The ranks of a job that its log does not show to have begun, though it shows others; None: none is missing.

    A log of one rank alone says nothing of the others.
    """
    for text in texts:
        begun = Counter((int(one["rank"]), int(one["size"])) for one in _MEMBER.finditer(text))
        size = max((size for _, size in begun), default=0)
        ranks = {rank for rank, of in begun if of == size}
        if begun.total() < 2 or len(ranks) >= size or _ALL_THERE.search(text):
            continue
        missing = ", ".join(str(rank) for rank in range(size) if rank not in ranks)
        line = next(one.group() for one in _MEMBER.finditer(text) if int(one["size"]) == size)
        if len(ranks) == 1:
            cause = (
                f"{begun.total()} processes began, each as rank {min(ranks)} of {size}: none knows who it is."
            )
        else:
            cause = f"{len(ranks)} of {size} ranks began, and wait for the others."
        return Explanation(
            "ranks_missing",
            cause,
            "Start the script with srun, with as many tasks on each node as the Trainer has devices "
            "(--ntasks-per-node), and as many nodes as its num_nodes.",
            Role.WAITED,
            lines=("srun --ntasks-per-node=RANKS-PER-NODE python SCRIPT.py",),
            line=line,
            facts={"missing": missing},
        )
    return None
