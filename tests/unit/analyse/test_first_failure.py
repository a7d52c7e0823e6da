"""What had stood until a timeout: written traces of a run that failed in an operation that every rank had begun."""

from pathlib import Path

import pytest
from support.dead_run import LAST, STEPS, TIMED_OUT, DeadRun
from support.trace_writer import MS


def stands(folder: Path, *, begun: tuple[int, ...] = (LAST, LAST), barrier: bool = False) -> DeadRun:
    """All ranks are in a bucket, or a barrier, until rank 0's timeout; what rank 1 sends is never confirmed."""
    run = DeadRun(folder)
    name = "10.0.0.2:7000|10.0.0.1:8000"
    for writer, at in zip(run.writers, begun, strict=True):
        ended = (5_200 + writer.rank) * MS
        if barrier:
            ticket = writer.collective("gloo:barrier", at * MS, ended, flags=1, step=STEPS)
        else:
            ticket = writer.bucket(STEPS, at * MS, (at + 1) * MS, ended, flags=1)
        writer.error(ticket, TIMED_OUT)
        run.raises(writer.rank, 5_300, "RuntimeError", TIMED_OUT)
    for rank, each in ((1, name), (0, "10.0.0.1:8000|10.0.0.2:7000")):
        run.writers[rank].connection_name(each)
        for half in range(10):
            lost = min(half, 3) if rank else half
            run.writers[rank].reading(
                each, 500 * half * MS + 1, bytes_acked=1000 * lost, segments=10, unacked=40 if rank else 0
            )
    return run


@pytest.mark.parametrize("barrier", [False, True])
def test_a_transfer_that_stood_still_until_the_timeout_is_named_with_its_link(
    barrier: bool, tmp_path: Path
) -> None:
    report = stands(tmp_path, barrier=barrier).report()
    first, second = [one for one in report.verdict.findings if one.severity == "error"]
    assert (first.kind, first.rank, first.peer, first.confidence) == ("transport_stalled", 1, 0, "high")
    assert f"every rank had begun {'collective gloo:barrier' if barrier else 'bucket'}" in first.message
    assert "for 4 s nothing has happened on any, until rank 0 gave up" in first.message
    assert first.evidence["unconfirmed_segments"] == 40
    assert second.where == "train.py:12"
    assert second.kind == "operation_failed" and "because the transfer stood still" in second.message
    assert {(link.rank, link.unconfirmed) for link in report.links} == {(0, 0), (1, 40)}


def test_a_rank_that_is_cut_off_one_bucket_before_the_others_is_in_what_failed_first(tmp_path: Path) -> None:
    run = stands(tmp_path)
    ahead = run.writers[0]
    (stood,) = (each for each in ahead.records if each["flags"] & 1)
    stood["times"][3], stood["flags"] = (LAST + 3) * MS, 0
    ticket = ahead.bucket(STEPS + 1, (LAST + 4) * MS, (LAST + 5) * MS, 5_200 * MS, flags=1)
    ahead.error(ticket, TIMED_OUT)
    first, second = [one for one in run.report().verdict.findings if one.severity == "error"]
    assert (first.kind, first.rank, first.since_step) == ("transport_stalled", 1, STEPS)
    assert second.kind == "operation_failed" and "because the transfer stood still" in second.message


@pytest.mark.parametrize("how", ["a rank came late", "a rank was stopped", "only the neighbour was lost"])
def test_what_only_looks_like_a_transfer_that_stands(how: str, tmp_path: Path) -> None:
    late = how == "a rank came late"
    run = stands(tmp_path, begun=(LAST, 4_500) if late else (LAST, LAST))
    if how == "a rank was stopped":
        run.writers[1].records = [each for each in run.writers[1].records if not each["flags"] & 1]
        run.writers[1].sidecar.pop("end")
        run.writers[1].header.update(closed=0, ended=0)
        run.lives_until(1, LAST + 400)
    elif not late:
        for writer in run.writers:
            for record in writer.records:
                if record["flags"] & 1:
                    record["times"][3] = (LAST + 100) * MS
    kinds = [one.kind for one in run.report().verdict.findings if one.severity == "error"]
    assert "operation_failed" in kinds and "transport_stalled" not in kinds
