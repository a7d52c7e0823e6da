"""`pyddpdiag try --restart`: real starts of a script that knows nothing of it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psutil
import pytest
from train_support import ROOT, ended, finish, started

from pyddpdiag.cures.options import Cures
from pyddpdiag.cures.trial_candidates import wanted_of
from pyddpdiag.integrations.restart_trial import RestartTrial
from pyddpdiag.integrations.short_start import Limits, run_shortly, steps_of
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.model.tried import NAME, Tried, tried_from_json
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.notes import read_trial

JOB = str(ROOT / "tests" / "support" / "tried_job.py")
TRY = (sys.executable, "-m", "pyddpdiag", "try", "--restart")
FOREVER = "1000000"


def tried(*command: str, cwd: Path) -> tuple[int, str]:
    """Exit code and standard error."""
    return ended(*TRY, *command, cwd=cwd)


def of(script: str) -> list[psutil.Process]:
    """The processes that run it on this machine, with these arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if script in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_settings_take_turns_in_starts_of_their_own_and_the_result_is_everywhere_the_same(
    tmp_path: Path,
) -> None:
    mark = str(tmp_path)
    options = ("--cures", "shared-memory", "--trace", "trial", "--json", "result.json")
    launch = ("--nproc", "2", "--", JOB, "communication", FOREVER, "-", mark)
    code, err = tried(*options, "--minutes", "2", *launch, cwd=tmp_path)
    found = read_trial(tmp_path / "trial")
    assert found is not None and found.way == "restart" and found.state in ("decided", "time_over"), err
    (shared,) = found.cures
    assert (
        shared.name == "shared memory" and shared.same_bits and shared.options == {"--shared-memory": "auto"}
    )
    # The line is this run's own.
    assert (
        shared.line
        == f"pyddpdiag run --nproc 2 --shared-memory auto -- {JOB} communication {FOREVER} - {mark}"
    )
    # How many rounds there are in that time depends on the machine.
    assert code == (0 if found.judged else 2), err
    # In the middle of a sentence, if any tells of it: a slow machine may have made one start only.
    assert "As it is" not in err
    if shared.ratio_low is not None and shared.ratio is not None and shared.ratio_high is not None:
        assert shared.ratio_low <= shared.ratio <= shared.ratio_high
    assert tried_from_json(json.loads((tmp_path / "result.json").read_text())) == found
    # Shared memory was on in its starts, and in no other.
    starts = sorted((tmp_path / "trial").glob("start-*"))
    assert len(starts) >= 2
    for folder in starts:
        lasting = [bucket for bucket in load_report(folder).buckets if not bucket.first_steps_only]
        assert lasting and all(b.shared_memory == ("shared-memory" in folder.name) for b in lasting), folder
    report = load_report(tmp_path / "trial")
    assert report.tried == found
    assert any("holds a trial by starts" in warning for warning in report.warnings)
    assert not of(mark), "ranks were left behind"


def test_a_start_that_never_trains_and_a_signal_end_it_and_leave_nothing_behind(tmp_path: Path) -> None:
    mark = f"{tmp_path}/marked"
    launch = ["--trace", "trial", "--nproc", "2", "--", JOB, "communication", FOREVER, "-", mark]
    with started([*TRY, "--cures", "shared-memory", *launch], tmp_path) as process:
        # Any moment of its first or second start.
        while not any(steps_of(each) for each in tmp_path.glob("trial/start-*")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
    assert code == 128 + signal.SIGINT, err
    found = read_trial(tmp_path / "trial")
    assert found is None or found.state == "interrupted", err
    assert not of(mark)


def test_a_cure_whose_ranks_fail_is_left_and_named(tmp_path: Path) -> None:
    wanted = [wanted_of("interface=nowhere0", in_run=False)]
    command = [JOB, "communication", FOREVER, "-"]
    trial = RestartTrial(command, Start(2), wanted, tmp_path / "trial", 240)
    found = trial.run()
    assert found.state == "decided" and not found.best
    assert found.cures[0].left.startswith("the command ended with exit code 1 before any module had trained")
    assert "nowhere0" in found.cures[0].left


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("print('hello')", "no DistributedDataParallel module trained over Gloo"),
        ("raise ValueError('no data')", "by ValueError: no data"),
        (
            "import runpy, sys; sys.argv[1:] = ['communication', '3', '-']; "
            f"runpy.run_path({JOB!r}, run_name='__main__')",
            "only 3 steps could be counted",
        ),
    ],
    ids=["no-ddp", "fails", "few-steps"],
)
def test_what_no_trial_is_possible_of_is_said(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "script.py").write_text(script)
    code, err = tried("--trace", "trial", "--nproc", "2", "--", "script.py", cwd=tmp_path)
    assert code == 2 and said in err and "Nothing was tried: " in err


def test_a_second_trial_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{}")
    code, err = tried("--trace", ".", "--nproc", "2", "--", JOB, "communication", "1", "-", cwd=tmp_path)
    assert code == 2 and "there is a trial or a trace already" in err


def test_a_short_start_ends_by_itself_when_its_time_is_over(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(3600)")
    found = run_shortly([str(script)], tmp_path / "start", Cures(), Start(1), Limits(1.0, 1.0, 1.0))
    assert found.why == "no step was trained within 1 s"
    assert not of(str(script))


def test_what_is_no_trial_is_none(tmp_path: Path) -> None:
    for text in ("", "[]", '{"schema_version": 1}', '{"schema_version": 1, "way": "restart", "state": "?"}'):
        (tmp_path / NAME).write_text(text)
        found: Tried | None = read_trial(tmp_path)
        assert found is None
