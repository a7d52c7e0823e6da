"""What `pyddpdiag hang` answers, of written traces of real processes: here, elsewhere, missing, over."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.live_run import STEPS, Live, LiveRun, live_runs
from support.reported import report_of
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag import cli
from pyddpdiag.live.answer import hang_to_json, print_hang
from pyddpdiag.live.hang import hang
from pyddpdiag.live.judge import judge
from pyddpdiag.live.look import look
from pyddpdiag.live.state import Hang
from pyddpdiag.model import words
from pyddpdiag.trace.layout import Flag

DOCS = Path(__file__).parents[3] / "docs" / "hang.md"
SECOND_NS = 1_000_000_000


def answer(folder: Path) -> Hang:
    """Of a single look."""
    return judge(look(folder), frozenset(), 0.0)


def answer_to(run: LiveRun) -> Hang:
    run.write()
    return answer(run.folder)


live = live_runs()


def kinds(found: Hang) -> list[tuple[str, int | None]]:
    return [(one.kind, one.rank) for one in found.findings]


def text_of(found: Hang) -> str:
    out = io.StringIO()
    print_hang(found, out)
    return out.getvalue()


def test_a_rank_that_never_came_is_named_and_not_the_transport(live: Live) -> None:
    run = live(3)
    run.wait(0, 1)
    del run.writers[2]
    found = answer_to(run)
    assert kinds(found) == [("rank_absent", 2)]
    assert [rank.state for rank in found.ranks] == ["waiting", "waiting", "absent"]
    assert found.suspects == (0, 1)
    assert "no trace" in text_of(found) and "never came" in found.line


def test_a_shorter_silence_than_the_reports_is_less_sure(live: Live) -> None:
    for silent_ms, confidence in ((2_000, "medium"), (60_000, "high")):
        run = live(2, silent_ms=silent_ms)
        run.wait(0)
        (finding,) = answer_to(run).findings
        assert (finding.kind, finding.rank, finding.confidence) == ("rank_stuck", 1, confidence)


def test_what_may_be_an_ordinary_step_is_not_called_stuck(live: Live) -> None:
    """Before steps are known anything may take long; but what is known is said."""
    run = live(2, silent_ms=5_000)
    for writer in run.writers:
        writer.records.clear()
    run.wait(0)
    run.writers[1].step(0, run.end, run.end, 0, state=2)
    found = answer_to(run)
    assert (found.status, found.exit_code, found.findings) == ("cannot_tell", 2, ())
    assert "which rank 1 never began" in found.line and "Look again" in found.line
    assert found.suspects == (1,)


def test_a_standstill_in_which_nobody_waits_shows_who_could_be_asked(live: Live) -> None:
    found = answer_to(live(2))
    assert (found.status, found.suspects) == ("cannot_tell", (0, 1))
    assert "none waits for another" in found.line


def test_a_rank_of_another_host_lives_as_long_as_its_heart_beats(live: Live) -> None:
    for beat_s, expected in ((1, ("rank_stuck", 1)), (90, ("rank_lost", 1))):
        run = live(2, silent_ms=100_000, elsewhere=frozenset({1}))
        run.wait(0)
        run.writers[1].header["heartbeat_ns"] = time.perf_counter_ns() - beat_s * SECOND_NS
        found = answer_to(run)
        assert kinds(found)[0] == expected
        beat = found.ranks[1].beat_s
        assert beat is not None and beat == pytest.approx(beat_s, abs=5)
    assert "heartbeat" in text_of(found) and found.findings[0].confidence == "medium"


def test_a_heartbeat_that_goes_on_is_life_whatever_the_clocks_say(tmp_path: Path, live: Live) -> None:
    """The other host's wall clock is an hour behind."""
    run = live(2, silent_ms=100_000, elsewhere=frozenset({1}))
    run.wait(0)
    header = run.writers[1].header
    header["wall_ns"] -= 3600 * SECOND_NS
    header["heartbeat_ns"] = time.perf_counter_ns()
    run.write()
    first = look(tmp_path)
    header["heartbeat_ns"] += SECOND_NS
    run.write()
    found = judge(look(tmp_path, first), frozenset(), 1.0)
    assert kinds(found) == [("rank_stuck", 1)]


def test_without_any_sign_of_life_nothing_is_guessed(live: Live) -> None:
    run = live(2, elsewhere=frozenset({0, 1}))
    run.wait(0)
    found = answer_to(run)
    assert (found.status, found.findings, found.suspects) == ("cannot_tell", (), ())
    assert [rank.state for rank in found.ranks] == ["unseen", "unseen"]
    assert "which rank 1 never began" in found.line and "elsewhere" in found.line


def test_an_old_trace_of_another_rank_counts_from_the_end(live: Live) -> None:
    """The file holds far more than is read, and the ring has gone round."""
    run = live(2)
    for writer in run.writers:
        writer.capacity = 16
    run.wait(0)
    found = answer_to(run)
    assert kinds(found) == [("rank_stuck", 1)]
    assert found.ranks[1].missing_from is not None and found.ranks[1].missing_from.step == STEPS


# With no time at all there are two looks nevertheless, as where this process got no core for so long.
@pytest.mark.parametrize("limit_s", [0.0, 0.2])
def test_a_run_that_goes_on_between_two_looks_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, live: Live
) -> None:
    run = live(2, silent_ms=300)
    run.wait(0)
    run.write()

    def go_on(seconds: float) -> None:
        now = time.perf_counter_ns()
        for writer in run.writers:
            writer.bucket(STEPS + 1, now - 2 * MS, now - MS, now)
        run.write()

    monkeypatch.setattr("pyddpdiag.live.hang.time.sleep", go_on)
    found = hang(tmp_path, stacks=False, limit_s=limit_s)
    assert (found.status, found.exit_code, found.findings) == ("moving", 0, ())
    assert [rank.state for rank in found.ranks] == ["moving", "moving"]


def test_a_rank_that_is_gone_is_named_before_the_others_notice(tmp_path: Path, live: Live) -> None:
    run = live(3, silent_ms=300)
    run.write()
    run.kill(2)
    found = judge(look(tmp_path), frozenset({0, 1}), 2.0)
    assert kinds(found) == [("rank_lost", 2)]
    assert (found.status, found.findings[0].confidence) == ("found", "medium")
    assert [rank.state for rank in found.ranks] == ["moving", "moving", "dead"]


@pytest.mark.parametrize(("signal", "name"), [(15, "SIGTERM"), (6, "SIGABRT"), (11, "SIGSEGV")])
def test_a_rank_that_a_signal_ended_is_no_matter_of_memory(
    tmp_path: Path, signal: int, name: str, live: Live
) -> None:
    run = live(2, silent_ms=300)
    run.writers[1].sidecar["pid"] = run.processes[1].pid
    run.write()
    (tmp_path / "rank_1.end").write_text(
        f"{run.processes[1].pid} {signal} {run.end + MS}\n", encoding="utf-8"
    )
    run.kill(1)
    found = judge(look(tmp_path), frozenset({0}), 2.0)
    assert kinds(found) == [("rank_lost", 1)] and name in found.line
    assert found.findings[0].advice and "memory use" not in found.findings[0].advice


def test_runs_that_are_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], live: Live) -> None:
    write_training(tmp_path / "good")
    assert cli.main(["hang", str(tmp_path / "good")]) == 0
    assert "every rank ended normally" in " ".join(capsys.readouterr().out.split())
    for writer in write_training(tmp_path / "no close"):
        writer.header |= {"closed": 0, "ended": 1}
        writer.write(tmp_path / "no close")
    assert cli.main(["hang", str(tmp_path / "no close")]) == 0
    assert "every rank ended normally" in " ".join(capsys.readouterr().out.split())
    run = live(2)
    run.write()
    run.kill()
    found = hang(run.folder)
    assert (found.status, [rank.state for rank in found.ranks]) == ("cannot_tell", ["dead", "dead"])
    assert cli.main(["hang", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("skipped", [False, True])
def test_a_run_that_failed_is_judged_in_the_order_of_the_report(tmp_path: Path, skipped: bool) -> None:
    """One rank waits in a call that the other does not make, and both fail; it may have `skipped` a bucket before."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    end = (1 + STEPS) * 100 * MS
    for writer in writers:
        writer.header |= {"closed": 0, "ended": 2}
        made = 0
        for step in range(STEPS):
            now = (1 + step) * 100 * MS
            writer.step(step, now, now, now + 60 * MS)
            if not skipped or (writer.rank, step) != (0, 5):
                writer.bucket(made, now + 45 * MS, now + 46 * MS, now + 52 * MS, step=step)
                made += 1
    own = writers[0].collective("gloo:barrier", end, end + 8 * MS, sequence=0, step=STEPS - 1, flags=1)
    writers[0].error(own, "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5760")
    usual = writers[1].bucket(STEPS, end, end + MS, end + 7 * MS, flags=1)
    writers[1].error(usual, "Timed out waiting 12000ms for recv operation, for a very long time")
    errors = [one for one in report_of(writers, tmp_path).verdict.findings if one.severity == "error"]
    found = answer(tmp_path)
    assert [one.message for one in found.findings] == [one.message for one in errors]
    assert errors[0].kind == ("fewer_all_reduces" if skipped else "mismatched_all_reduce")
    assert found.line == words.sentence(errors[0].message)
    failed = next(one for one in errors if one.kind == "operation_failed")
    assert failed.message.startswith("2 operations failed; the earliest on rank 1"), "the cause is known"
    # What Gloo says of its own code leaves no room for the rest.
    text = " ".join(text_of(found).split())
    assert "failed: Connection closed by peer [127.0.0.1]:5760" in text
    assert "failed: Timed out waiting 12000ms" in text and "for a very lo…" in text


def test_a_rank_that_waits_in_shared_memory_does_not_wait_in_gloo(live: Live) -> None:
    run = live(2)
    run.wait(0, flags=Flag.SHARED)
    found = answer_to(run)
    assert "waits in shared memory" in text_of(found) and "in Gloo" not in text_of(found)
    assert json.loads(hang_to_json(found))["ranks"][0]["waits_in"]["shared"] is True
    # Between hosts it is Gloo that carries it.
    several = replace(found, ranks=(found.ranks[0], replace(found.ranks[1], host="another")))
    assert "waits in shared memory or Gloo" in text_of(several)


def test_json_has_its_documented_keys(live: Live) -> None:
    run = live(2)
    run.wait(0)
    fields = json.loads(hang_to_json(answer_to(run)))
    text = DOCS.read_text(encoding="utf-8")
    for key in (*fields, *fields["ranks"][0], *fields["ranks"][0]["waits_in"]):
        assert f"`{key}`" in text, key
    assert fields["ranks"][1]["missing_from"]["open_s"] is None
    assert fields["ranks"][0]["waits_in"]["open_s"] >= 59


def test_the_report_of_a_run_that_is_held_up_points_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], live: Live
) -> None:
    run = live(2)
    run.wait(0)
    run.write()
    assert cli.main(["report", str(tmp_path)]) == 1
    assert f"pyddpdiag hang {tmp_path}" in capsys.readouterr().out
    # Nobody is left to be asked.
    run.kill()
    cli.main(["report", str(tmp_path)])
    assert "pyddpdiag hang" not in capsys.readouterr().out


def test_many_ranks_are_not_all_listed(tmp_path: Path) -> None:
    """The one that is unlike the others is."""
    writers = write_training(tmp_path, world_size=60, steps=3)
    writers[47].header["closed"] = 0
    writers[47].write(tmp_path)
    text = text_of(answer(tmp_path))
    assert "28 other ranks not shown" in text
    assert any(line.split()[:1] == ["47"] for line in text.splitlines())


def test_the_line_of_each_rank_is_said_if_it_was_seen_since_its_newest_record(live: Live) -> None:
    run = live(3)
    run.wait(0, 2)
    for writer, later in zip(run.writers, (5, 5, -3_600), strict=True):
        until = run.end + later * SECOND_NS
        writer.sidecar["seen"] = {
            "where": f"train.py:3{writer.rank}",
            "since_ns": until - 1,
            "until_ns": until,
        }
    found = answer_to(run)
    assert [rank.line for rank in found.ranks] == ["train.py:30", "train.py:31", ""]
    assert "Seen since then: rank 0 at train.py:30, rank 1 at train.py:31." in text_of(found)
