"""Costs of findings, their order, and the sentence on top."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.processor_use import NOTHING, Extra, write
from support.trace_writer import RankWriter, write_training

from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weigh.explain import Explained
from pyddpdiag.analyse.weigh.headline import headline
from pyddpdiag.analyse.weigh.verdict import weigh
from pyddpdiag.model.findings import Confidence, Finding, Severity
from pyddpdiag.model.kinds import KINDS
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run


def finding(
    kind: str,
    cost_ms: float | None = None,
    *,
    message: str = "something: it is so.",
    severity: Severity = "warning",
    confidence: Confidence = "high",
    rank: int | None = None,
    since_step: int | None = None,
) -> Finding:
    return Finding(kind, severity, message, confidence, rank=rank, since_step=since_step, cost_ms=cost_ms)


@pytest.fixture
def view(tmp_path: Path) -> RunView:
    """Steps of 60.5 ms, of which 24 ms are exposed, and rank 1 is late by 15 ms."""
    write_training(tmp_path, steps=20, wire_ms=14.0, late_ms={1: 15.0})
    return RunView(open_run(tmp_path))


def costs(view: RunView, *findings: Finding) -> list[float | None]:
    return [found.cost_ms for found in Explained(view.charges).by(findings)]


def test_of_the_same_seconds_at_one_line_one_kind_tells(view: RunView) -> None:
    def at(kind: str, cost_s: float, where: str = "train.py:9 in load", rank: int | None = None) -> Finding:
        return replace(finding(kind, 1.0, rank=rank), cost_s=cost_s, where=where)

    waits, pauses = at("data_wait", 2.0), at("pause", 2.1)
    assert [one.kind for one in Explained(view.charges).by([waits, pauses])] == ["data_wait"]
    # About much more time, elsewhere, of one rank, or called from another line.
    kept = [waits, at("pause", 4.1), at("pause", 2.1, "train.py:8 in load"), at("late_rank", 2.0, rank=1)]
    kept += [at("hot_line", 3.0, "net.py:7"), at("hot_line", 2.0, "net.py:7")]
    assert [one.kind for one in Explained(view.charges).by(kept)] == [one.kind for one in kept]


def test_two_findings_that_explain_the_same_milliseconds_share_them(view: RunView) -> None:
    exposed = view.exposure.typical_ms
    assert costs(
        view, finding("slow_link", 14.0), finding("packet_loss", 14.0), finding("loopback", 1.0)
    ) == [14.0, pytest.approx(exposed - 14.0), 0.0]
    assert costs(view, finding("late_rank", 14.0, rank=1), finding("core_contention", 14.0, rank=1)) == [
        14.0,
        pytest.approx(1.0),
    ]


def test_all_together_do_not_cost_more_than_a_step(view: RunView) -> None:
    step = float(view.judged.wall.max(axis=1).mean())
    shares = costs(view, finding("one", 40.0), finding("two", 40.0), finding("three", 40.0), finding("four"))
    assert shares[0] == 40.0 and shares[3] is None
    assert sum(cost or 0.0 for cost in shares) == pytest.approx(step)


def test_an_error_takes_nothing_from_the_others(view: RunView) -> None:
    assert costs(view, finding("rank_lost", 1000.0, severity="error"), finding("one", 10.0)) == [1000.0, 10.0]


@pytest.mark.parametrize("seed", range(6))
def test_costs_of_a_run_with_everything_stay_within_its_step(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    write_training(
        tmp_path,
        world_size=4,
        steps=24,
        wire_ms=float(random.uniform(5, 20)),
        data_wait_ms=float(random.uniform(5, 40)),
        late_ms={1: float(random.uniform(10, 30)), 3: float(random.uniform(10, 30))},
        jitter_ms=1.0,
        seed=seed,
    )
    view = RunView(open_run(tmp_path))
    found = load_report(tmp_path).verdict.findings
    assert len(found) >= 3
    shares = [each.cost_ms or 0.0 for each in found]
    order = [(each.confidence == "low", -(each.cost_ms or 0.0)) for each in found]
    assert order == sorted(order) and min(shares) >= 0
    assert sum(shares) <= float(view.judged.wall.max(axis=1).mean()) + 1e-6
    late = [each.cost_ms or 0.0 for each in found if each.kind == "late_rank"]
    assert sum(late) <= 1.05 * float(view.lateness.extra.max(axis=1).mean())


def test_the_later_of_two_late_ranks_costs_what_the_first_leaves(tmp_path: Path) -> None:
    """While rank 0 is 15 ms late, the 9 ms of rank 3 cost nobody anything."""
    write_training(tmp_path, world_size=4, steps=20, late_ms={0: 15.0, 3: 9.0})
    first, second = load_report(tmp_path).verdict.findings
    assert (first.rank, first.cost_ms) == (0, pytest.approx(15.0))
    assert (second.rank, second.cost_ms, second.evidence["extra_ms"]) == (3, 0.0, pytest.approx(9.0))
    assert load_report(tmp_path).verdict.line == first.message.replace("rank", "Rank", 1)


def test_the_sentence_names_three_findings_at_most_with_their_costs() -> None:
    message = "rank 2 is late from step 50 on: it needs 30.0 ms more than the others."
    found = [
        replace(
            finding("late_rank", 30.0, message=message, rank=2, since_step=50), evidence={"stretches": 1}
        ),
        finding("data_wait", 20.0),
        finding("exposed_communication", 10.0),
        finding("uneven_ranks", 9.0),
    ]
    assert headline(found) == (
        "Rank 2 is late from step 50 on (30.0 ms per step); the ranks wait for data (20.0 ms per step); "
        "communication is exposed (10.0 ms per step)."
    )
    assert headline(found[:1]) == "Rank 2 is late from step 50 on: it needs 30.0 ms more than the others."


def test_what_comes_all_at_once_is_in_the_sentence_with_its_rank_and_the_time_of_the_run() -> None:
    alone = replace(finding("rank_alone", 30.0, rank=0), cost_s=3.0)
    late = replace(finding("late_rank", 20.0, rank=2), cost_s=2.0)
    assert headline([alone, late]) == (
        "Rank 0 works alone while the others wait (3.00 s of the run); rank 2 is late (20.0 ms per step)."
    )


def test_what_weighs_less_is_not_in_the_sentence() -> None:
    late = finding("a", 30.0, message="rank 2 is late: by 30 ms.")
    assert headline([late, finding("b", 2.0)]) == headline([late, finding("b", 9.0, severity="note")])
    lost = finding("rank_lost", message="rank 1 ended: the process is gone.", severity="error")
    assert headline([lost, late]) == "Rank 1 ended: the process is gone."


def order(view: RunView, *findings: Finding) -> list[str]:
    return [each.kind for each in weigh([view], findings).findings]


def test_what_is_sure_comes_before_other_load_on_the_machine(view: RunView) -> None:
    contention = finding("core_contention", 20.0, confidence="low")
    late = finding("late_rank", 7.0, confidence="medium", rank=1)
    assert order(view, contention, late) == ["late_rank", "core_contention"]
    # A mistake that costs nothing, or nobody knows what, too.
    assert order(view, contention, finding("epoch_not_set")) == ["epoch_not_set", "core_contention"]
    # Others that are unsure are more often the answer.
    assert order(view, contention, finding("uneven_ranks", 7.0, confidence="low"))[0] == "uneven_ranks"


def test_what_any_run_here_has_is_ordered_by_its_cost_behind_all_else(view: RunView) -> None:
    contention = finding("core_contention", 9.0, confidence="low")
    loopback = finding("loopback", 12.0, confidence="low")
    assert order(view, contention, loopback) == ["loopback", "core_contention"]
    assert order(view, contention, replace(loopback, cost_ms=7.0)) == ["core_contention", "loopback"]
    # What is sure stays in front, and what else is unsure.
    assert order(view, contention, finding("loopback", 7.0))[0] == "loopback"
    uneven = finding("uneven_ranks", 5.0, confidence="low")
    assert order(view, contention, loopback, uneven) == ["uneven_ranks", "loopback", "core_contention"]


def test_how_ranks_were_placed_comes_behind_what_is_wrong(view: RunView) -> None:
    loopback, late = finding("loopback", 12.0), finding("late_rank", 4.0, rank=1)
    assert order(view, loopback, late) == ["late_rank", "loopback"]
    assert order(view, loopback, replace(late, confidence="low")) == ["loopback", "late_rank"]
    for kind in (
        name for name, row in KINDS.items() if row.cure and not row.environment and name != "late_rank"
    ):
        mistake = finding(kind, 3.0)
        assert order(view, loopback, mistake) == [kind, "loopback"]
        assert order(view, loopback, late, mistake) == ["late_rank", kind, "loopback"]
        for unsure in (replace(mistake, confidence="low"), replace(mistake, severity="note")):
            assert order(view, loopback, unsure) == ["loopback", kind]


def test_a_sure_note_that_is_worth_a_word_comes_before_other_load(view: RunView) -> None:
    contention = finding("core_contention", 8.0, confidence="low", message="all ranks wait for a core: 8 ms.")
    note = finding(
        "missing_no_sync", 5.0, severity="note", message="every pass reduces: 3 of 4 are needless."
    )
    verdict = weigh([view], [contention, note])
    assert [each.kind for each in verdict.findings] == ["missing_no_sync", "core_contention"]
    assert verdict.status == "findings"
    assert verdict.line == (
        "Gradients are averaged several times for each step of the optimizer (5.00 ms per step); the ranks must "
        "wait for a processor core (8.00 ms per step)."
    )
    for other in (replace(note, cost_ms=2.0), replace(note, confidence="low"), replace(note, cost_ms=None)):
        assert order(view, contention, other) == ["core_contention", "missing_no_sync"]
    # 4% of the steps are worth a word, whatever the load costs.
    assert (
        order(view, finding("core_contention", 20.0, confidence="low"), replace(note, cost_ms=4.0))[0]
        == note.kind
    )
    loopback = finding("loopback", 7.0, confidence="low")
    assert order(view, loopback, contention, note) == ["missing_no_sync", "core_contention", "loopback"]
    # Beside something else it is not the answer anyway.
    assert order(view, replace(loopback, confidence="high"), contention, note)[0] == "loopback"
    assert (
        order(view, finding("late_rank", 7.0, confidence="low", rank=1), contention, note)[0] == "late_rank"
    )


def test_unsure_findings_that_cost_little_do_not_fill_the_first_line(view: RunView) -> None:
    """4 ms of 60.5 ms are less than 10% of the run."""
    little = finding(
        "late_rank", 4.0, confidence="low", rank=1, message="rank 1 is late in 8 steps: by 10 ms."
    )
    verdict = weigh([view], [little])
    assert verdict.line == (
        "No finding costs 10% of the run. The first of them, of low confidence: rank 1 is late (4.00 ms per step)."
    )
    assert verdict.status == "findings"
    assert weigh([view], [replace(little, cost_ms=9.0)]).line == "Rank 1 is late in 8 steps: by 10 ms."
    assert weigh([view], [replace(little, confidence="medium")]).line.startswith("Rank 1 is late in 8 steps")
    # Beside a sure one, only what may matter is in the sentence.
    sure = finding("data_wait", 20.0, message="the ranks wait for data: 20 ms.")
    assert weigh([view], [sure, little]).line == "The ranks wait for data: 20 ms."
    assert "rank 1 is late" in weigh([view], [sure, replace(little, cost_ms=9.0)]).line


def test_a_stretch_in_which_a_rank_waits_for_a_core_is_no_answer_for_a_long_run(tmp_path: Path) -> None:
    part = range(150, 178)
    write(tmp_path, [NOTHING, Extra(delay=30, steps=part)], steps=330)
    verdict = load_report(tmp_path).verdict
    (found,) = verdict.findings
    assert (found.kind, found.rank, found.cause, found.confidence) == ("late_rank", 1, "core", "low")
    assert verdict.line.startswith("No finding costs 10% of the run.")
    write(tmp_path / "slept", [NOTHING, Extra(sleep=30, steps=part)], steps=330)
    assert load_report(tmp_path / "slept").verdict.line.startswith("Rank 1 is late in steps 150 to 177")


def test_what_ranks_did_differently_comes_before_what_it_led_to(view: RunView) -> None:
    lost = finding("rank_lost", severity="error", rank=0, since_step=7)
    different = finding("mismatched_all_reduce", severity="error", confidence="certain", since_step=7)

    assert order(view, lost, different) == ["mismatched_all_reduce", "rank_lost"]
    # A guess, or what came later, does not.
    assert order(view, lost, replace(different, confidence="medium")) == [
        "rank_lost",
        "mismatched_all_reduce",
    ]
    assert order(view, lost, replace(different, since_step=8)) == ["rank_lost", "mismatched_all_reduce"]
    sizes = finding("world_size_differs", severity="error", confidence="certain")
    assert order(view, lost, sizes) == ["world_size_differs", "rank_lost"]


def test_a_mismatch_that_made_an_innocent_rank_abort_is_named_first(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2, closed=1 - rank)
        writer.sound_steps(range(5))
        writer.sound_steps([5], bytes=8_000_000 if rank else 4_000_000)
        writer.write(tmp_path)
    kinds = [each.kind for each in load_report(tmp_path).verdict.findings]
    assert kinds[:2] == ["mismatched_all_reduce", "rank_lost"]


def test_a_network_that_is_slow_for_all_comes_behind_its_faults(view: RunView) -> None:
    exposed, flapping = finding("exposed_communication", 12.0), finding("flapping_link", 3.0)
    assert order(view, exposed, flapping) == ["flapping_link", "exposed_communication"]
    assert order(view, exposed, replace(flapping, confidence="low")) == [
        "exposed_communication",
        "flapping_link",
    ]
    # A rank that is late is no fault of the network.
    assert order(view, exposed, finding("late_rank", 4.0, rank=1)) == ["exposed_communication", "late_rank"]


def test_what_leads_to_others_takes_its_time_first(view: RunView) -> None:
    """Of what is exposed, 18 ms are for reductions that nobody needs."""
    left = pytest.approx(view.exposure.typical_ms - 18.0)
    needless, rest = finding("missing_no_sync", 18.0), finding("exposed_communication", 24.0)
    first, second = weigh([view], [rest, needless]).findings
    assert (first.kind, first.cost_ms, first.confidence) == ("missing_no_sync", 18.0, "high")
    assert (second.kind, second.cost_ms, second.confidence) == ("exposed_communication", left, "low")
    # What any run here has comes last.
    found = weigh([view], [finding("loopback", 24.0), replace(needless, severity="note")]).findings
    assert [(one.kind, one.cost_ms) for one in found] == [("loopback", left), ("missing_no_sync", 18.0)]
    # A layout is calculated from transfers that a fault slows; with an unsure one it stays as it is.
    link, layout = finding("slow_link", 4.0), finding("single_bucket", 9.0, confidence="medium")
    assert [one.confidence for one in weigh([view], [link, layout]).findings] == ["high", "low"]
    unsure = replace(link, confidence="low")
    assert [one.confidence for one in weigh([view], [unsure, layout]).findings] == ["medium", "low"]


def test_of_two_that_cost_about_the_same_the_surer_one_comes_first(view: RunView) -> None:
    late, alone = finding("late_rank", 9.0, confidence="medium", rank=1), finding("rank_alone", 8.0, rank=1)
    assert order(view, late, alone) == ["rank_alone", "late_rank"]
    assert order(view, replace(late, cost_ms=12.0), alone) == ["late_rank", "rank_alone"]


def test_a_few_long_steps_do_not_make_a_note_cheaper(tmp_path: Path) -> None:
    """5.5% of a typical step of 33 ms; with the two long ones, 4% of all the steps' time."""
    long = Extra(sleep=300, steps=(9, 21))
    write(tmp_path, [long, long])
    view = RunView(open_run(tmp_path))
    note = finding("collective_per_step", 0.055 * view.judged.wall_ms, severity="note", confidence="medium")
    load = finding("core_contention", 0.4 * view.judged.wall_ms, confidence="low")
    assert order(view, load, note) == ["collective_per_step", "core_contention"]
    assert order(view, load, replace(note, cost_ms=0.035 * view.judged.wall_ms))[0] == load.kind
