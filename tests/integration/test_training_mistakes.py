"""Mistakes in real trainings of two ranks: each is found, under every way to record, and nothing else is."""

import os
from pathlib import Path

import pytest
from support import mistaken_job
from support.mistaken_job import ADVISED, EVEN_UNATTACHED, MISTAKES, OTHER_WAYS
from support.ranks import ran_once
from support.reported import findings
from support.watched_ways import record_each

import pyddpdiag
from pyddpdiag.pipeline import load_report

KINDS = frozenset(MISTAKES.values()) - {""}


def _job(rank: int, _: int, folder: str) -> None:
    os.chdir(folder)
    for mistake in EVEN_UNATTACHED:
        with pyddpdiag.Recorder(f"{folder}/hook/{mistake}", capacity_mb=1) as recorder:
            mistaken_job.train(
                mistake, rank, lambda ddp, to=recorder: ddp.register_comm_hook(to, pyddpdiag.timed_allreduce)
            )
    with pyddpdiag.Recorder(f"{folder}/attach/ddp.module", capacity_mb=1) as recorder:
        mistaken_job.train("ddp.module", rank, recorder.attach)
    record_each(Path(folder, "run"), list(MISTAKES), rank, mistaken_job.train)
    record_each(Path(folder, "run"), OTHER_WAYS, rank, mistaken_job.train_otherwise)


trained = ran_once(_job, 2, answers=False)


@pytest.mark.parametrize(
    ("way", "mistake", "kind"),
    [
        *(("run", mistake, kind) for mistake, kind in MISTAKES.items()),
        *(("run", way, "") for way in OTHER_WAYS),
        *(("hook", mistake, MISTAKES[mistake]) for mistake in EVEN_UNATTACHED),
        ("attach", "ddp.module", "unreduced_parameters"),
    ],
)
def test_a_mistake_is_found_and_no_other(trained: Path, way: str, mistake: str, kind: str) -> None:
    report = load_report(trained / way / mistake)
    found = [each.kind for each in report.verdict.findings if each.kind in KINDS]
    assert found == ([kind] if kind else []), report.verdict.line


@pytest.mark.parametrize("mistake", list(ADVISED))
def test_what_is_advised_against_a_mistake_mends_it(trained: Path, mistake: str) -> None:
    """The finding says to do what the other training does, in which it is gone."""
    advised, words = ADVISED[mistake]
    (found,) = findings(trained / "run" / mistake, MISTAKES[mistake])
    assert words in found.advice, found.advice
    assert not findings(trained / "run" / advised, MISTAKES[mistake])


@pytest.mark.parametrize("mistake", ["changed weights", "optimizer state of one rank"])
def test_weights_that_were_equal_are_not_to_be_loaded_alike(trained: Path, mistake: str) -> None:
    (found,) = findings(trained / "run" / mistake, "different_weights")
    assert found.evidence["last_equal_step"] is not None and found.since_step is not None
    assert "Load checkpoints" not in found.advice and "They were equal until step" in found.advice
