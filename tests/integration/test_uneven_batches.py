"""A rank that has fewer batches than the others: who does, and the line by which they may train on."""

from pathlib import Path

from support import uneven_job
from support.ranks import ran_once
from support.watched_ways import record_each

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

Trained = tuple[Path, list[dict[str, str]]]

WAYS: dict[str, dict[str, bool]] = {"joined": {"joined": True}, "even": {"even": True}, "uneven": {}}


def _job(rank: int, _: int, folder: str) -> dict[str, str]:
    failed = {}

    def train(way: str, rank: int) -> None:
        failed[way] = uneven_job.train(rank, **WAYS[way])

    record_each(Path(folder), list(WAYS), rank, train)
    return failed


trained = ran_once(_job, 2, group_timeout_s=8)


def findings(folder: Path) -> dict[str, Finding]:
    return {one.kind: one for one in load_report(folder).verdict.findings}


JOIN = "from torch.distributed.algorithms.join import Join\nwith Join([ddp]):"


def test_the_rank_without_more_batches_comes_first_with_the_line_to_paste(trained: Trained) -> None:
    folder, failed = trained
    assert failed[0]["uneven"] and not failed[1]["uneven"]
    verdict = load_report(folder / "uneven").verdict
    first = verdict.findings[0]
    assert (first.kind, first.rank, first.since_step) == ("fewer_all_reduces", 1, uneven_job.FEWER)
    assert (first.evidence["batches"], first.evidence["batches_most"]) == (8, 12)
    assert "12 batches (48 samples) on rank 0, 8 batches (32 samples) on rank 1" in verdict.line
    assert first.advice.endswith(JOIN)
    # What it led to is not in the line, and still below.
    assert "failed" not in verdict.line and "operation_failed" in findings(folder / "uneven")


def test_ranks_that_join_are_no_error(trained: Trained) -> None:
    folder, failed = trained
    assert not failed[0]["joined"] and not failed[1]["joined"]
    found = findings(folder / "joined")
    assert all(one.severity != "error" for one in found.values())
    assert found["settings_differ"].advice.startswith("Unless the loop over batches is within Join already")


def test_even_batches_need_no_advice(trained: Trained) -> None:
    found = findings(trained[0] / "even")
    assert not {"fewer_all_reduces", "settings_differ"} & set(found)
