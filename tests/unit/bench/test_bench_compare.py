"""Comparing result files: what is comparable, what the ratio says, what the article's table says."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from sample_entries import file, reduce, step, training
from support.commands import python

from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.compare.shown import page, print_comparison
from pyddpdiag.bench.compare.tables import tables
from pyddpdiag.bench.results import article, save
from pyddpdiag.cli import main
from pyddpdiag.errors import NotComparableError, ResultError


def text_of(*files: object) -> str:
    out = io.StringIO()
    print_comparison(compare(files), out)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("times", "word"), [(1.0, "no difference"), (1.03, "no difference"), (1.3, "slower"), (0.7, "faster")]
)
def test_the_verdict_follows_the_interval(times: float, word: str) -> None:
    found = compare([file("a", step(0.01, 1)), file("b", step(0.01 * times, 2))]).pairs
    assert [pair.word for pair in found] == [word]
    assert found[0].ratio.low < found[0].ratio.median < found[0].ratio.high
    assert found[0].ratio.median == pytest.approx(times, rel=0.03)


def test_interfaces_of_other_systems_are_paired_where_there_is_one() -> None:
    windows = step(0.02, interface="Loopback Pseudo-Interface 1", system="Windows")
    assert len(compare([file("a", step()), file("b", windows)]).pairs) == 1
    two = file("a", step(), step(interface="eth0"))
    with pytest.raises(NotComparableError, match="no case in common"):
        compare([two, file("b", windows, step(interface="Ethernet"))])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "mlp"}, "model is digits-cnn in a, mlp in b"),
        ({"batch_size": 64}, "batch_size is 32 in the one and 64 in the other"),
        ({"dtype": "bfloat16"}, "dtype is float32 in the one and bfloat16 in the other"),
        ({"bucket_cap_mb": 1.0, "first_bucket_mb": 1.0}, "bucket_cap_mb is 25.0 in a, 1.0 in b"),
    ],
)
def test_what_differs_is_said(change: dict[str, object], words: str) -> None:
    with pytest.raises(NotComparableError, match=r"compared|in common") as caught:
        compare([file("a", step()), file("b", step(**change))])
    assert words in str(caught.value)


def test_another_batch_is_refused_even_beside_what_fits() -> None:
    ours = file("a", step(), training(2, 10.0))
    with pytest.raises(NotComparableError, match="batch_size is 64 in the one and 128"):
        compare([ours, file("b", step(), training(2, 10.0, batch_size=128))])


def test_kinds_without_overlap_are_refused() -> None:
    with pytest.raises(NotComparableError, match="a holds step, b holds allreduce"):
        compare([file("a", step()), file("b", reduce("lo", 0.1))])


def test_the_same_case_twice_is_refused() -> None:
    with pytest.raises(ResultError, match="same case twice"):
        compare([file("a", step(seed=1), step(seed=2))])


def test_cases_of_one_side_are_listed() -> None:
    found = compare([file("a", step(), step(hook="native")), file("b", step())])
    assert len(found.pairs) == 1
    assert list(found.only) == ["a, not b"]
    assert "native" in found.only["a, not b"][0]


def test_the_cause_is_the_part_that_moved() -> None:
    slow = {"compute_s": 0.009, "exposed_s": 0.004, "queue_s": 0.001, "wire_s": 0.004}
    fast = {"compute_s": 0.008, "exposed_s": 0.001, "queue_s": 0.001, "wire_s": 0.001}
    found = compare([file("a", step(0.009, split=fast)), file("b", step(0.013, split=slow))]).pairs[0]
    assert found.cause == "exposed communication 3.00 ms, by wire"
    assert found.parts["wire_s"] == pytest.approx(0.003)
    same = compare([file("a", step(0.009, split=fast)), file("b", step(0.009, split=slow))]).pairs[0]
    assert same.cause == ""


def test_parts_of_steps_and_of_whole_trainings_share_no_column() -> None:
    parts = {"compute_s": 0.008, "exposed_s": 0.001, "queue_s": 0.001, "wire_s": 0.001}
    longer = {name: 1000 * seconds for name, seconds in parts.items()}
    entries = (step(0.009, split=parts), training(2, 90.0, split=longer))
    more = {name: 2 * seconds for name, seconds in longer.items()}
    found = compare([file("a", *entries), file("b", step(0.009, split=parts), training(2, 99.0, split=more))])
    assert [pair.kind for pair in found.pairs] == ["step", "scaling"]
    first, second = [table for table in tables(found) if "ratio of times" in table.title]
    assert "(d) in ms of a step" in first.title and first.columns["d wire"] == ["+0"]
    assert "(d) in s of the whole training" in second.title and second.columns["d wire"] == ["+1"]


def test_the_articles_table() -> None:
    rows = {row.label: row for row in compare([article()]).scaling}
    assert rows["article, Linux"].speedup[4] == pytest.approx(3.29, abs=0.005)
    assert rows["article, Windows"].speedup[2] == pytest.approx(1.85, abs=0.005)
    assert rows["article, Windows"].efficiency[4] == pytest.approx(3.09 / 4, abs=0.002)
    shown = text_of(article())
    assert "56m 58s" in shown and "19m 3s" in shown and "3.09 (77%)" in shown


def test_a_users_table_stands_beside_the_articles() -> None:
    mine = file("mine", training(1, 90.0), training(2, 50.0), training(4, 30.0))
    found = compare([mine])
    assert [row.reference for row in found.scaling] == [False, True, True]
    assert found.scaling[0].speedup == {1: 1.0, 2: 1.8, 4: 3.0}
    assert [len(curve.loss) for curve in found.curves] == [3, 3, 3]
    shown = text_of(mine)
    assert "article, Windows" in shown and "not measured here" in shown and "1m 30s" in shown
    assert [row.label for row in compare([mine], with_article=False).scaling] == ["mine"]


def test_steps_grow_with_the_ranks() -> None:
    row = compare([file("a", step(0.01, world_size=1), step(0.0125, world_size=2))]).scaling[0]
    assert row.speedup[2] == pytest.approx(1.6, rel=0.05)


def test_one_run_of_a_training_is_not_judged() -> None:
    pair = compare([file("a", training(2, 50.0)), file("b", training(2, 80.0))]).pairs[0]
    assert pair.word == "cannot tell"
    assert pair.ratio.median == pytest.approx(1.6)


def test_a_busy_machine_is_warned_of() -> None:
    busy = step(load_before=9.0, cores=2)
    notes = compare([file("a", busy), file("b", step(load_before=0.4, cores=2))]).notes
    assert len(notes) == 1 and notes[0].startswith("a: the machine was busy")
    assert "load 9.00 on 2 cores" in text_of(file("a", busy), file("b", step()))


def test_html_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    found = compare([file("a", step(), step(hook="x", interface=evil, system=evil)), file("b", step())])
    html = page(found)
    assert evil not in html and "&lt;script&gt;" in html


def test_files_are_written_and_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    pytest.importorskip("plotly", reason="pages need plotly")
    for name, factor in (("a", 1.0), ("b$_{x}", 2.0)):
        entries = [step(0.01 * factor), *(training(n, 90.0 * factor / n) for n in (1, 2))]
        save(tmp_path / f"{name}.json", entries)
    command = ["compare", str(tmp_path / "a.json"), str(tmp_path / "b$_{x}.json"), "--output-dir"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert "slower" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("compare-loss.png", "compare-ratios.png", "compare-speed-up.png"),
        *("compare-trainings.png", "compare.html", "compare.json"),
    ]
    assert (tmp_path / "out" / "compare-ratios.png").read_bytes().startswith(b"\x89PNG")
    assert 'data-chart="ratios"' in (tmp_path / "out" / "compare.html").read_text(encoding="utf-8")
    written = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert {pair["word"] for pair in written["pairs"]} == {"slower", "cannot tell"}
    assert main([*command, str(tmp_path / "out")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "out"), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_comparing_needs_no_torch(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", [step(), training(1, 2.0)])
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['pyddpdiag._native'] = None\n"
        f"from pyddpdiag.cli import main; sys.exit(main(['compare', {str(path)!r}]))"
    )
    done = python("-c", code, timeout_s=60)
    assert done.returncode == 0, done.stderr
    assert "article" in done.stdout
