"""A trial of cures in the report: as text, JSON and page, from what the ranks or the starts have noted."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.pages import skip_without
from support.trace_writer import write_training

from pyddpdiag import pipeline
from pyddpdiag.integrations import recorded_command
from pyddpdiag.integrations.tried_command import Files
from pyddpdiag.live.pulse import Watcher
from pyddpdiag.live.watch import pulse_line
from pyddpdiag.model.fields import to_json
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.tried import (
    AS_IT_IS,
    NAME,
    TODAY,
    Block,
    Tried,
    TriedCure,
    tried_from_json,
    tried_to_json,
)
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import read_report, report_to_json
from pyddpdiag.report.run.page import sections
from pyddpdiag.report.text import print_text
from pyddpdiag.report.trial import answer, compared, status, table

LAUNCH = Launch(("torchrun", "--nproc-per-node", "2", "train.py"), {"--interface": "eth0"})


def blocks(step_s: float) -> tuple[Block, ...]:
    return tuple(Block(n, step_s, step_s / 4, 8, 0.0, 10 * n, 10 * n + 9) for n in range(8))


TODAY_S = TriedCure(AS_IT_IS, rounds=8, step_ms=20.0, exposed_ms=5.0, same_bits=True, blocks=blocks(0.020))
FASTER = TriedCure(
    "shared memory",
    {"--shared-memory": "auto"},
    8,
    12.0,
    0.6,
    0.59,
    0.61,
    8.0,
    3.0,
    True,
    blocks=blocks(0.012),
)
SAME = TriedCure(
    "views", {"--gradient-as-bucket-view": ""}, 8, 20.0, 1.0, 0.99, 1.01, 0.0, 5.0, True, blocks=blocks(0.020)
)
FAILED = TriedCure("bf16", {"--compress": "bf16"}, same_bits=False, left="rank 1: out of memory")
DECIDED = Tried(
    "in_run",
    "decided",
    TODAY_S,
    (FASTER, SAME, FAILED),
    best="shared memory",
    kept="shared memory",
    minutes=5,
)


def run_with(folder: Path, trial: Tried) -> Path:
    for writer in write_training(folder, steps=40):
        writer.sidecar |= {
            "trial": tried_to_json(trial),
            "recorded_by": "run",
            "launch": to_json(LAUNCH),
            "platform": "Linux",
        }
        writer.write(folder)
    return folder


def text_of(folder: Path) -> str:
    out = io.StringIO()
    print_text(load_report(folder), out)
    return out.getvalue()


def tried(*cures: TriedCure, **more: object) -> Tried:
    today = TriedCure("as it is", rounds=3, step_ms=20.0)
    return Tried("restart", "decided", today, cures, **more)  # type: ignore[arg-type]


def test_what_the_ranks_noted_becomes_a_table_and_a_line_of_this_run(tmp_path: Path) -> None:
    run_with(tmp_path, DECIDED)
    text = text_of(tmp_path)
    assert "Shared memory takes the step to 0.60 (0.59 to 0.61) of what it is, 8.00 ms less." in text
    assert "It is kept." in " ".join(text.split())
    assert "left: rank 1: out of memory" in text
    line = "    pyddpdiag run --interface eth0 --shared-memory auto -- torchrun --nproc-per-node 2 train.py\n"
    assert line in text
    found = load_report(tmp_path).tried
    assert found is not None and found.today.rounds == 8 and found.cures[0].rounds == 8
    assert found.cures[0].saved_ms == 8.0 and found.cures[2].same_bits is False


def test_the_saved_report_has_it_too(tmp_path: Path) -> None:
    report = load_report(run_with(tmp_path, DECIDED))
    (tmp_path / "saved.json").write_text(report_to_json(report))
    assert read_report(tmp_path / "saved.json").tried == report.tried


def test_the_page_has_a_section_with_a_chart_of_intervals(tmp_path: Path) -> None:
    report = load_report(run_with(tmp_path, DECIDED))
    (section,) = [one for one in sections(report, None) if one.title == "Trial of cures"]
    (chart,) = [part for part in section.parts if getattr(part, "name", "") == "trial"]
    names = [name for one in chart.panels[0].series for name in [one.name] * len(one.intervals)]  # type: ignore[union-attr]
    assert names == ["faster", "no sure difference"]
    assert chart.panels[0].y.labels == ["shared memory", "views"]  # type: ignore[union-attr]


def test_a_run_with_a_trial_is_analysed_once_for_the_screen_and_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("plotly")
    folder = run_with(tmp_path / "run", DECIDED)
    analysed: list[Path] = []

    def counted(source: Path, **options: object) -> RunReport:
        analysed.append(source)
        return load_report(source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "load_report", counted)
    report = recorded_command.show(folder)
    assert report is not None and report.tried is not None
    files = Files(tmp_path / "tried.json", tmp_path / "run.html")
    files.write(report.tried, folder, report)
    assert analysed == [folder]
    assert json.loads((tmp_path / "tried.json").read_text(encoding="utf-8"))["best"] == "shared memory"
    assert "What each cure does to the step" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_a_terminal_that_hung_up_keeps_the_report_for_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HungUp(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    folder = run_with(tmp_path, DECIDED)
    monkeypatch.setattr("sys.stderr", HungUp())
    report = recorded_command.show(folder)
    monkeypatch.undo()
    assert report is not None and report.tried is not None and report.tried.best == "shared memory"


def test_nothing_to_gain_is_said_plainly() -> None:
    same = TriedCure("views", rounds=9, step_ms=20.1, ratio=1.0, ratio_low=0.99, ratio_high=1.01)
    assert answer(tried(same)) == "Nothing to gain: views is not faster than today's setting."
    wide = replace(same, name="pin-ranks", ratio_low=0.7, ratio_high=1.3)
    assert answer(tried(same, wide)).startswith("No sure gain: no interval lies below 1. pin-ranks might")
    # Nobody knows what a cure with too few rounds is worth, whatever others are.
    few = TriedCure("shared memory", rounds=2, ratio=0.6)
    slow = TriedCure("threads 2", rounds=1, left="its step takes 2.58 of what it is")
    assert answer(tried(same, few)) == (
        "No sure gain: no interval lies below 1. Of shared memory too little is known: more rounds would tell."
    )
    assert tried(slow, few).verdict == "could not judge" and not tried(slow, few).judged
    assert answer(tried(slow, few)) == "The trial could not judge."
    assert tried(slow).verdict == "nothing to gain"
    assert answer(tried()) == "Nothing was tried."
    assert answer(tried(TriedCure("views"))) == "The trial could not judge."


def test_the_verdict_has_the_same_words_in_text_json_page_and_watch(tmp_path: Path) -> None:
    # Today's setting beside itself: no interval lies below 1.
    nothing = replace(DECIDED, cures=(SAME,), best=TODAY, kept=TODAY)
    report = load_report(run_with(tmp_path, nothing))
    assert report.tried is not None and nothing.verdict == report.tried.verdict == "nothing to gain"
    assert json.loads(report_to_json(report))["tried"]["verdict"] == "nothing to gain"
    assert tried_to_json(report.tried)["verdict"] == "nothing to gain"
    assert "Nothing to gain: views is not faster" in text_of(tmp_path)
    assert status(report.tried) == "trial of cures: nothing to gain"
    assert "trial of cures: nothing to gain" in pulse_line(Watcher(tmp_path).look())
    (section,) = [one for one in sections(report, None) if one.title == "Trial of cures"]
    assert any("Nothing to gain: views" in str(part) for part in section.parts)
    assert DECIDED.verdict == "faster"
    assert replace(nothing, state="running").verdict == "not over"


def test_what_was_expected_stands_beside_what_was_measured() -> None:
    cure = TriedCure("shared memory", rounds=6, ratio=0.6, saved_ms=8.0, predicted_saved_ms=10.0)
    assert compared(cure) == "shared memory: 10.0 ms were expected, and it saves 8.00 ms (80% of that)."
    assert table(tried(cure)).columns["predicted"] == ["", "10.0"]
    assert "predicted" not in table(tried(replace(cure, predicted_saved_ms=None))).columns


def test_watch_says_which_cure_is_on(tmp_path: Path) -> None:
    run_with(tmp_path, replace(DECIDED, state="running", kept="", now="views"))
    for path in tmp_path.glob("*.json"):
        path.write_text(path.read_text().replace('"closed": true', '"closed": false'))
    pulse = Watcher(tmp_path).look()
    assert pulse.status == "over" or "trial of cures, views is on" in pulse_line(pulse)


def test_watch_follows_a_trial_by_starts(tmp_path: Path) -> None:
    going = replace(tried(TriedCure("pin-ranks")), state="running", now="pin-ranks")
    (tmp_path / NAME).write_text(json.dumps(tried_to_json(going)))
    pulse = Watcher(tmp_path).look()
    assert pulse.trial == "trial of cures, now with pin-ranks" and "now with pin-ranks" in pulse.line


def test_a_file_that_anybody_wrote_does_no_harm() -> None:
    whole = tried_to_json(
        tried(TriedCure("views", {"--x": "1"}, 3, 1.0, 0.9, 0.8, 1.0, -2.5, 0.5, True, "", 1.0, "l"))
    )
    assert tried_from_json(whole) == tried_from_json(json.loads(json.dumps(whole)))
    assert tried_from_json(whole) is not None
    for bad in (None, [], {**whole, "state": "odd"}, {**whole, "cures": 3}):
        assert tried_from_json(bad) is None
    odd = {**whole["cures"][0], "name": "\x1b[2J", "ratio": "x", "step_ms": float("inf"), "rounds": -1}
    found = tried_from_json({**whole, "cures": [odd]})
    assert found is not None
    assert "\x1b" not in found.cures[0].name and found.cures[0].ratio is found.cures[0].step_ms is None


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (0.96, 0.91, 1.02, "--minutes 8 would decide it."),
        (1.00, 0.95, 1.05, "--minutes 25 would decide it."),
        (1.00, 0.80, 1.20, "An hour would not decide it"),
        (1.00, None, None, "--minutes 16 would decide it."),
    ],
)
def test_an_undecided_trial_says_what_would_decide_it(
    ratio: float, low: float | None, high: float | None, said: str
) -> None:
    cure = TriedCure("views", rounds=3, ratio=ratio, ratio_low=low, ratio_high=high)
    assert said in answer(replace(tried(cure, minutes=4.0), state="time_over"))


def test_a_decided_trial_says_nothing_of_that() -> None:
    cure = TriedCure("views", rounds=3, ratio=0.8, ratio_low=0.75, ratio_high=0.85)
    assert "--minutes" not in answer(tried(cure, best="views", minutes=4.0))
