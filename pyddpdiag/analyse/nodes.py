"""The machines of a run as their `pyddpdiag run` noted them: which ranks each had, and when it was last heard of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyddpdiag.model.node import NodeNote
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.run import Run


@dataclass(frozen=True)
class Node:
    """One machine's `pyddpdiag run`.

    Attributes:
        note: its last sign of life.
        ranks: those below it that have a trace here.
        behind_s: how long before the newest sign of all of them it was last heard of; on the common clock where its
            ranks tie its clock to the others', by the wall clocks otherwise.
        age_s: how long before the notes were read that was.
    """

    note: NodeNote
    ranks: tuple[int, ...]
    behind_s: float
    age_s: float

    @property
    def ended(self) -> bool:
        """Whether it noted the end of its command."""
        return self.note.exit_code is not None


def nodes(run: Run, sidecars: Mapping[int, Sidecar], clocks: Sequence[ClockOffset]) -> tuple[Node, ...]:
    """All machines that left a note, by their lowest rank; those without a rank here come last."""
    notes = run.nodes.notes
    of: dict[str, list[int]] = {}
    offset_ns: dict[str, int] = {}  # of a machine's clock to the common one
    with_clock = Counter(note.clock for note in notes)
    alone = {note.clock: note.node for note in notes if with_clock[note.clock] == 1}
    for trace, clock in zip(run.ranks, clocks, strict=True):
        launch = sidecars[trace.rank].launch
        # A rank that was lost as it began has not said yet who started it, but its clock is its machine's.
        node = alone.get(trace.header.clock_identity, "") if launch is None else launch.node
        if node:
            of.setdefault(node, []).append(trace.rank)
        offset_ns.setdefault(trace.header.clock_identity, clock.offset_ns)
    first = run.ranks[0].header
    # By the wall clock of the lowest rank's machine.
    zero_s = (first.wall_ns - first.monotonic_ns) / 1e9
    at_s = [
        (note.at_ns + offset_ns[note.clock]) / 1e9 + zero_s if note.clock in offset_ns else note.at_s
        for note in notes
    ]
    newest_s = max(at_s, default=0.0)
    since_s = max(0.0, run.nodes.read_s - newest_s)
    found = [
        Node(note, tuple(of.get(note.node, ())), newest_s - own_s, since_s + newest_s - own_s)
        for note, own_s in zip(notes, at_s, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (not one.ranks, one.ranks[:1], one.note.node)))
