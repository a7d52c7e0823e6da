"""Settings that cost time, by what the sidecars say of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import write_training

from pyddpdiag.analyse.checks.settings import _costly
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Loaded, Training
from pyddpdiag.trace.run import open_run


def found(folder: Path, change: Callable[[Sidecar], Sidecar]) -> list[Finding]:
    write_training(folder)
    run = open_run(folder)
    ranks = tuple(replace(trace, sidecar=change(trace.sidecar)) for trace in run.ranks)
    return list(_costly(RunView(replace(run, ranks=ranks))))


def loader(workers: int) -> Training:
    return Training(loaded=(Loaded("DistributedSampler", True, length=64, epochs=1, workers=workers),))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"debugging": {"anomaly_detection": 2}}, "anomaly detection"),
        ({"debugging": {"deterministic_algorithms": 2}}, "deterministic algorithms"),
        ({"debugging": {"profiler": 3}}, "torch's profiler"),
        ({"environment": {"TORCH_DISTRIBUTED_DEBUG": "detail"}}, "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ({"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}, "CUDA_LAUNCH_BLOCKING=1"),
        ({"training": loader(4), "cores": (0, 1, 2)}, "more loader workers than the host has cores"),
    ],
)
def test_what_is_on_is_a_note_without_a_cost(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    (one,) = found(tmp_path, lambda sidecar: replace(sidecar, **fields))
    assert (one.severity, one.cost_ms) == ("note", None) and f"on: {said} (" in one.message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"debugging": {"anomaly_detection": 1, "deterministic_algorithms": 1, "profiler": 2}},
        {"environment": {"TORCH_DISTRIBUTED_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "0"}},
        {"training": loader(1), "cores": tuple(range(16))},
        {"training": loader(0)},
    ],
)
def test_what_is_off_or_costs_nothing_is_not_said(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert found(tmp_path, lambda sidecar: replace(sidecar, **fields)) == []
