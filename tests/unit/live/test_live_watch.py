"""What `pyddpdiag watch` shows, of written runs."""

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console
from support.processor_use import NOTHING, Extra, write
from support.trace_writer import IN_FLIGHT, MS, bucket_id, write_training

from pyddpdiag import cli
from pyddpdiag.live.pulse import Pulse, Watcher
from pyddpdiag.live.watch import SHARE, display_for, picture, pulse_line, pulse_to_json, watch
from pyddpdiag.report.screen import Screen


def pulse_of(folder: Path) -> Pulse:
    return Watcher(folder).look()


def drawn(pulse: Pulse) -> str:
    out = io.StringIO()
    console = Console(file=out, width=110, highlight=False, emoji=False, markup=False)
    console.print(picture(pulse, Screen(console, True, "utf-8")))
    return out.getvalue()


def test_the_figures_are_those_of_the_run(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, compute_ms=20.0, wire_ms=2.0, late_ms={2: 7.0})
    pulse = pulse_of(tmp_path)
    assert (pulse.status, pulse.world_size, pulse.runs, pulse.step) == ("over", 3, 1, 19)
    assert [round(rank.late_ms or 0.0, 1) for rank in pulse.ranks] == [0.0, 0.0, 7.0]
    # 4 MB over three ranks in 2 ms: 4e6 * 4/3 / 2e-3 = 2.67 GB/s.
    assert pulse.busbw_gbps == pytest.approx(8 / 3, rel=0.01)
    assert pulse.step_ms is not None and pulse.reduced_gbps == pytest.approx(
        8e6 / pulse.step_ms / 1e6, rel=0.01
    )
    assert pulse.exposed_ms is not None and pulse.exposed_fraction == pytest.approx(
        pulse.exposed_ms / pulse.step_ms
    )
    assert pulse.verdict is not None and pulse.verdict.findings[0].kind == "late_rank"
    assert "late by 7.00 ms" in pulse_line(pulse)
    assert "ended" in drawn(pulse) and "Rank 2 is late" in drawn(pulse)


def test_each_rank_has_a_bar_of_where_the_time_in_view_went(tmp_path: Path) -> None:
    write(tmp_path, [Extra(sleep=90), NOTHING])
    pulse = pulse_of(tmp_path)
    late, waits = (rank.account for rank in pulse.ranks)
    assert late["blocked_s"] == pytest.approx(39 * 0.09, rel=0.02) and "unknown_s" not in late
    assert waits["rank_wait_s"] == pytest.approx(39 * 0.09, rel=0.02)
    assert sum(late.values()) == pytest.approx(sum(waits.values()), rel=0.01)
    title, mine, others, letters = drawn(pulse).partition("Where the last ")[2].splitlines()[:4]
    assert title.endswith(" went")
    # Of 40 steps of 123 ms, all but the first one; 96 letters in sum.
    slept = pytest.approx(96 * 39 * 90 / (40 * 123), abs=1)
    assert (mine.count("z"), others.count("r")) == (slept, slept)
    assert letters.strip() == "Bars: f first step, c compute, z asleep, w wire, r ranks"


def test_what_has_left_the_view_is_in_no_bar(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, NOTHING], steps=200)
    account = Watcher(tmp_path, keep=150).look().ranks[0].account
    assert not {"unknown_s", "imports_s", "set_up_s", "first_steps_s"} & set(account)
    assert 0.5 < sum(account.values()) < 3.0


def test_it_says_what_began_and_what_ended(tmp_path: Path) -> None:
    """As looks see a run's newest records: nobody is late, then rank 1 from step 130 on, then nobody again."""
    watcher = Watcher(tmp_path, keep=3 * 40)
    write(tmp_path, [NOTHING, NOTHING], steps=100)
    assert watcher.look().changes == ()
    write(tmp_path, [NOTHING, Extra(sleep=40, steps=range(130, 180))], steps=160)
    pulse = watcher.look()
    assert len(pulse.changes) == 1
    # The newest records begin in one of the late steps.
    assert " since step 131: rank 1 is late" in pulse.changes[0]
    assert "since step 131" in drawn(pulse) and json.loads(pulse_to_json(pulse))["changes"] == [
        pulse.changes[0]
    ]
    assert watcher.look().changes == pulse.changes
    write(tmp_path, [NOTHING, Extra(sleep=40, steps=range(130, 180))], steps=260)
    assert [len(watcher.look().changes) for _ in range(3)] == [1, 1, 2]
    assert watcher.look().changes[1].endswith(" step 259: late_rank of rank 1 is over")


def test_what_is_in_flight_has_its_name(tmp_path: Path) -> None:
    first, second = write_training(tmp_path, steps=8, step_records=False)
    for writer in (first, second):
        writer.header["closed"] = 0
    now = max(int(record["times"].max()) for record in first.records)
    first.bucket(16, now + MS, now + MS, 0, reference=bucket_id(1), step=8, state=IN_FLIGHT)
    for writer in (first, second):
        writer.write(tmp_path)
    pulse = pulse_of(tmp_path)
    oldest = pulse.ranks[0].oldest
    assert oldest is not None and (oldest.kind, oldest.step) == ("bucket", 8)
    assert oldest.parameters == ("layer1.weight",)
    assert pulse.ranks[1].oldest is None
    assert "layer1.weight" in drawn(pulse)


def test_json_is_one_line_each_and_has_its_documented_keys(tmp_path: Path) -> None:
    write_training(tmp_path)
    line = pulse_to_json(pulse_of(tmp_path))
    assert "\n" not in line
    fields = json.loads(line)
    text = (Path(__file__).parents[3] / "docs" / "hang.md").read_text(encoding="utf-8")
    for key in (*fields, *fields["ranks"][0]):
        assert f"`{key}`" in text, key


def test_it_waits_for_a_run_and_follows_the_next_one(tmp_path: Path) -> None:
    """The folder is made, filled, and filled again by another run, between two looks each."""
    folder = tmp_path / "later"
    out = io.StringIO()
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            folder.mkdir()
        elif looks < 4:
            for writer in write_training(folder, steps=4 * looks):
                writer.header["run_id"] = b"run %d" % looks
                writer.write(folder)
        else:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), display_for(out, as_json=True) as show:
        watch(folder, show, interval_s=1.0, pause=pause)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [each["status"] for each in lines] == ["waiting", "waiting", "over", "over"]
    assert [each["runs"] for each in lines] == [0, 0, 1, 2]
    assert [each["step"] for each in lines] == [None, None, 7, 11]
    assert lines[2]["run_id"] != lines[3]["run_id"]
    assert "no such folder" in lines[0]["line"] and "no traces" in lines[1]["line"]


def test_of_a_run_that_is_over_there_is_one_line(tmp_path: Path) -> None:
    for writer in write_training(tmp_path):
        writer.header |= {"closed": 0, "ended": 1}
        writer.write(tmp_path)
    out, looks = io.StringIO(), iter(range(3))

    def pause(seconds: float) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), display_for(out, as_json=False) as show:
        watch(tmp_path, show, interval_s=1.0, pause=pause)
    (line,) = out.getvalue().splitlines()
    assert "the run is over at step" in line


def test_it_keeps_to_its_share_of_a_core(tmp_path: Path) -> None:
    """However short the interval: the pause after a look is as long as the look was costly."""
    write_training(tmp_path, world_size=4)
    pauses: list[float] = []
    begin, spent = time.monotonic(), time.process_time()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), display_for(io.StringIO(), as_json=False) as show:
        watch(tmp_path, show, interval_s=0.0, pause=pause)
    spent = time.process_time() - spent
    assert 0 < spent <= 1.2 * SHARE * (sum(pauses) + time.monotonic() - begin)


def test_once_ends_with_the_verdicts_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(tmp_path), "--once"]) == 2
    assert "waiting: " in capsys.readouterr().out
    write_training(tmp_path / "late", steps=20, late_ms={1: 30.0})
    assert cli.main(["watch", str(tmp_path / "late"), "--once", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"]["status"] == "findings"
    file = tmp_path / "late" / "rank_0.ddptrace"
    assert cli.main(["watch", str(file)]) == 2
    assert "is a file" in capsys.readouterr().err


def test_names_from_elsewhere_control_no_terminal(tmp_path: Path) -> None:
    (writer,) = write_training(tmp_path, world_size=1)
    writer.sidecar["host"] = "evil\x1b]0;title\x07"
    writer.write(tmp_path)
    pulse = pulse_of(tmp_path)
    assert "\x1b" not in drawn(pulse) + pulse_line(pulse) + pulse_to_json(pulse)
    assert "evil" in drawn(pulse)
