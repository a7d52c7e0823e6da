"""A machine was lost, and not only its ranks: its pyddpdiag run, which outlives them, fell silent as well."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from pyddpdiag.analyse.bounds import LOST_S
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.nodes import Node
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.node import BEAT_S
from pyddpdiag.model.words import ranks, seconds


def _look(view: RunView) -> Iterator[Finding]:
    for node in view.nodes:
        if not _is_lost(view, node):
            continue
        own, host = [rank for rank in view.ranks if rank.rank in node.ranks], node.note.host
        last = max((rank.last_step for rank in own if rank.last_step is not None), default=None)
        over = all(other.ended for other in view.nodes if other is not node)
        yield Finding(
            kind="node_lost",
            severity="error",
            message=f"{host or 'a machine'}, on which {ranks(node.ranks)} ran, was lost: its pyddpdiag run was last "
            f"heard of at {_time(node)}, {seconds(node.behind_s)} before the others, and did not note an end.",
            confidence="high" if over else "medium",
            rank=node.ranks[0] if len(node.ranks) == 1 else None,
            since_step=last,
            evidence={
                "host": host,
                "ranks": len(node.ranks),
                "behind_s": round(node.behind_s, 3),
                "others_ended": over,
                "last_step": last,
            },
            change_mind="Somebody killed pyddpdiag run together with its ranks, its folder could not be written any "
            "more, or was copied before the others'.",
            advice=f"Look at {host or 'that machine'}: whether it is up, whether the network reaches it, and what its "
            "system's log and the scheduler say of that time.",
        )


def _is_lost(view: RunView, node: Node) -> bool:
    """Whether it fell silent in the middle, while others went on to say something."""
    others = [other for other in view.nodes if other is not node]
    if node.ended or not node.ranks or not others:
        return False
    own = [rank for rank in view.ranks if rank.rank in node.ranks]
    if any(rank.closed or rank.ended for rank in own):
        return False
    # Nobody goes on for long without these ranks: where others did, this folder was only copied before.
    steps = [rank.last_step for rank in view.ranks if rank.last_step is not None]
    here = [rank.last_step for rank in own if rank.last_step is not None]
    if steps and here and max(steps) > max(here) + 1:
        return False
    if node.behind_s > LOST_S:
        return True
    # The others ended of it, perhaps at once. A machine that is only late with its last word has time for that, and one
    # that runs has noted something since.
    over = all(other.ended for other in others)
    return over and node.behind_s > 2 * BEAT_S and node.age_s > LOST_S


def _time(node: Node) -> str:
    return datetime.fromtimestamp(node.note.at_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


CHECK = Check(("node_lost",), _look, rests_on="records")
