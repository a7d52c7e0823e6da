"""What a training does before its ranks are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyddpdiag.errors import CheckpointError, TraceExistsError, UsageError
from pyddpdiag.ranks.launch import Node
from pyddpdiag.ranks.rendezvous import FileTarget, Place
from pyddpdiag.train import HookKind, TrainSettings, launch
from pyddpdiag.train.inputs import check_inputs
from pyddpdiag.train.start import _folder_of_node, _folder_of_rank


def machine(number: int, of: int = 2) -> Place:
    return Place(number, of, of, FileTarget("meet"))


def old_traces(folder: Path, *ranks: int) -> TrainSettings:
    folder.mkdir()
    for rank in ranks:
        (folder / f"rank_{rank}.ddptrace").write_text("old")
    return TrainSettings(trace=str(folder), force=True)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_machine_alone_answers_for_every_rank(tmp_path: Path) -> None:
    settings = old_traces(tmp_path / "t", 0, 1, 9)
    assert _folder_of_node(settings, Node(2)) == str(tmp_path / "t")
    assert left(tmp_path / "t") == []


def test_a_machine_among_others_leaves_their_traces(tmp_path: Path) -> None:
    settings = old_traces(tmp_path / "t", 0, 1, 2, 3, 9)
    _folder_of_node(settings, Node(2, machine(1)))
    assert left(tmp_path / "t") == ["rank_0.ddptrace", "rank_1.ddptrace", "rank_9.ddptrace"]
    # That of rank 0 answers also for ranks that this world does not have.
    _folder_of_node(settings, Node(2, machine(0)))
    assert left(tmp_path / "t") == []


def test_each_joined_rank_answers_for_itself_and_rank_0_for_those_beyond(tmp_path: Path) -> None:
    settings = old_traces(tmp_path / "t", 0, 1, 2)
    _folder_of_rank(settings, Place(1, 2, 2, FileTarget("meet")))
    assert left(tmp_path / "t") == ["rank_0.ddptrace", "rank_2.ddptrace"]
    _folder_of_rank(settings, Place(0, 2, 2, FileTarget("meet")))
    assert left(tmp_path / "t") == []


def test_without_a_name_rank_0_chooses_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = TrainSettings()
    assert _folder_of_node(settings, Node(2)) is not None
    assert _folder_of_node(settings, Node(2, machine(1))) is None
    assert _folder_of_rank(settings, Place(0, 2, 2, FileTarget("meet"))) is not None
    assert _folder_of_rank(settings, Place(1, 2, 2, FileTarget("meet"))) is None
    assert _folder_of_node(TrainSettings(hook=HookKind.PLAIN), Node(2)) is None


def test_only_rank_0_needs_the_checkpoint_that_a_run_resumes(tmp_path: Path) -> None:
    settings = TrainSettings(resume=str(tmp_path / "none.pt"))
    check_inputs(settings, checkpoint=False)
    with pytest.raises(CheckpointError):
        check_inputs(settings)


def test_nothing_is_made_where_the_start_is_refused(tmp_path: Path) -> None:
    for settings, nproc in (
        (TrainSettings(trace=str(tmp_path / "t")), 0),
        (TrainSettings(trace=str(tmp_path / "t"), interfaces=("no-such-card",)), 2),
        (TrainSettings(trace=str(tmp_path / "t"), batch_size=1), 2),
    ):
        with pytest.raises(UsageError):
            launch(settings, nproc)
        assert not (tmp_path / "t").exists()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "rank_0.ddptrace").write_text("precious")
    with pytest.raises(TraceExistsError):
        launch(TrainSettings(trace=str(tmp_path / "t")), 2)
    assert (tmp_path / "t" / "rank_0.ddptrace").read_text() == "precious"
