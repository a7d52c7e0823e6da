"""Whole runs of `pyddpdiag train`: what is learned, shown and written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from train_support import FOREIGN, records_published, run, summary_of

from pyddpdiag.cli import main
from pyddpdiag.ranks.session import Joined
from pyddpdiag.trace.notes import read_loss
from pyddpdiag.train import HookKind, TrainSettings, launch
from pyddpdiag.train.events import EpochDone, Planned
from pyddpdiag.train.loop import train_rank
from pyddpdiag.train.rank_session import Session


def test_default_run_learns_the_digits_and_ends_with_the_report(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    out, err = done.stdout, done.stderr
    assert done.returncode == 0, err
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 1
    assert [p.name for p in sorted(folders[0].glob("*.ddptrace"))] == ["rank_0.ddptrace", "rank_1.ddptrace"]
    epochs = re.findall(r"^epoch +(\d+)/10 .*test accuracy (\d+\.\d+)%", err, re.MULTILINE)
    assert [int(number) for number, _ in epochs] == list(range(1, 11))
    assert float(epochs[-1][1]) >= 97
    assert "loopback interface" in err
    assert "batches of 64: 32 on each" in err
    assert "\x1b" not in out + err
    first, _, report = out.partition("\n")
    match = re.fullmatch(
        r"Test accuracy (\d+\.\d+)% after 10 epochs in [\d.]+ s, 2 ranks, (\d+) buckets, hook native\.", first
    )
    assert match and float(match.group(1)) >= 97
    assert 4 <= int(match.group(2)) <= 8
    assert "Where a step goes" in report and "backward" in report


def test_four_ranks_with_uneven_shares_and_a_summary_in_json(tmp_path: Path) -> None:
    done = run(
        *("--nproc", 4, "--batch-size", 66, "--epochs", 4, "--compress", "bf16"),
        *("--trace", tmp_path / "t", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "17 on the first 2, 16 on others" in done.stderr
    summary = summary_of(done.stdout)
    assert summary["schema_version"] == 1
    assert (summary["world_size"], summary["hook"], summary["trace"]) == (
        4,
        "native+bf16",
        str(tmp_path / "t"),
    )
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [0, 1, 2, 3]
    assert summary["accuracy"] == summary["epochs"][-1]["accuracy"] > 0.9
    for rank in range(4):
        assert records_published(tmp_path / "t", rank) > 4 * 21 * summary["buckets"]
    loss = read_loss(tmp_path / "t")
    assert loss is not None and loss.train_loss == tuple(epoch["train_loss"] for epoch in summary["epochs"])


def _three_seeds(session: Session) -> tuple[float, ...]:
    """Trains in one rank, one after the other."""
    runs = (replace(session, settings=replace(session.settings, seed=seed)) for seed in (4, 4, 5))
    results = [train_rank(each) for each in runs]
    if any(each.buckets for each in results):
        raise ValueError("there is no DDP, and there are buckets")
    return tuple(each.history[0].train_loss for each in results)


@pytest.mark.usefixtures("forked_launches")
def test_the_same_seed_repeats_and_another_one_does_not() -> None:
    settings = TrainSettings(
        epochs=1, batch_size=128, hook=HookKind.PLAIN, timeout_s=60, threads=1, ddp=False
    )
    losses = cast(tuple[float, ...], launch(settings, 1, job=_three_seeds))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.usefixtures("forked_launches")
def test_two_ranks_learn_the_same_as_one_and_tell_of_it_in_order() -> None:
    """The global batch is what counts: how it is split changes rounding and nothing else."""
    settings = TrainSettings(epochs=2, batch_size=127, hook=HookKind.BUILTIN, timeout_s=60, threads=1)
    events: list[object] = []
    one = launch(settings, 1).history
    two = launch(settings, 2, on_event=events.append).history
    assert one[0].train_loss == pytest.approx(two[0].train_loss, rel=1e-3)
    assert sorted(e.rank for e in events if isinstance(e, Joined)) == [0, 1]
    assert sum(isinstance(e, Planned) for e in events) == 1
    assert [e.epoch for e in events if isinstance(e, EpochDone)] == [0, 1]


def test_existing_trace_is_refused_and_replaced_by_force(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    for rank in (0, 5):
        (folder / f"rank_{rank}.ddptrace").write_text("precious")
    short = ("--epochs", 1, "--batch-size", 256, "--trace", folder, "--json")
    done = run(*short, cwd=tmp_path)
    assert done.returncode == 2
    assert "--force" in done.stderr and "Traceback" not in done.stderr
    assert (folder / "rank_0.ddptrace").read_text() == "precious"
    done = run(*short, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in folder.glob("*.ddptrace")) == ["rank_0.ddptrace", "rank_1.ddptrace"]
    assert records_published(folder, 0) > 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--nproc", 0), "--nproc is 0"),
        (("--nproc", -2), "--nproc is -2"),
        (("--epochs", -1), "--epochs is -1"),
        (("--batch-size", 1), "some would get no sample"),
        (("--batch-size", 0), "--batch-size is 0"),
        (("--lr", "nan"), "--lr is nan"),
        (("--bucket-cap-mb", 0), "--bucket-cap-mb 0 cannot be right"),
        (("--timeout", -1), "--timeout is -1"),
        (("--interface", "no-such-card"), "no-such-card"),
        (("--lanes", "no-such-card,another"), "no-such-card' (from --lanes) does not exist"),
        (("--lanes", "lo"), "names 1 of 2"),
        (("--bucket-cap-mb", 1, "--bucket-cap-mb-list", "1,4"), "exclude each other"),
        (("--bucket-cap-mb-list", "1,x"), "no number"),
        (("--bucket-cap-mb-list", "1,-4"), "cannot be right"),
        (("--threads", 0), "--threads"),
        (("--hook", "plain", "--trace", "x"), "records nothing"),
        (("--rank", 1), "--dist-url"),
        (("--dist-url", "tcp://127.0.0.1:29511"), "--world-size"),
        (("--dist-url", "udp://127.0.0.1:29511"), "not understood"),
        (("--dist-url", "env://"), "MASTER_ADDR"),
        (("--dist-url", "env://", "--nproc", 2), "give one of the two"),
        (("--hook", "fast"), "fast"),
        (("--dist-backend", "nccl"), "over gloo only"),
        (("--device", "tpu"), "--device is tpu"),
        (("--arch", "vgg"), "choose among"),
        (("--arch", "resnet50"), "needs images"),
        (("--arch", "resnet18", "--data", "nowhere"), "no folder"),
        (("--data", "nowhere"), "handwritten digits, not on"),
        (("--resume", "none.pt"), "no checkpoint none.pt"),
        (("--evaluate",), "--resume"),
        (("--script", "none.py"), "no file none.py"),
        (("--scaling", "1,x"), "not a list of numbers"),
        (("--scaling", "1,2", "--nproc", 2), "launches its ranks itself"),
        (("--no-such-option",), "no-such-option"),
    ],
)
def test_bad_arguments_are_one_clear_error(
    options: tuple[object, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _is_one_clear_error(options, reason, tmp_path, monkeypatch, capsys)


def test_a_batch_larger_than_the_data_is_one_clear_error(tmp_path: Path) -> None:
    done = run("--batch-size", 5000, cwd=tmp_path)
    assert done.returncode == 2
    assert "only 1437 samples" in done.stderr
    assert "Traceback" not in done.stderr


def test_nproc_under_another_launcher_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    launched = {"RANK": "0", "WORLD_SIZE": "2"}
    _is_one_clear_error(("--nproc", 2), "a rank already", tmp_path, monkeypatch, capsys, **launched)


def test_a_wrong_interface_in_the_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    wrong = {"GLOO_SOCKET_IFNAME": "no-such-card"}
    err = _is_one_clear_error((), "GLOO_SOCKET_IFNAME", tmp_path, monkeypatch, capsys, **wrong)
    assert "lo" in err


def _is_one_clear_error(
    options: tuple[object, ...],
    reason: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    **variables: str,
) -> str:
    """In this process: what is refused starts no rank, and to start Python for each takes a second."""
    monkeypatch.chdir(folder)
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["train", *map(str, options)]) == 2
    out, err = capsys.readouterr()
    assert reason in err.lower() or reason in err
    assert "Traceback" not in err
    assert not out
    assert not list(folder.iterdir())
    return str(err)


def test_a_learning_rate_that_blows_up_is_named(tmp_path: Path) -> None:
    done = run("--lr", "1e6", "--hook", "plain", "--epochs", 1, cwd=tmp_path)
    assert done.returncode == 2
    assert "lower --lr" in done.stderr
    assert "Traceback" not in done.stderr
