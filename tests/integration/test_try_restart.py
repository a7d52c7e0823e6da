"""`pyddpdiag try --restart`: real starts of a script that knows nothing of it."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from train_support import ROOT, USUAL, environment, finish, started

from pyddpdiag.cli import main
from pyddpdiag.cures import trial_schedule
from pyddpdiag.cures.options import Cures
from pyddpdiag.integrations import restart_trial
from pyddpdiag.integrations.short_start import Limits, run_shortly, steps_of
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.model.tried import NAME, Tried, tried_from_json
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.notes import read_trial

JOB = str(ROOT / "tests" / "support" / "tried_job.py")
TRY = (sys.executable, "-m", "pyddpdiag", "try", "--restart")
FOREVER = "1000000"


Tries = Callable[..., tuple[int, str]]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tries:
    """Exit code and standard error of `pyddpdiag try --restart`, in this process; the ranks are ordinary ones."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment(**USUAL).items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> tuple[int, str]:
        code = main(["try", "--restart", *words])
        return code, capsys.readouterr().err

    return run


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
    tmp_path: Path, tried: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No more and no longer starts than show each setting, whether or not so few can tell which is faster.
    monkeypatch.setattr(trial_schedule, "MOST_BLOCKS", 3)
    monkeypatch.setattr(restart_trial, "_TRAIN_S", (4.0, 4.0))
    mark = str(tmp_path)
    options = ("--cures", "shared-memory,interface=nowhere0", "--trace", "trial", "--json", "result.json")
    launch = ("--nproc", "2", "--", JOB, "communication", FOREVER, "-", mark)
    code, err = tried(*options, "--minutes", "30", *launch)
    found = read_trial(tmp_path / "trial")
    assert found is not None and (found.way, found.state) == ("restart", "time_over"), err
    shared, nowhere = found.cures
    assert (
        shared.name == "shared memory" and shared.same_bits and shared.options == {"--shared-memory": "auto"}
    )
    # The line is this run's own.
    assert (
        shared.line
        == f"pyddpdiag run --nproc 2 --shared-memory auto -- {JOB} communication {FOREVER} - {mark}"
    )
    # A cure whose ranks fail is left, and named.
    assert nowhere.left.startswith("the command ended with exit code 1 before any module had trained")
    assert "nowhere0" in nowhere.left and found.best != nowhere.name
    assert code == (0 if found.judged else 2), err
    # In the middle of a sentence, if any tells of it.
    assert "As it is" not in err
    assert tried_from_json(json.loads((tmp_path / "result.json").read_text())) == found
    # Shared memory was on in its starts, and in no other.
    starts = sorted((tmp_path / "trial").glob("start-*"))
    assert len(starts) == 5 and any("shared-memory" in folder.name for folder in starts)
    for folder in starts:
        if "nowhere0" not in folder.name:
            lasting = [bucket for bucket in load_report(folder).buckets if not bucket.first_steps_only]
            on = {bucket.shared_memory for bucket in lasting}
            assert on == {"shared-memory" in folder.name}, folder
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
def test_what_no_trial_is_possible_of_is_said(tmp_path: Path, tried: Tries, script: str, said: str) -> None:
    (tmp_path / "script.py").write_text(script)
    code, err = tried("--trace", "trial", "--nproc", "2", "--", "script.py")
    assert code == 2 and said in err and "Nothing was tried: " in err


def test_a_second_trial_needs_a_folder_of_its_own(tmp_path: Path, tried: Tries) -> None:
    (tmp_path / NAME).write_text("{}")
    code, err = tried("--trace", ".", "--nproc", "2", "--", JOB, "communication", "1", "-")
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
