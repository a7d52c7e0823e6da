"""The article's training: other networks and data, checkpoints and resuming, scripts, machines, scaling."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.forked_command import forked
from support.images import make_folder
from train_support import TIMEOUT_S, descendants, environment, records_published, run, summary_of, wait_for

from pyddpdiag.bench.results import read
from pyddpdiag.errors import CheckpointError, PyddpdiagError, RankFailedError, UsageError
from pyddpdiag.pipeline import load_report
from pyddpdiag.train import HookKind, TrainSettings, launch
from pyddpdiag.train.events import EpochDone, TrainResult
from pyddpdiag.train.loop import train_rank
from pyddpdiag.train.rank_session import Session
from pyddpdiag.workloads.samples import TensorSamples

pytestmark = pytest.mark.usefixtures("forked_launches", "own_folder")
SHORT = TrainSettings(epochs=4, batch_size=256, hook=HookKind.PLAIN, timeout_s=100, threads=1)


def losses(history: tuple[EpochDone, ...]) -> list[tuple[float, float, float]]:
    return [(e.train_loss, e.test_loss, e.accuracy) for e in history]


class InterruptError(Exception):
    """Ends a run on all ranks at the same place."""


class Interrupting(TensorSamples):
    """Test samples that can be fetched in two epochs only."""

    fetches = 0

    def fetch(self, chosen, epoch):
        Interrupting.fetches += 1
        if Interrupting.fetches > 2:
            raise InterruptError
        return super().fetch(chosen, epoch)


def _refused(session: Session, expected: type[PyddpdiagError]) -> None:
    try:
        train_rank(session)
    except expected:
        return
    raise ValueError(f"{session.settings} was not refused")


def _interrupted_and_resumed(session: Session) -> TrainResult:
    """Fails in the rank unless a resumed run goes as an uninterrupted one; leaves the checkpoint of two epochs."""
    session = replace(session, tell=lambda event: None)
    path = session.settings.checkpoint
    assert path is not None
    plain = replace(session.settings, checkpoint=None)
    whole = train_rank(replace(session, settings=plain))

    def prepare(settings: TrainSettings):
        work = session.prepare(settings)
        assert isinstance(work.test, TensorSamples)
        return replace(work, test=Interrupting(work.test.inputs, work.test.targets))

    try:
        train_rank(replace(session, prepare=prepare))
    except InterruptError:
        pass
    resumed = train_rank(replace(session, settings=replace(plain, resume=path)))
    if losses(resumed.history) != losses(whole.history) or resumed.steps != 2 * 5:
        raise ValueError(f"{whole.history} but {resumed.history} after {resumed.steps} steps")

    tested = train_rank(replace(session, settings=replace(plain, resume=path, evaluate=True)))
    if losses(tested.history) != losses(whole.history[:2]):
        raise ValueError(f"{whole.history[1]} but {tested.history[-1]}")
    _refused(replace(session, settings=replace(plain, resume=path, epochs=2)), UsageError)
    _refused(replace(session, settings=replace(plain, resume=path + "x")), CheckpointError)
    text = {"arch": "transformer", "data": __file__, "batch_size": 16}
    _refused(replace(session, settings=replace(plain, resume=path, **text)), CheckpointError)
    return whole


def test_an_interrupted_run_resumes_to_the_last_bit_also_with_fewer_ranks(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    whole = launch(replace(SHORT, checkpoint=str(path)), 2, job=_interrupted_and_resumed)
    assert [p.name for p in tmp_path.iterdir()] == ["c.pt"]
    alone = launch(replace(SHORT, resume=str(path), checkpoint=str(path)), 1)
    assert losses(alone.history[:2]) == losses(whole.history[:2])
    # The batches are the same, so only rounding differs.
    assert alone.history[-1].train_loss == pytest.approx(whole.history[-1].train_loss, rel=0.02)
    with path.open("rb") as file:
        assert len(torch.load(file, weights_only=True)["history"]) == 4


def _networks(session: Session) -> TrainResult:
    """Trains a residual network, then the transformer, in one process group."""
    folder, text = (session.settings.script or "").split("|")
    base = replace(session.settings, script=None)
    images = replace(
        base, arch="resnet18", data=folder, image_size=32, workers=2, batch_size=12, epochs=2, lr=0.02
    )
    first = train_rank(replace(session, settings=images))
    letters = replace(
        base, arch="transformer", data=text, amp=True, hook=HookKind.PLAIN, trace=None, lr=0.003
    )
    second = train_rank(replace(session, settings=letters, trace=None))
    return replace(first, history=first.history + second.history)


def test_images_and_text_are_learned(tmp_path: Path) -> None:
    make_folder(tmp_path / "images", per_class=16, val=3)
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 160, encoding="utf-8")
    settings = TrainSettings(
        epochs=3,
        batch_size=16,
        trace=str(tmp_path / "t"),
        timeout_s=60,
        script=f"{tmp_path / 'images'}|{text}",
    )
    result = launch(settings, 2, job=_networks)
    images, letters = result.history[:2], result.history[2:]
    assert result.parameters > 11_000_000
    assert images[-1].train_loss < images[0].train_loss
    assert letters[-1].train_loss < 0.8 * letters[0].train_loss
    assert letters[-1].accuracy > 0.1
    report = load_report(tmp_path / "t")
    assert [rank.steps for rank in report.ranks] == [8, 8]
    assert any(row.name == "gloo:broadcast" for row in report.other_collectives)


def test_a_corrupt_image_ends_the_run_with_its_name(tmp_path: Path) -> None:
    make_folder(tmp_path, per_class=8, val=2)
    bad = tmp_path / "val" / "green" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    settings = replace(SHORT, arch="resnet18", data=str(tmp_path), image_size=32, batch_size=12, workers=2)
    with pytest.raises(RankFailedError) as caught:
        launch(settings, 2)
    assert "1.jpg cannot be read" in caught.value.message.splitlines()[0]
    assert not caught.value.details


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to kill with")
def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    options = ("--hook", "plain", "--batch-size", 256, "--checkpoint", path, "--timeout", 100)
    with forked(("train", *options, "--epochs", 500), tmp_path, environment()) as launcher:
        wait_for(path.exists, 100, "a checkpoint")
        descendants(launcher.process.pid)[1].kill()
        code, out, err = launcher.ended(60)
    assert code == 2 and "rank 1 was killed by signal 9" in err
    assert "Traceback" not in err and out == ""
    # Whenever the ranks were ended, the file is a whole one.
    with path.open("rb") as file:
        done_before = len(torch.load(file, weights_only=True)["history"])
    done = run(*options, "--resume", path, "--epochs", done_before + 1, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Resuming after epoch {done_before}." in done.stderr
    assert len(summary_of(done.stdout)["epochs"]) == done_before + 1


SCRIPT = """
import torch
from torch.nn import functional


def fit(script):
    model = script.wrap(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(script.rank)
    for epoch in range(2):
        for x in script.steps([torch.randn(16, 4, generator=data) for _ in range(10)]):
            optimiser.zero_grad()
            loss = functional.mse_loss(model(x), x.sum(1, keepdim=True))
            loss.backward()
            optimiser.step()
        script.epoch_done(loss.item(), loss.item(), 0.5)
"""


def test_a_script_of_the_users_is_run_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT, encoding="utf-8")
    done = run("--script", "mine.py:fit", "--trace", "t", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = summary_of(done.stdout)
    assert len(summary["epochs"]) == 2 and summary["accuracy"] == 0.5
    assert [rank.steps for rank in load_report(tmp_path / "t").ranks] == [20, 20]
    done = run("--script", "mine.py:absent", cwd=tmp_path)
    assert done.returncode == 2
    assert "has no function absent()" in done.stderr and "Traceback" not in done.stderr


def test_two_machines_launch_their_own_ranks(tmp_path: Path) -> None:
    url = (tmp_path / "meet").as_uri()
    common = (
        *("--multiprocessing-distributed", "--nproc", 1, "--dist-url", url, "--world-size", 2),
        "--scale-lr",
    )
    short = ("--epochs", 1, "--batch-size", 128, "--trace", tmp_path / "t", "--json", "--timeout", 100)
    variables = environment(GLOO_SOCKET_IFNAME="lo")
    with ExitStack() as stack:
        launchers = [
            stack.enter_context(forked(("train", *common, "--rank", rank, *short), tmp_path, variables))
            for rank in range(2)
        ]
        answers = [launcher.ended(TIMEOUT_S) for launcher in launchers]
    for code, _, err in answers:
        assert code == 0, err
    summary = summary_of(answers[0][1])
    assert (summary["world_size"], summary["batch_size"], summary["lr"]) == (2, 256, 0.06)
    assert "Effective batch size 256, peak learning rate 0.06" in answers[0][2]
    assert all(records_published(tmp_path / "t", rank) > 0 for rank in range(2))


def test_a_scaling_series_ends_with_table_pictures_and_a_file_for_compare(tmp_path: Path) -> None:
    done = run(
        "--scaling",
        "2,1",
        "--epochs",
        1,
        "--batch-size",
        128,
        "--output-dir",
        "s",
        "--threads",
        1,
        "--timeout",
        60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "1 (no DDP)" in done.stdout and "speed-up" in done.stdout and "missing" in done.stdout
    entries = read(tmp_path / "s" / "scaling.json").entries
    infos = [entry.extra_info for entry in entries]
    assert [(info["world_size"], info["ddp"]) for info in infos] == [(1, False), (2, True)]
    assert infos[0]["epochs"][0]["loss"] == pytest.approx(infos[1]["epochs"][0]["loss"], rel=0.01)
    split = infos[1]["split"]
    assert all(split[name] >= 0 for name in split) and split["compute_s"] > 0
    whole = split["compute_s"] + split["data_wait_s"] + split["exposed_s"] + infos[1]["other_s"]
    assert whole == pytest.approx(infos[1]["duration_s"], rel=0.25)
    assert (tmp_path / "s" / "scaling-loss-by-time.png").read_bytes().startswith(b"\x89PNG")
    assert 'data-chart="speed-up"' in (tmp_path / "s" / "scaling.html").read_text(encoding="utf-8")
    assert (tmp_path / "s" / "scaling.txt").read_text(encoding="utf-8") in done.stdout
    again = run("--scaling", "1", "--output-dir", "s", cwd=tmp_path)
    assert again.returncode == 2 and "exists already" in again.stderr
    assert json.loads((tmp_path / "s" / "scaling.json").read_text(encoding="utf-8"))["benchmarks"]
