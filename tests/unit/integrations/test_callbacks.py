"""What happens around a training must not end it: the callbacks of frameworks, with the packages themselves."""

import importlib.util
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from support.promised import need


class Session:
    """One whose report is there."""

    numbers: ClassVar = {"pyddpdiag/step_ms": 2.0}

    def verdict(self) -> str:
        return "pyddpdiag: all is well."


class Logger:
    """Of Lightning, for a service that may be down."""

    def __init__(self, *, down: bool) -> None:
        self.down = down
        self.taken: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        if self.down:
            raise ConnectionError("the service is down")
        self.taken.append((metrics, step))


def installed(package: str) -> None:
    absent = importlib.util.find_spec(package) is None
    need("frameworks", f"{package} is not installed (dependency group 'frameworks')" if absent else "")


def test_a_logger_that_raises_ends_no_training_of_lightning() -> None:
    installed("lightning")
    from pyddpdiag.integrations.lightning import Diagnostics

    callback: Any = Diagnostics("runs/today")
    callback._session = Session()
    down, up = Logger(down=True), Logger(down=False)
    with pytest.warns(UserWarning, match="Logger did not take the report's numbers: the service is down"):
        callback.on_train_end(SimpleNamespace(loggers=[down, up], global_step=32), None)
    assert up.taken == [(Session.numbers, 32)]


def test_the_numbers_are_there_for_the_trainer_to_log() -> None:
    installed("transformers")
    from pyddpdiag.integrations.transformers import DiagnosticsCallback

    callback: Any = DiagnosticsCallback("runs/today")
    state = SimpleNamespace(log_history=[], global_step=32)
    callback.on_train_end(None, state, None)
    assert callback.numbers == {} and not state.log_history
    callback._session = Session()
    callback.on_train_end(None, state, None)
    assert callback.numbers == Session.numbers
    assert state.log_history == [{"pyddpdiag": Session().verdict(), "step": 32}]
