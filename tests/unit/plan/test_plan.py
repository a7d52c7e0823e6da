"""Plans from written runs whose every time is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import GROUP, MS, PARAMETER, STEP, RankWriter, write_training

from pyddpdiag.analyse.bounds import BYTES_SHARE, LATENCY_SHARE
from pyddpdiag.analyse.step_matrix import matrix
from pyddpdiag.bench.compare.runs import compare_runs
from pyddpdiag.cli import main
from pyddpdiag.model.words import milliseconds
from pyddpdiag.pipeline import load_report
from pyddpdiag.plan.read import plan_folder
from pyddpdiag.plan.ring import HALVED
from pyddpdiag.plan.settings import Plan, Row
from pyddpdiag.plan.text import scaling_sentence
from pyddpdiag.report.run.verdict import figures

ROUND_MS, MS_PER_MIB = 0.5, 4.0
PARAMETERS = 12
"""Of 1 MiB each, in the first bucket 1, then 3, then 8."""
LAYOUT = ((0,), (1, 2, 3), tuple(range(4, PARAMETERS)))
BEGINS_MS, ENDS_MS = 20.0, 80.0


def ready_ms(index: int) -> float:
    """Evenly over backward."""
    return BEGINS_MS + (ENDS_MS - BEGINS_MS) * (index + 1) / PARAMETERS


def write(
    folder: Path,
    *,
    steps: int = 20,
    ranks: int = 2,
    late_ms: float = 0.0,
    host: str = "host{}",
    parameter_times: bool = True,
    layout: tuple[tuple[int, ...], ...] = LAYOUT,
    unexplained_ms: float = 0.0,
    pause_ms: float = 0.0,
) -> None:
    """A run over a ring whose buckets do not meet; the last rank is late.

    `unexplained_ms`: what the last bucket takes longer in every other step. `pause_ms`: of all ranks, in every fifth.
    """
    writers = [RankWriter(rank, ranks, capacity=8192) for rank in range(ranks)]
    rounds = 2 * (ranks - 1)
    for rank, writer in enumerate(writers):
        writer.sidecar["host"] = host.format(rank)
        writer.sidecar["modules"] = [
            {
                "index": 0,
                "name": "Net",
                "group": f"{GROUP:016x}",
                "bucket_cap_mb": 25.0,
                "parameters": [
                    {"name": f"p{index}", "shape": [512, 512], "dtype": "float32"}
                    for index in range(PARAMETERS)
                ],
            }
        ]
        writer.sidecar["buckets"] = [
            {
                "id": f"{100 + place:016x}",
                "module": 0,
                "index": place,
                "parameters": list(part),
                "bytes": len(part) << 20,
                "dtype": "float32",
            }
            for place, part in enumerate(layout)
        ]
    now = 10**9
    for step in range(steps):
        free, spans = 0.0, []
        pause = pause_ms if step % 5 == 2 else 0.0
        for part in layout:
            begun = max(free, max(map(ready_ms, part)) + late_ms + pause)
            free = begun + rounds * ROUND_MS + rounds / ranks * len(part) * MS_PER_MIB
            spans.append((begun, free))
        end = now + int((free + unexplained_ms * (step % 2)) * MS)
        for rank, writer in enumerate(writers):
            late = pause + (late_ms if rank == ranks - 1 else 0.0)
            writer.step(step, now, now, end)
            writer.backward(step, now, now + int((ENDS_MS + late) * MS), end)
            for index in range(PARAMETERS if parameter_times and step % 4 == 0 else 0):
                at = now + int((ready_ms(index) + late) * MS)
                writer.add(PARAMETER, times=(at,), step=step, module=0, index=index, bytes=1 << 20)
            for place, (begun, ended) in enumerate(spans):
                last = place == len(layout) - 1
                writer.bucket(
                    step * len(layout) + place,
                    now + int((max(map(ready_ms, layout[place])) + late) * MS),
                    now + int(begun * MS),
                    end if last else now + int(ended * MS),
                    reference=100 + place,
                    step=step,
                    bytes=len(layout[place]) << 20,
                )
        now = end
    for writer in writers:
        writer.write(folder)


def row(plan: Plan, **setting: Any) -> Row:
    (found,) = [
        each
        for each in plan.rows
        if all(getattr(each, name) == value for name, value in ({"kind": "planned"} | setting).items())
    ]
    return found


def test_the_replay_gives_the_run_s_own_step(tmp_path: Path) -> None:
    write(tmp_path)
    plan = plan_folder(tmp_path)
    recorded, replayed = row(plan, kind="recorded"), row(plan, kind="replayed")
    assert recorded.step_ms == pytest.approx(ENDS_MS + 1.0 + 32.0)
    assert replayed.step_ms == pytest.approx(recorded.step_ms, rel=1e-3)
    assert replayed.exposed_ms == pytest.approx(33.0, rel=1e-3)
    assert plan.round_ms == pytest.approx(ROUND_MS, rel=0.01)
    assert plan.bandwidth_gbit == pytest.approx(8 * (1 << 20) / MS_PER_MIB * 1e-6, rel=0.01)


def test_other_ranks_links_and_layouts(tmp_path: Path) -> None:
    write(tmp_path)
    plan = plan_folder(tmp_path, ranks="2,8", bucket_cap_mb="4,100")
    # 8 ranks: 14 rounds, and 14/8 of the bytes; the second bucket delays none, so the last one tells.
    eight = row(plan, ranks=8, bucket_cap_mb=None, straggler=True)
    assert eight.step_ms == pytest.approx(ENDS_MS + 14 * ROUND_MS + 14 / 8 * 8 * MS_PER_MIB, rel=1e-3)
    # Three buckets of 4 MiB, ready at 40, 60, 80 ms: 17 ms each, of which only the last is exposed.
    four = row(plan, ranks=2, bucket_cap_mb=4.0)
    assert (four.buckets, four.step_ms) == (3, pytest.approx(ENDS_MS + 17.0, rel=1e-3))
    one = row(plan, ranks=2, bucket_cap_mb=100.0)
    assert (one.buckets, one.step_ms) == (1, pytest.approx(ENDS_MS + 49.0, rel=1e-3))
    # Of 1, 3, 3, 3 and 2 MiB: the fourth, ready at 70 ms, takes 13 ms and shares the link with the last one.
    uneven = row(plan_folder(tmp_path, bucket_cap_mb="1:3"), bucket_cap_mb_list=(1.0, 3.0))
    assert uneven.setting == "2 ranks, buckets of 1, 3 MiB"
    assert (uneven.buckets, uneven.step_ms) == (
        5,
        pytest.approx(ENDS_MS + 1.0 + 2 * MS_PER_MIB + 3.0, rel=1e-3),
    )
    for each in plan.rows:
        assert each.low_ms is not None and each.step_ms is not None and each.high_ms is not None
        assert each.low_ms <= each.step_ms <= each.high_ms
    faster = plan_folder(tmp_path, bandwidth="10Gbit", latency="0.1ms")
    assert row(faster, straggler=True).step_ms == pytest.approx(ENDS_MS + 0.2 + (8 << 20) * 8e-7, rel=1e-3)


def test_without_the_straggler_the_others_lead(tmp_path: Path) -> None:
    write(tmp_path, ranks=3, late_ms=30.0)
    plan = plan_folder(tmp_path, ranks="2")
    recorded, without = row(plan, kind="recorded"), row(plan, straggler=False)
    assert recorded.step_ms is not None and without.step_ms is not None
    assert recorded.step_ms - without.step_ms == pytest.approx(30.0, rel=0.01)
    assert without.setting == "rank 2 as fast as 1"


def test_a_pause_of_all_ranks_is_one_pause_for_more_ranks(tmp_path: Path) -> None:
    write(tmp_path, steps=60, pause_ms=500.0)
    eight = row(plan_folder(tmp_path, ranks="8"), ranks=8)
    # Were each of 8 ranks to draw its own, most steps would have one.
    expected = ENDS_MS + 14 * ROUND_MS + 14 / 8 * 8 * MS_PER_MIB
    assert eight.step_ms == pytest.approx(expected, rel=1e-3)
    assert eight.high_ms is not None and eight.high_ms < expected + 10.0


@pytest.mark.parametrize(
    ("written", "asked", "said"),
    [
        ({"parameter_times": False}, {"bucket_cap_mb": "4"}, "no times of single parameters"),
        ({"host": "one"}, {"ranks": "8"}, "shared one machine"),
        ({"layout": (tuple(range(PARAMETERS)),)}, {"ranks": "8"}, "of about one size"),
    ],
    ids=["no-parameter-times", "one-machine", "one-size"],
)
def test_what_the_run_does_not_hold_is_said(
    tmp_path: Path, written: dict[str, Any], asked: dict[str, str], said: str
) -> None:
    write(tmp_path, **written)
    plan = plan_folder(tmp_path, **asked)
    refused = [each for each in plan.rows if each.cannot_tell]
    assert refused
    assert all(said in each.cannot_tell and each.step_ms is None for each in refused)
    assert not plan.tells


def test_one_size_is_enough_where_the_whole_link_is_given(tmp_path: Path) -> None:
    write(tmp_path, layout=(tuple(range(PARAMETERS)),))
    plan = plan_folder(tmp_path, ranks="8", bandwidth="1Gbit", latency="1ms")
    expected = ENDS_MS + 14 * 1.0 + 14 / 8 * (12 << 20) * 8e-6
    assert row(plan, ranks=8).step_ms == pytest.approx(expected, rel=1e-3)


def test_a_run_that_the_model_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Half of the steps take long for nothing that the replay knows.
    write(tmp_path / "a", layout=((0,), tuple(range(1, 11)), (11,)), unexplained_ms=200.0)
    plan = plan_folder(tmp_path / "a", ranks="8")
    assert plan.cannot_tell.startswith("a replay of the run's own schedule gives")
    assert main(["plan", str(tmp_path / "a"), "--ranks", "8"]) == 2
    assert capsys.readouterr().out.startswith("Cannot tell: a replay")


def test_ranks_without_a_trace_leave_no_plan(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "rank_1.ddptrace").unlink()
    plan = plan_folder(tmp_path, ranks="8")
    assert plan.cannot_tell == "traces of some ranks are missing or damaged."
    assert not plan.rows and not plan.tells


def test_sixteen_bits_save_of_the_bytes_alone(tmp_path: Path) -> None:
    write(tmp_path)
    plan = plan_folder(tmp_path, ranks="2,8", paths=["bf16"])
    # The last bucket of 8 MiB is what is exposed.
    for ranks in (2, 8):
        rounds = 2 * (ranks - 1)
        expected = ENDS_MS + rounds * ROUND_MS + (1 - HALVED) * rounds / ranks * 8 * MS_PER_MIB
        assert row(plan, ranks=ranks, path="bf16").step_ms == pytest.approx(expected, rel=1e-3)
    assert row(plan, ranks=2, path="bf16").setting == "2 ranks, recorded buckets in bf16"


def test_shared_memory_is_for_ranks_of_one_machine(tmp_path: Path) -> None:
    write(tmp_path / "one", host="one")
    plan = plan_folder(tmp_path / "one", paths=["shared memory"])
    expected = ENDS_MS + LATENCY_SHARE * 2 * ROUND_MS + BYTES_SHARE * 8 * MS_PER_MIB
    assert row(plan, path="shared memory").step_ms == pytest.approx(expected, rel=1e-3)
    assert plan.scaling is None  # more ranks would share its cores
    write(tmp_path / "two")
    for asked in ({}, {"ranks": "8"}, {"bandwidth": "1Gbit"}):
        refused = row(plan_folder(tmp_path / "two", paths=["shared memory"], **asked), path="shared memory")
        assert "ranks share memory on one machine only" in refused.cannot_tell


@pytest.mark.parametrize(
    ("link", "ends_at", "limit"),
    [
        ({"latency": "0.5ms", "bandwidth": "100Gbit"}, 32, "latency"),
        ({"latency": "10ms", "bandwidth": "100Gbit"}, 2, "latency"),
        # Two ranks take longer than one alone, but the bytes grow no more with further ones.
        ({"latency": "0.001us", "bandwidth": "0.1Gbit"}, None, None),
    ],
)
def test_where_scaling_ends_and_why(
    tmp_path: Path, link: dict[str, str], ends_at: int | None, limit: str | None
) -> None:
    write(tmp_path)
    plan = plan_folder(tmp_path, **link)
    found = plan.scaling
    assert found is not None and (found.ends_at, found.limit) == (ends_at, limit)
    assert found.alone_ms == pytest.approx(ENDS_MS, rel=1e-3)
    steps = {point.ranks: point for point in found.points}
    assert list(steps) == [2**power for power in range(13)]
    for point in found.points:
        assert point.throughput == pytest.approx(point.ranks * found.alone_ms / point.step_ms)
    eight = row(plan_folder(tmp_path, ranks="8", **link), ranks=8)
    assert steps[8].step_ms == pytest.approx(eight.step_ms, rel=1e-3)
    assert eight.efficiency == pytest.approx(found.alone_ms / steps[8].step_ms, rel=1e-3)
    if ends_at is not None:
        assert found.limit_ms is not None and 0 < found.limit_ms < steps[2 * ends_at].step_ms
        sentence = scaling_sentence(found)
        assert f"Scaling ends at {ends_at} ranks" in sentence and "latency" in sentence
    else:
        assert "Scaling does not end: with 4096 ranks" in scaling_sentence(found)


def test_the_page_has_the_charts_and_is_never_written_over_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "run")
    page = tmp_path / "plan.html"
    command = ["plan", str(tmp_path / "run"), "--ranks", "2,8", "--compress", "bf16", "--html", str(page)]
    assert main(command) == 0
    assert "recorded buckets in bf16" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "The step in each setting" in text and "Throughput by number of ranks" in text
    page.write_text("mine", encoding="utf-8")
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err and page.read_text(encoding="utf-8") == "mine"
    assert main([*command, "--force"]) == 0 and page.read_text(encoding="utf-8") != "mine"
    # Where it cannot tell, the page says that.
    (tmp_path / "run" / "rank_1.ddptrace").unlink()
    assert main([*command, "--force"]) == 2
    assert "Cannot tell: traces of some ranks are missing" in page.read_text(encoding="utf-8")


def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    command = ["plan", str(tmp_path), "--ranks", "2,8", "--bandwidth", "1Gbit"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "8 ranks, recorded buckets" in text and "pyddpdiag help plan" in text
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["schema_version"]) == ("plan", 1)
    assert [each["kind"] for each in found["rows"]] == [
        *("recorded", "replayed", "planned", "planned", "planned")
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ranks", "0"], "'0' is no number of ranks"),
        (["--ranks", "2,x"], "'x' is no number of ranks"),
        (["--bandwidth", "nonsense"], "--bandwidth nonsense: this is not a rate"),
        (["--bandwidth", "0Gbit"], "--bandwidth 0Gbit: this is not a rate"),
        (["--latency", "5"], "--latency 5: this is not a time"),
        (["--bucket-cap-mb", "-1"], "'-1' is no size"),
        ([], "no traces"),
    ],
)
def test_wrong_inputs_are_one_clear_error(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.parametrize(("ranks", "late_ms"), [(2, 0.0), (2, 120.0), (3, 120.0)])
def test_no_setting_is_faster_than_one_of_its_ranks_alone(tmp_path: Path, ranks: int, late_ms: float) -> None:
    """The straggler is no rank of the plan without it."""
    write(tmp_path, ranks=ranks, late_ms=late_ms)
    plan = plan_folder(tmp_path, ranks="1,2,3,8", bucket_cap_mb="4", latency="0.001us", bandwidth="1000Gbit")
    efficiencies = {each.setting: each.efficiency for each in plan.rows if each.efficiency is not None}
    assert all(0 < value <= 1 for value in efficiencies.values()), efficiencies
    assert efficiencies["1 rank, recorded buckets"] == 1.0
    assert efficiencies[row(plan, straggler=False).setting] == pytest.approx(1.0, rel=1e-2)


def test_report_page_plan_and_compare_say_the_same_median(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps scatter, and one rank marks the ends of its own earlier than the other."""
    for rank, writer in enumerate(write_training(tmp_path, steps=40, buckets=3, jitter_ms=5.0)):
        for record in writer.records:
            if record["kind"] == STEP:
                record["times"][2] -= (7 * rank + int(record["step"]) % 5) * MS
        writer.write(tmp_path)
    report = load_report(tmp_path)
    median_ms = matrix(report.steps).wall_ms
    main(["report", str(tmp_path), "--all"])
    assert f"Steps: median {milliseconds(median_ms)}," in capsys.readouterr().out
    assert figures(report)[0].value == milliseconds(median_ms)
    assert f"median step {milliseconds(median_ms)}" in compare_runs([tmp_path, tmp_path]).series[0].about
    assert plan_folder(tmp_path).rows[0].step_ms == pytest.approx(median_ms)
