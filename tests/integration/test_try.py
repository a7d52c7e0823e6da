"""`pyddpdiag try` in one run: cures take turns in a script that knows nothing of it, whose result stays the same."""

import json
import sys
from pathlib import Path

import pytest
from train_support import ROOT, ended

from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_report

JOB = str(ROOT / "tests" / "support" / "tried_job.py")
PYDDPDIAG = (sys.executable, "-m", "pyddpdiag")
STEPS = "120"


def test_a_trial_in_one_run_is_written_everywhere(tmp_path: Path) -> None:
    """That it keeps the bits of the training: test_trial_bits.py, and test_try_frameworks.py for whole scripts."""
    files = ("--trace", "trial", "--json", "result.json", "--html", "page.html")
    job = ("--nproc", "2", "--", JOB, "communication", STEPS, "-")
    code, err = ended(*PYDDPDIAG, "try", "--minutes", "20", *files, *job, cwd=tmp_path)
    # The training is over before a trial of 20 minutes: it may or may not have judged by then.
    assert code in (0, 2) and "What was tried" in err, err
    tried = load_report(tmp_path / "trial").tried
    assert tried is not None and tried.way == "in_run"
    names = {one.name for one in tried.cures}
    assert "shared memory" in names and any(name.startswith("buckets") for name in names)
    assert all(one.same_bits for one in tried.cures)
    written = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in written["cures"]] == [one.name for one in tried.cures]
    assert "What was tried" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cures", "magic"), "there is no cure 'magic' to try"),
        (("--cures", "threads"), "pyddpdiag try --restart takes it"),
        (("--minutes", "0"), "--minutes 0 cannot be right"),
        (("--restart", "--stop"), "--stop ends a trial in one run"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", *options, "--nproc", "2", "--", JOB, "compute", "1", "-"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_script_without_ddp_says_that_nothing_was_tried(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("print(1)\n", encoding="utf-8")
    code, err = ended(*PYDDPDIAG, "try", "--nproc", "2", "--", "alone.py", cwd=tmp_path)
    assert code == 2 and "nothing was recorded" in err, err
