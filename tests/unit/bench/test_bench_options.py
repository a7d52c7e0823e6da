"""What the options of `pyddpdiag bench` take, and in which order cases are worth measuring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyddpdiag.bench.cases import allreduce_cases, race_cases, step_cases
from pyddpdiag.bench.engine.plan import Budget, SweepPlan
from pyddpdiag.cli import main
from pyddpdiag.cli.bench import options
from pyddpdiag.errors import UsageError


def test_texts_are_read() -> None:
    assert [options.seconds(text) for text in ("90", "90s", "2m", "1.5h")] == [90, 90, 120, 5400]
    assert options.sizes("4096, 64K,16MiB,1g") == [4096, 65536, 2**24, 2**30]
    assert options.caps("default,0.25, 25") == [None, 0.25, 25.0]
    assert options.whole_numbers("1,2,4", "--nproc") == [1, 2, 4]


@pytest.mark.parametrize(
    "command",
    [
        ["buckets", "--budget", "soon"],
        ["buckets", "--budget", "1s"],
        ["buckets", "--bucket-cap-mb", "25,x"],
        *[["buckets", "--bucket-cap-mb", "0"], ["buckets", "--arch", "gpt"]],
        *[["buckets", "--hook", "magic"], ["buckets", "--hook", "timed_bf16"]],
        *[["buckets", "--nproc", "0"], ["buckets", "--rounds", "0"], ["buckets", "--resume"]],
        ["buckets", "--interface", "nic-of-nobody"],
        ["allreduce", "--size", "3"],
        ["allreduce", "--size", "many"],
        ["interfaces", "--interface", "nic-of-nobody"],
        ["interfaces", "--interface", "lo,,lo"],
        ["interfaces", "--interface", "lo", "--repeat", "9"],
        ["buckets", "--sittings", "0"],
        ["interfaces", "--rank", "1"],
    ],
    ids=" ".join,
)
def test_wrong_options_end_before_anything_is_started(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *command]) == 2
    assert "error: " in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_a_result_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine")
    assert main(["bench", "allreduce", "--output", str(path)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["bench", "allreduce", "--output", str(path), "--resume"]) == 2
    assert "not complete JSON" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_the_base_comes_first_then_what_differs_in_one_thing() -> None:
    cases = step_cases(["digits-cnn"], ["plain", "native"], [None, 1.0], [1, 2, 4])
    assert len(cases) == len(set(cases)) == 12
    first = cases[0]
    assert (first.world_size, first.hook, first.bucket_cap_mb) == (2, "plain", None)
    differences = [sum((c.world_size != 2, c.bucket_cap_mb is not None)) for c in cases]
    assert differences == sorted(differences)


def test_a_budget_that_ends_early_leaves_hooks_to_compare() -> None:
    cases = step_cases(["digits-cnn", "mlp"], ["plain", "native"], [None, 1.0], [1, 2, 4])
    for plain, native in zip(cases[::2], cases[1::2], strict=True):
        assert (plain.hook, native) == ("plain", replace(plain, hook="native"))


def test_names_are_unique() -> None:
    cases = [
        *step_cases(["digits-cnn", "mlp"], ["plain", "timed"], [None, 25.0, 1.0], [1, 2]),
        *allreduce_cases([4, 8], [2, 4]),
    ]
    assert len({case.label("lo") for case in cases}) == len(cases)


def test_a_race_is_each_alone_and_all_at_once() -> None:
    assert [case.picks for case in race_cases(["a", "b", "c"], 2, 1024)] == [(0,), (1,), (2,), (0, 1, 2)]
    assert [case.picks for case in race_cases(["a"], 2, 1024)] == [(0,)]


def test_a_race_repeats_names_where_asked() -> None:
    repeated = [case.picks for case in race_cases(["a", "b"], 2, 1024, repeat=2)]
    assert repeated == [(0,), (1,), (0, 1), (0, 0), (1, 1)]
    assert [case.picks for case in race_cases(["a"], 2, 1024, repeat=3)] == [(0,), (0, 0, 0)]
    # By name: the list as it is, and each of its names once.
    assert [case.picks for case in race_cases(["a", "a"], 2, 1024)] == [(0,), (0, 1)]
    assert [case.picks for case in race_cases(["a", "a", "b"], 2, 1024)] == [(0,), (2,), (0, 1, 2)]


def test_a_plan_refuses_what_cannot_be_kept() -> None:
    case = allreduce_cases([4], [2])[0]
    with pytest.raises(UsageError, match="nothing to measure"):
        SweepPlan(cases=())
    with pytest.raises(UsageError, match="cannot be kept"):
        Budget(3.0, started=0.0)
    with pytest.raises(UsageError, match="without an end"):
        SweepPlan(cases=(case,), rounds=None)
    with pytest.raises(UsageError, match="--timeout"):
        SweepPlan(cases=(case,), timeout_s=0.0)


def test_rounds_are_a_number_unless_only_a_budget_limits_them() -> None:
    assert options.limits(None, None, 5.0) == (30, None)
    assert options.limits(7, None, 5.0) == (7, None)
    assert options.limits(None, "2m", 5.0) == (None, Budget(120.0, 5.0))
    assert options.limits(7, "2m", 5.0) == (7, Budget(120.0, 5.0))


def test_a_plan_says_what_ranks_must_agree_on_and_names_cases() -> None:
    cases = (*allreduce_cases([4096], [2]), *race_cases(["a", "b"], 2, 1024))
    plan = SweepPlan(cases, ("eth0", "eth1"), rounds=9)
    assert plan.agreed()["--rounds"] == "9" and plan.agreed()["--budget"] == "None"
    assert plan.agreed()["the number of interfaces (--interface)"] == "2"
    assert [plan.interface(case, "lo") for case in range(4)] == ["lo", "eth0", "eth1", "eth0,eth1"]
    assert plan.label(0, "lo") == "allreduce[4096B-2ranks-lo]"


def test_older_names_mean_the_same() -> None:
    assert step_cases(["digits-cnn"], ["native_bf16", "shared"], [None], [2]) == step_cases(
        ["digits-cnn"], ["native+bf16", "native+shared"], [None], [2]
    )
