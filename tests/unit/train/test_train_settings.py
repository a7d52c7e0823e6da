"""Settings, interfaces, folders and cores."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyddpdiag.errors import TraceExistsError, TraceFolderError, UsageError
from pyddpdiag.train import interfaces, traces
from pyddpdiag.train.cores import threads_per_rank, usable_cores
from pyddpdiag.train.settings import HookKind, TrainSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", -1),
        ("batch_size", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("bucket_cap_mb", 0.0),
        ("bucket_cap_mb", -1.0),
        ("timeout_s", 0.0),
        ("image_size", 4),
        ("workers", -1),
        ("arch", "resnet9000"),
        ("arch", "resnet18"),
        ("arch", "transformer"),
        ("data", "folder"),
        ("evaluate", True),
    ],
)
def test_values_that_cannot_be_right_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError):
        TrainSettings(**{name: value})


def test_a_trace_without_a_recording_hook_is_refused() -> None:
    for hook in (HookKind.PLAIN, HookKind.BUILTIN):
        with pytest.raises(UsageError, match="records nothing"):
            TrainSettings(hook=hook, trace="runs/x")


def test_batch_must_suit_ranks_and_data() -> None:
    settings = TrainSettings(batch_size=4)
    settings.check_world(4, 100)
    with pytest.raises(UsageError, match="for 5 ranks"):
        settings.check_world(5)
    with pytest.raises(UsageError, match="only 3 samples"):
        settings.check_world(2, 3)


def test_a_batch_is_split_or_given_to_each_rank_with_a_scaled_rate() -> None:
    split = TrainSettings(batch_size=64, lr=0.1)
    assert (split.total_batch(4), split.peak_lr(4)) == (64, 0.1)
    scaled = TrainSettings(batch_size=64, lr=0.1, scale_lr=True)
    assert (scaled.total_batch(4), scaled.peak_lr(4)) == (256, 0.4)


def test_batch_normalisation_needs_two_samples_on_each_rank() -> None:
    settings = TrainSettings(batch_size=5, arch="resnet18", data="images")
    settings.check_world(2)
    with pytest.raises(UsageError, match="cannot normalise"):
        settings.check_world(3)


def test_many_ranks_need_ddp_and_a_script_keeps_its_own_state() -> None:
    with pytest.raises(UsageError, match="without DDP"):
        TrainSettings(ddp=False).check_world(2)
    with pytest.raises(UsageError, match="--script"):
        TrainSettings(script="mine.py", checkpoint="c.pt")


def test_settings_travel_and_name_their_options() -> None:
    settings = TrainSettings(seed=3, hook=HookKind.TIMED, trace="here")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.shared() == {
        "--epochs": "10",
        "--batch-size": "64",
        "--lr": "0.03",
        "--seed": "3",
        "--bucket-cap-mb": "0.25",
        "--hook": "timed",
        "--arch": "'digits-cnn'",
        "--image-size": "224",
        "--scale-lr": "False",
        "--resume": "None",
        "--evaluate": "False",
        "--amp": "False",
        "--device": "'auto'",
        "--ddp": "True",
    }


def test_interface_by_option_variable_or_loopback() -> None:
    loop = interfaces.loopback()
    assert loop is not None
    assert interfaces.choose((loop,), local=False, environ={}) == (loop, "")
    assert interfaces.choose((loop, loop), local=True, environ={}) == (f"{loop},{loop}", "")
    assert interfaces.choose((), local=True, environ={"GLOO_SOCKET_IFNAME": loop}) == (loop, "")
    assert interfaces.choose((), local=False, environ={}) == ("", "")
    value, note = interfaces.choose((), local=True, environ={})
    assert value == loop and loop in note


@pytest.mark.parametrize("names", [("no-such-card",), ("no-such-card", "neither")])
def test_unknown_interfaces_are_refused_with_those_that_exist(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="no-such-card") as caught:
        interfaces.choose(names, local=True, environ={})
    assert interfaces.loopback() in caught.value.hint
    with pytest.raises(UsageError, match="from GLOO_SOCKET_IFNAME"):
        interfaces.choose((), local=True, environ={"GLOO_SOCKET_IFNAME": ",".join(names)})


def test_interface_names_are_parsed() -> None:
    assert interfaces.parse("eth0, eth1") == ("eth0", "eth1")
    for text in ("", "eth0,", ","):
        with pytest.raises(UsageError):
            interfaces.parse(text)


def test_threads_are_shared() -> None:
    assert threads_per_rank(1, {}) == usable_cores()
    assert threads_per_rank(10_000, {}) == 1
    assert threads_per_rank(2, {"OMP_NUM_THREADS": "7"}) == 7
    assert threads_per_rank(10_000, {"OMP_NUM_THREADS": "many"}) == 1


def test_old_traces_are_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    for name in ("rank_0.ddptrace", "rank_0.json", "rank_7.ddptrace", "notes.txt", "rank_x.json"):
        (tmp_path / name).write_text("old")
    with pytest.raises(TraceExistsError, match=r"rank_0"):
        traces.prepare(tmp_path, force=False, mine=range(1))
    traces.prepare(tmp_path, force=False, mine=range(1, 7))
    traces.prepare(tmp_path, force=True, mine=range(1))
    assert sorted(traces.existing(tmp_path)) == [7]
    traces.prepare(tmp_path, force=True, mine=range(2**31))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "rank_x.json"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceFolderError):
        traces.prepare(tmp_path / "file" / "run", force=False, mine=range(1))


def test_default_folders_do_not_collide(tmp_path: Path) -> None:
    first = traces.default_folder(tmp_path)
    first.mkdir()
    second = traces.default_folder(tmp_path)
    assert second != first and not second.exists()
