"""Mistakes in real trainings of two ranks: each is found, under every way to record, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import mistaken_job
from support.mistaken_job import EVEN_UNATTACHED, MISTAKES, OTHER_WAYS
from support.ranks import run_ranks

import pyddpdiag
from pyddpdiag.integrations import unchanged
from pyddpdiag.integrations.watched import Watched
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
    for mistake in (*MISTAKES, *OTHER_WAYS):
        watched = Watched(f"{folder}/run/{mistake}", {"capacity_mb": 1})
        unchanged.watch(watched)
        if mistake in MISTAKES:
            mistaken_job.train(mistake, rank)
        else:
            mistaken_job.train_otherwise(mistake, rank)
        assert watched.session is not None
        watched.session.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    run_ranks(_job, 2, folder, str(folder))
    return folder


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
