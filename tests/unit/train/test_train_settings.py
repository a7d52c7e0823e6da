"""Settings of a training, and the folders of its traces."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyddpdiag.errors import TraceExistsError, TraceFolderError, UsageError
from pyddpdiag.train import HookKind, TrainSettings, start


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epochs", 0), ("seed", -1), ("seed", 2**63), ("lr", 0.0), ("lr", float("inf"))],
        *[("bucket_cap_mb", -1.0), ("timeout_s", 0.0), ("watchdog_s", 0.5)],
        *[("watchdog_s", float("nan")), ("image_size", 4), ("workers", -1)],
        *[("arch", "transformer"), ("arch", "mlp")],
    ],
)
def test_values_that_cannot_be_right_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError):
        TrainSettings(**{name: value})


def test_learning_rate_and_bucket_size_are_those_of_the_network_unless_given() -> None:
    resnet = TrainSettings(arch="resnet50", data="photos")
    assert (resnet.lr, resnet.bucket_cap_mb) == (0.05, 25.0)
    given = TrainSettings(arch="resnet50", data="photos", lr=0.5, bucket_cap_mb=1.0)
    assert (given.lr, given.bucket_cap_mb) == (0.5, 1.0)
    assert (TrainSettings().lr, TrainSettings().bucket_cap_mb) == (0.03, 0.25)


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
        "--bucket-cap-mb-list": "()",
        "--gradient-as-bucket-view": "False",
        "--pin-ranks": "False",
        "--hook": "timed",
        "--compress": "None",
        "--error-feedback": "False",
        "--shared-memory": "'off'",
        "--lanes": "0 interfaces",
        "--arch": "'digits-cnn'",
        "--image-size": "224",
        "--scale-lr": "False",
        "--resume": "None",
        "--evaluate": "False",
        "--amp": "False",
        "--device": "'auto'",
        "--ddp": "True",
    }


def test_old_traces_are_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    for name in (
        *("rank_0.ddptrace", "rank_0.json", "rank_0.lines", "rank_7.ddptrace", "notes.txt"),
        "rank_x.json",
    ):
        (tmp_path / name).write_text("old")
    with pytest.raises(TraceExistsError, match=r"rank_0"):
        start.prepare(tmp_path, force=False, mine=range(1))
    start.prepare(tmp_path, force=False, mine=range(1, 7))
    start.prepare(tmp_path, force=True, mine=range(1))
    assert sorted(start.existing(tmp_path)) == [7]
    start.prepare(tmp_path, force=True, mine=range(2**31))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "rank_x.json"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceFolderError):
        start.prepare(tmp_path / "file" / "run", force=False, mine=range(1))


def test_default_folders_do_not_collide(tmp_path: Path) -> None:
    first = start.default_folder(tmp_path)
    first.mkdir()
    second = start.default_folder(tmp_path)
    assert second != first and not second.exists()
