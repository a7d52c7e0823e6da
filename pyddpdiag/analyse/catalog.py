"""All checks, in the order in which the report lists findings of equal weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pyddpdiag.analyse.check import Check, Explained, Family, Role
from pyddpdiag.analyse.checks import (
    bucket_layout,
    buffer_broadcast,
    collective_per_step,
    collector_pauses,
    core_contention,
    cpu_quota,
    data_wait,
    different_weights,
    episodic_rank,
    epoch_not_set,
    exposed_communication,
    fewer_all_reduces,
    flapping_link,
    full_evaluation,
    gradients,
    high_latency,
    interface_order,
    interrupted,
    late_rank,
    left_in_eval,
    loopback,
    low_gpu_use,
    mismatched_all_reduce,
    missing_no_sync,
    needless_unused_search,
    node_lost,
    operation_failed,
    operations_in_flight,
    other_collectives,
    oversubscribed_threads,
    packet_loss,
    pause,
    rank_alone,
    rank_lost,
    rank_stopped,
    same_checkpoint,
    same_data,
    settings_differ,
    slow_link,
    slower_steps,
    stuck,
    uneven_ranks,
    unreduced_parameters,
    world_size_differs,
    wrong_interface,
)
from pyddpdiag.analyse.group_view import members
from pyddpdiag.analyse.partial import may_look, weakened
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding, words

CHECKS: Final[tuple[Check, ...]] = (
    interrupted.CHECK,
    # The rank that others wait for comes before what the others report.
    node_lost.CHECK,
    rank_lost.CHECK,
    rank_stopped.CHECK,
    stuck.CHECK,
    operation_failed.CHECK,
    mismatched_all_reduce.CHECK,
    world_size_differs.CHECK,
    gradients.CHECK,
    unreduced_parameters.CHECK,
    different_weights.CHECK,
    same_data.CHECK,
    fewer_all_reduces.CHECK,
    rank_alone.CHECK,
    late_rank.CHECK,
    episodic_rank.CHECK,
    oversubscribed_threads.CHECK,
    cpu_quota.CHECK,
    core_contention.CHECK,
    slower_steps.CHECK,
    data_wait.CHECK,
    full_evaluation.CHECK,
    pause.CHECK,
    collector_pauses.CHECK,
    interface_order.CHECK,
    flapping_link.CHECK,
    packet_loss.CHECK,
    high_latency.CHECK,
    slow_link.CHECK,
    wrong_interface.CHECK,
    missing_no_sync.CHECK,
    bucket_layout.CHECK,
    loopback.CHECK,
    exposed_communication.CHECK,
    buffer_broadcast.CHECK,
    collective_per_step.CHECK,
    other_collectives.CHECK,
    epoch_not_set.CHECK,
    left_in_eval.CHECK,
    same_checkpoint.CHECK,
    operations_in_flight.CHECK,
    uneven_ranks.CHECK,
    settings_differ.CHECK,
    needless_unused_search.CHECK,
    low_gpu_use.CHECK,
)


def explaining(what: Explained) -> frozenset[str]:
    """The kinds of findings that explain this."""
    return frozenset(kind for check in CHECKS if check.explains == what for kind in check.kinds)


def in_role(*roles: Role) -> frozenset[str]:
    """The kinds of findings with one of these roles."""
    return frozenset(kind for check in CHECKS if check.role in roles for kind in check.kinds)


def families() -> dict[Family, frozenset[str]]:
    """All kinds of findings, by the class of trouble that they are about."""
    found: dict[Family, frozenset[str]] = {}
    for check in CHECKS:
        found[check.family] = found.get(check.family, frozenset()) | frozenset(check.kinds)
    return found


def find(view: RunView, parts: Sequence[RunView]) -> list[Finding]:
    """The findings of all checks in a run, in the catalog's order.

    Args:
        view: of the run.
        parts: its sets of ranks that meet, from `group_view.parts`; checks that compare ranks' times look at each.
    """
    found = [(place, one) for place, one in _look(view, per_group=False)]
    for part in parts:
        found += [(place, _among(one, members(part))) for place, one in _look(part, per_group=True)]
    return [one for _, one in sorted(found, key=lambda each: each[0])]


def _look(view: RunView, *, per_group: bool) -> Iterator[tuple[int, Finding]]:
    """What the checks of one sort find, each with the check's place."""
    kinds: set[str] = set()
    for place, check in enumerate(CHECKS):
        if check.per_group != per_group or kinds & set(check.unless) or not may_look(check, view.run):
            continue
        some = list(check.look(view))
        kinds |= {one.kind for one in some if one.severity != "note"}
        yield from ((place, weakened(one, check, view.run)) for one in some)


def _among(finding: Finding, ranks: tuple[int, ...]) -> Finding:
    """The finding, with the ranks that it is about."""
    if not ranks:
        return finding
    return replace(finding, among=ranks, message=f"among {words.ranks(ranks)}, {finding.message}")
