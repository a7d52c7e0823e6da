"""Several ranks' logs, made and from public reports: the one to blame is named, its victims are called so."""

from __future__ import annotations

import pytest
from support import public_reports, public_reports_launchers, public_reports_mixed
from support.public_logs import Report

from pyddpdiag.messages.logs import OWN_ERROR, read
from pyddpdiag.messages.shells import Shell

CLOSED = (
    "Traceback (most recent call last):\n  File 'train.py', line 3\n"
    "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:{0}. This is "
    "typically caused "
    "by a remote worker crashing.\n"
)
LATE = (
    "Traceback (most recent call last):\nRuntimeError: [unbound_buffer.cc:78] Timed out waiting "
    "6000ms for recv operation\n"
)
OWN = "epoch 1\nTraceback (most recent call last):\n  File 'train.py', line 3\nValueError: this sample is no digit\n"


def test_the_rank_with_an_error_of_its_own_is_to_blame_and_its_neighbours_are_not() -> None:
    verdict = read({"rank_0.log": CLOSED.format(1), "rank_1.log": OWN, "rank_2.log": CLOSED.format(2)})
    assert verdict.culprits == ("rank 1",)
    assert verdict.explanation.kind == OWN_ERROR
    assert "this sample is no digit" in verdict.explanation.cause
    assert verdict.sentence.endswith("rank 0, rank 2 only went down with it.")


def test_a_known_cause_is_explained() -> None:
    verdict = read(
        {
            "a/rank_0.log": LATE,
            "a/rank_1.log": "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 2",
        }
    )
    assert (verdict.culprits, verdict.explanation.kind) == (("rank 1",), "models_differ")


def test_a_rank_without_an_error_is_the_suspect_of_those_that_waited() -> None:
    verdict = read({"rank_0.log": LATE, "rank_1.log": "epoch 7\n", "rank_2.log": CLOSED.format(3)})
    assert verdict.culprits == ("rank 1",)
    assert "rank 1 shows no error" in verdict.sentence and "uneven batches" in verdict.sentence


def test_the_log_of_a_victim_alone_names_nobody() -> None:
    verdict = read({"rank_0.log": CLOSED.format(1)})
    assert verdict.culprits == ()
    assert "logs of the others" in verdict.sentence
    both = read({"rank_0.log": CLOSED.format(1), "rank_1.log": LATE})
    assert both.culprits == () and "Every log is that of a victim" in both.sentence


def test_a_log_of_torchrun_is_split_by_its_prefixes() -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        "[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1\n"
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]: KeyError: 'label'\n"
        "E1122 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 1\n"
    )
    verdict = read({"job.log": text})
    assert verdict.culprits == ("rank 1",)
    assert [log.rank for log in verdict.logs] == [0, 1, None]


def test_a_killed_rank_is_named_by_the_launchers_summary() -> None:
    text = (
        "[rank0]: RuntimeError: Connection reset by peer\n[rank2]: RuntimeError: Connection reset by peer\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 4711)\n  traceback : Signal 9 (SIGKILL) received by PID 4711\n"
    )
    verdict = read({"job.log": text})
    assert verdict.culprits == ("rank 1",)
    assert verdict.explanation.kind == "rank_killed"


def test_a_stale_file_is_distinguished_from_a_firewall() -> None:
    refused = (
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] SO_ERROR: {0}, remote=[10.0.0.7]:31999"
    )
    stale = f"FileStore at file:///tmp/pg\n{refused.format('Connection refused')}"
    assert read({"a.log": stale}).explanation.kind == "stale_file"
    assert read({"a.log": refused.format("Connection timed out")}).explanation.kind == "connection_filtered"


def test_nothing_known_is_said() -> None:
    verdict = read({"rank_0.log": "ERROR: no licence\n", "rank_1.log": ""})
    assert not verdict.explanation.known
    assert "No known message" in verdict.sentence


REPORTS = public_reports.REPORTS + public_reports_launchers.REPORTS + public_reports_mixed.REPORTS


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source)
def test_the_first_line_is_right(report: Report) -> None:
    verdict = read(report.logs, lines_for=Shell.POSIX)
    assert (verdict.explanation.kind, verdict.culprits) == (report.kind, report.culprits), verdict.sentence


def test_they_are_of_different_kinds() -> None:
    assert len(public_reports.REPORTS) == 30
    assert len({report.source for report in REPORTS}) == len(REPORTS)
    assert len({report.situation for report in REPORTS}) == len(REPORTS)
