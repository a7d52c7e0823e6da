"""The losses beside a trace: optional, and never trusted."""

from pathlib import Path

import pytest

from pyddpdiag.trace.notes import LOSSES, read_loss
from pyddpdiag.train.events import EpochDone, TrainResult
from pyddpdiag.train.summary import FILE, keep


def test_what_a_training_keeps_is_read(tmp_path: Path) -> None:
    history = (EpochDone(0, 2.0, float("nan"), float("inf"), 3.0), EpochDone(1, 1.0, 1.5, 0.75, 4.0))
    keep(TrainResult(2, "native", str(tmp_path), 1, 1, history, 7.0))
    loss = read_loss(tmp_path)
    assert loss is not None and FILE == LOSSES
    assert (loss.epoch, loss.train_loss) == ((1, 2), (2.0, 1.0))
    assert (loss.test_loss, loss.accuracy, loss.elapsed_s) == ((None, 1.5), (None, 0.75), (3.0, 7.0))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"epochs": 7}', '{"epochs": null}', "\x00\xff", "[" * 100_000],
    ids=range(9),
)
def test_anything_else_is_no_loss_and_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / LOSSES).write_text(text, encoding="utf-8")
    assert read_loss(tmp_path) is None


def test_odd_values_are_not_known(tmp_path: Path) -> None:
    (tmp_path / LOSSES).write_text(
        '{"epochs": [{"train_loss": true}, {"train_loss": 1e300, "seconds": "x"}, 5, {"train_loss": NaN}]}',
        encoding="utf-8",
    )
    loss = read_loss(tmp_path)
    assert loss is not None and loss.train_loss == (None, None, None) and loss.elapsed_s == (0.0, 0.0, 0.0)


def test_no_file_is_no_loss(tmp_path: Path) -> None:
    assert read_loss(tmp_path) is None
