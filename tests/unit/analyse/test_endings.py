"""Who ended whom: written traces of a run whose processes are gone, with what they noted of their end."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from support.dead_run import GONE, LAST, RESET, STEPS, TIMED_OUT, DeadRun
from support.trace_writer import GROUP, IN_FLIGHT, MS

from pyddpdiag.model.node import NodeNote, note_name
from pyddpdiag.model.report import RunReport


def evaluates(folder: Path) -> DeadRun:
    """Rank 0 is in its own code for longer than the timeout; then the launcher ends it."""
    run = DeadRun(folder)
    run.writers[0].sidecar["seen"] = {
        "where": "train.py:31",
        "since_ns": (LAST + 500) * MS,
        "until_ns": 4_000 * MS,
    }
    run.fails(1, 5_200, TIMED_OUT)
    run.raises(1, 5_300, "RuntimeError", TIMED_OUT)
    run.gets(0, 5_500, 15)
    return run


def test_a_rank_in_its_own_code_until_the_others_timeout_is_named_with_its_line(tmp_path: Path) -> None:
    report = evaluates(tmp_path).report()
    first = report.verdict.findings[0]
    assert report.verdict.line.startswith(
        "Rank 0 was in its own code for 4 s, at train.py:31, while rank 1 waited in bucket "
    )
    assert report.verdict.line.endswith(f" of step {STEPS} until its timeout.")
    assert (first.kind, first.rank, first.confidence) == ("operation_failed", 0, "high")
    assert (first.evidence["line"], first.evidence["reached"]) == ("train.py:31", 1)
    assert "memory" not in first.advice
    assert [rank.ended_by for rank in report.ranks] == ["SIGTERM", "RuntimeError"]


def test_it_is_so_by_the_heartbeat_alone_and_for_a_line_of_an_earlier_silence_no_line(tmp_path: Path) -> None:
    """Where a launcher leaves no note: on Windows, or by SIGKILL."""
    run = evaluates(tmp_path)
    (tmp_path / "rank_0.end").unlink()
    run.writers[0].sidecar["seen"] |= {"since_ns": 100 * MS, "until_ns": 300 * MS}
    first = run.first()
    assert (first.kind, first.rank, first.evidence["line"]) == ("operation_failed", 0, None)
    assert "in its own code for 4 s while rank 1 waited" in first.message


def test_a_rank_that_was_dead_before_the_timeout_is_lost(tmp_path: Path) -> None:
    run = evaluates(tmp_path)
    (tmp_path / "rank_0.end").unlink()
    run.lives_until(0, LAST + 400)
    first = run.first()
    assert (first.kind, first.rank) == ("rank_lost", 0)
    assert "gave no sign of life for 4 s before the others' timeout" in first.message
    assert "suspended" in first.advice and "memory" not in first.advice


def test_where_no_exception_tells_the_line_the_last_look_does(tmp_path: Path) -> None:
    """Rank 1 catches the error and goes on; rank 0 is in its own code, of which only the looks tell."""
    run = evaluates(tmp_path)
    del run.writers[0].sidecar["seen"], run.writers[1].sidecar["end"]
    for at, line in ((LAST - 300, 8), (LAST + 2_000, 31), (5_000, 32)):
        run.writers[0].look(at * MS, ("train.py", line, "evaluate"))
    first = run.first()
    assert (first.kind, first.rank, first.where) == ("operation_failed", 0, "train.py:32 in evaluate")
    assert "for 4 s, at train.py:32 in evaluate, while rank 1 waited" in first.message


def test_a_rank_whose_connections_were_closed_when_it_died_was_killed(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    run.fails(1, LAST + 500, RESET)
    run.raises(1, LAST + 510, "RuntimeError", RESET)
    run.lives_until(0, LAST + 400)
    first = run.first()
    assert (first.kind, first.rank) == ("rank_lost", 0)
    assert "the process is gone" in first.message and "memory" in first.advice


@pytest.mark.parametrize("how", ["waits elsewhere", "connection reset"])
def test_own_code_is_said_only_of_a_rank_that_waits_in_nothing_and_of_a_timeout(
    how: str, tmp_path: Path
) -> None:
    run = DeadRun(tmp_path)
    run.fails(1, 5_200, RESET if how == "connection reset" else TIMED_OUT)
    if how == "waits elsewhere":
        run.writers[0].collective("gloo:barrier", LAST * MS, 0, state=IN_FLIGHT)
    run.raises(1, 5_300, "RuntimeError", TIMED_OUT)
    run.gets(0, 5_500, 15)
    found = run.report().verdict.findings
    assert not [one for one in found if "own code" in one.message]
    failed = next(one for one in found if one.kind == "operation_failed")
    assert failed.rank == 0 and "because rank 0 never began it" in failed.message
    # It waits in a call of its own, and that says more.
    assert (found[0].kind == "mismatched_all_reduce") == (how == "waits elsewhere")


def test_a_rank_with_an_error_of_its_own_is_named_and_not_those_that_the_launcher_ended(
    tmp_path: Path,
) -> None:
    run = DeadRun(tmp_path, ranks=3)
    run.raises(1, 1_400, "KeyError", "'label_17'")
    for rank in (0, 2):
        run.gets(rank, 9_000, 15)
    report = run.report()
    (first,) = [one for one in report.verdict.findings if one.severity == "error"]
    assert (first.kind, first.rank, first.confidence) == ("rank_lost", 1, "high")
    assert report.verdict.line == (
        f"Rank 1 ended by KeyError: 'label_17', at train.py:12 (last seen in step {STEPS - 1}); the others were then "
        "ended by SIGTERM."
    )


def test_what_an_error_has_led_to_is_not_its_cause(tmp_path: Path) -> None:
    """Rank 0's neighbour has failed, and rank 0's own program makes an error of another class of that."""
    run = DeadRun(tmp_path)
    run.fails(0, 1_450, RESET)
    run.raises(0, 1_500, "TrainerError", "the worker is gone", "loop.py:7")
    run.raises(1, 1_440, "KeyError", "'label_17'")
    report = run.report()
    assert report.verdict.line.startswith("Rank 1 ended by KeyError: 'label_17', at train.py:12")
    assert report.verdict.line.endswith("1 other rank then failed.")


def test_an_error_that_all_ranks_make_is_named_with_all(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    said = (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error ..."
    )
    for rank in range(2):
        run.raises(rank, 1_400 + rank, "RuntimeError", said)
    first = run.first()
    assert (first.kind, first.rank) == ("rank_lost", None)
    assert first.message.startswith(
        "ranks 0, 1 ended by RuntimeError: Expected to have finished reduction in the"
    )
    assert "find_unused_parameters" in first.advice


def test_a_killed_rank_is_lost_whatever_its_death_did_to_the_others(tmp_path: Path) -> None:
    """One fails by Gloo's error, and one is ended by the launcher before it can."""
    run = DeadRun(tmp_path, ranks=3)
    run.fails(0, 1_450, RESET)
    run.raises(0, 1_460, "RuntimeError", RESET)
    run.gets(2, 1_500, 15)
    first = run.first()
    assert (first.kind, first.rank, first.evidence["error"]) == ("rank_lost", 1, None)


def test_a_rank_that_was_killed_long_before_another_fails_by_itself_is_the_one(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    run.raises(0, 9_000, "AssertionError", "no answer from the other worker")
    assert run.first().rank == 1


def test_an_abort_is_reported_with_what_led_to_it(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    run.gets(
        0, 1_440, 6, "[enforce fail at /x/gloo/pair.cc:456] op.preamble.length <= op.nbytes. 2112 vs 4.\nmore"
    )
    run.fails(1, 1_450, RESET)
    run.raises(1, 1_460, "RuntimeError", RESET)
    first = run.first()
    assert (first.kind, first.rank, first.evidence["error"]) == ("rank_lost", 0, "SIGABRT")
    assert "rank 0 ended by SIGABRT: op.preamble.length <= op.nbytes. 2112 vs 4 (last" in first.message
    assert "collective" in first.advice and "memory use" not in first.advice


def test_an_interrupted_run_says_so_and_then_what_it_showed(tmp_path: Path) -> None:
    """What the end made fail is not a finding: the others of a rank that leaves first lose their neighbour."""
    run = DeadRun(tmp_path)
    run.raises(1, 1_400, "KeyboardInterrupt")
    run.fails(0, 1_450, RESET)
    run.raises(0, 1_460, "RuntimeError", RESET)
    report = run.report()
    assert report.verdict.line.startswith(f"Interrupted in step {STEPS} (Ctrl-C). Healthy")
    assert [(one.kind, one.severity) for one in report.verdict.findings] == [("interrupted", "note")]


def test_of_a_run_that_hung_until_somebody_ended_it_the_rank_that_was_waited_for_is_named(
    tmp_path: Path,
) -> None:
    """Python cannot interrupt the rank that waits in Gloo: it fails, or is killed, when the other one is gone."""
    for waits in ("fails", "is killed"):
        run = DeadRun(tmp_path / waits)
        run.writers[0].sidecar["seen"] = {
            "where": "train.py:31",
            "since_ns": LAST * MS,
            "until_ns": 30_000 * MS,
        }
        run.raises(0, 41_200, "KeyboardInterrupt")
        if waits == "fails":
            run.fails(1, 41_150, RESET)
            run.raises(1, 41_160, "RuntimeError", RESET)
        else:
            run.writers[1].bucket(STEPS, LAST * MS, (LAST + 1) * MS, 0, state=IN_FLIGHT)
            run.lives_until(1, 70_000)
        report = run.report()
        first = report.verdict.findings[0]
        assert report.verdict.line.startswith(
            f"Interrupted in step {STEPS} (Ctrl-C). Rank 0 had been in its own code at train.py:31 for 40 s: rank 1 "
            "waited in bucket "
        )
        assert (first.kind, first.rank) == ("rank_stuck", 0)


def hung_for(folder: Path, silent_ms: int, operation: str = "gloo:barrier") -> RunReport:
    """One rank stops early, as by its own validation loss, and waits in a barrier for the other, which trains on."""
    run = DeadRun(folder)
    for rank, line in enumerate(("train.py:51", "train.py:60")):
        seen = {"where": line, "since_ns": LAST * MS, "until_ns": (LAST + silent_ms - 10) * MS}
        run.writers[rank].sidecar["seen"] = seen
        run.writers[rank].sidecar["modules"] = [
            {"index": 0, "name": "Net", "group": f"{GROUP:016x}", "parameters": [],
             "ddp": {"broadcast_buffers": 1, "buffers": 6}}
        ]  # fmt: skip
        run.raises(rank, LAST + silent_ms, "KeyboardInterrupt")
    run.writers[0].bucket(STEPS, LAST * MS, (LAST + 1) * MS, 0, state=IN_FLIGHT)
    run.writers[1].collective(operation, LAST * MS, 0, step=STEPS - 1, state=IN_FLIGHT)
    return run.report()


def test_of_a_run_that_hung_in_two_operations_the_rank_that_left_the_loop_is_named(tmp_path: Path) -> None:
    report = hung_for(tmp_path / "long", 40_000)
    first = report.verdict.findings[0]
    assert (first.kind, first.rank, first.where) == ("rank_behind", 1, "train.py:60")
    assert report.verdict.line.startswith(
        f"Interrupted in step {STEPS} (Ctrl-C). For 40 s, rank 0 waited in bucket "
    )
    assert " at train.py:51, which rank 1 never began: it waited in collective gloo:barrier" in first.message
    assert (
        first.advice.startswith("It left out an operation") and "all ranks must decide alike" in first.advice
    )
    short = hung_for(tmp_path / "short", 900)
    assert "rank_behind" not in [one.kind for one in short.verdict.findings]


def test_a_rank_that_evaluates_alone_by_ddp_waits_in_its_broadcast_of_buffers(tmp_path: Path) -> None:
    first = hung_for(tmp_path, 40_000, "gloo:broadcast").verdict.findings[0]
    assert (
        first.kind == "rank_behind"
        and "where one rank evaluates alone, call ddp.module(batch)" in first.advice
    )


def test_ctrl_c_after_a_failure_is_not_its_cause(tmp_path: Path) -> None:
    """The job hung on, as nobody ended the other ranks."""
    run = DeadRun(tmp_path)
    run.raises(1, 1_400, "KeyError", "'label_17'")
    run.raises(0, 60_000, "KeyboardInterrupt")
    run.command(exit_code=130, signal="SIGINT", signal_s=1_700_000_000 + 60)
    assert run.report().verdict.line.startswith("Rank 1 ended by KeyError: 'label_17', at train.py:12")


@pytest.mark.parametrize("noted", [True, False], ids=["by the ranks", "by the command alone"])
def test_a_job_that_somebody_ended_is_interrupted(noted: bool, tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    if noted:
        for rank in range(2):
            run.gets(rank, 1_400 + rank, 15)
    else:
        run.command(exit_code=1, signal="SIGTERM")
    line = run.report().verdict.line
    assert line.startswith(f"Interrupted in step {STEPS - 1} (SIGTERM). Healthy")


@pytest.mark.parametrize("noted", [True, False], ids=["by signals", "by force, as on Windows"])
def test_ranks_that_outlived_their_launcher_were_ended_by_us(noted: bool, tmp_path: Path) -> None:
    """And what a rank had failed of before is the cause all the same."""
    run = DeadRun(tmp_path)
    for rank in range(2):
        if noted:
            run.gets(rank, 6_500, 15)
        run.lives_until(rank, 6_500)
    run.command(exit_code=0xC0000005, signal="", left_s=1_700_000_000 + 1.5)
    line = run.report().verdict.line
    ended = "its command had ended with exit code 0xC0000005 (access violation) and left its ranks"
    assert line.startswith(f"Interrupted in step {STEPS - 1} ({ended}, which pyddpdiag run ended). Healthy")
    run.raises(1, 1_400, "KeyError", "'label_17'")
    assert run.report().verdict.line.startswith("Rank 1 ended by KeyError")


@pytest.mark.parametrize(
    ("code", "words", "advice"),
    [
        (1, "ended with exit code 1, as its launcher saw", "memory use"),
        (
            0xC0000005,
            "ended with exit code 0xC0000005 (access violation), as its launcher saw",
            "native code",
        ),
        (-9, "was killed by signal 9", "memory"),
    ],
)
def test_a_rank_that_could_note_nothing_ended_as_its_launcher_saw(
    code: int, words: str, advice: str, tmp_path: Path
) -> None:
    """As after TerminateProcess."""
    run = DeadRun(tmp_path)
    run.lives_until(1, 1_300)
    run.fails(0, 5_200, RESET)
    run.raises(0, 5_300, "RuntimeError", RESET)
    note = NodeNote("00112233aabbccdd", "h", "c", 7, 9_000 * MS, 1.7e9, 1, codes={"1": code})
    (tmp_path / note_name(note.node)).write_text(json.dumps(asdict(note)), encoding="utf-8")
    first = run.first()
    assert (first.kind, first.rank, first.evidence["exit_code"]) == ("rank_lost", 1, code)
    assert first.message.startswith(f"rank 1 {words}") and advice in first.advice


def test_a_helper_that_outlived_its_command_ends_no_run(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    for writer in run.writers:
        writer.header.update(closed=1, ended=1)
    run.command(exit_code=0, signal="", left_s=1_700_000_000 + 1.5)
    assert run.report().verdict.status == "healthy" and not run.report().verdict.findings


def test_a_signal_to_one_rank_is_not_one_to_the_run(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    run.gets(1, 1_400, 15)
    run.fails(0, 1_450, RESET)
    run.raises(0, 1_460, "RuntimeError", RESET)
    first = run.first()
    assert (first.kind, first.severity, first.rank) == ("interrupted", "error", 1)
    assert first.message == f"rank 1 was ended by SIGTERM in step {STEPS}; rank 0 then failed."

    run = DeadRun(tmp_path / "launcher")
    run.gets(1, 1_400, 15)
    run.gets(0, 1_520, 15)
    first = run.first()
    assert (first.severity, first.rank) == ("error", 1)
    assert "120 ms before the others" in first.message


def test_a_rank_that_was_killed_before_the_others_got_the_signal_is_lost(tmp_path: Path) -> None:
    run = DeadRun(tmp_path, ranks=3)
    for rank in (0, 2):
        run.gets(rank, 1_500, 15)
    assert (run.first().kind, run.first().rank) == ("rank_lost", 1)


def test_ranks_that_all_ended_at_one_place_are_only_a_note(tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    report = run.report()
    assert report.verdict.status == "healthy"
    assert [(one.kind, one.severity) for one in report.verdict.findings] == [("rank_lost", "note")]
    run.command(exit_code=137, signal="")
    assert run.first().severity == "error"
    run.command(exit_code=0, signal="")
    assert run.first().severity == "note"
    now = LAST * MS
    run.writers[0].step(STEPS, now, now, now + 60 * MS)
    assert (run.first().severity, run.first().kind) == ("error", "rank_lost")


@pytest.mark.parametrize(
    "note",
    [
        *("", "x", "15", f"{GONE} 15", f"{GONE} 99 1400000000\n", f"{GONE} 15 -1\n"),
        *("7 15 1400000000\n", "\xff 1"),
    ],
)
def test_a_note_that_is_not_the_processs_own_is_nothing(note: str, tmp_path: Path) -> None:
    run = DeadRun(tmp_path)
    (tmp_path / "rank_0.end").write_text(note, encoding="latin-1")
    (tmp_path / "command.json").write_text('{"exit_code": "0", "signal": 3}', encoding="utf-8")
    assert [rank.ended_by for rank in run.report().ranks] == ["", ""]
