"""A recorder on modules that torch.compile compiles."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.hooked import complete
from support.models import batch, branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.run import open_run

STEPS = 3


def _job(_: int, __: int, folder: str) -> dict[str, Any]:
    """How often the graph breaks, and what attaching warns of."""
    from torch._dynamo.utils import counters

    seen: dict[str, Any] = {}
    for way in ("plain", "module", "compiled", "python_reducer"):
        torch._dynamo.reset()
        counters.clear()
        torch._dynamo.config.optimize_ddp = way if way == "python_reducer" else True
        ddp = DistributedDataParallel(branches(torch.float32))
        # No code is generated: what matters here is what the compiler traces.
        compiled = torch.compile(ddp, backend="eager")
        with (
            pyddpdiag.Recorder(Path(folder, way), capacity_mb=1) as recorder,
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always", RuntimeWarning)
            if way != "plain":
                recorder.attach(ddp if way == "module" else compiled)  # type: ignore[arg-type]
            for step in range(STEPS):
                compiled(batch(0, step, torch.float32)).square().mean().backward()
        said = [text for text in (str(warning.message) for warning in warned) if "optimize_ddp" in text]
        breaks = counters["graph_break"]
        seen[way] = {"breaks": sum(breaks.values()), "reasons": sorted(breaks), "said": said}
    return seen


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("compiled")
    return folder, run_ranks(_job, 1, folder, str(folder))[0]


def test_attaching_breaks_the_graph_nowhere_else(compiled: tuple[Path, dict[str, Any]]) -> None:
    seen = compiled[1]
    assert seen["compiled"] == seen["plain"]
    # The compiler enters a module with hooks by one frame more, and meets DDP's own breaks in that, too.
    assert seen["module"]["reasons"] == seen["plain"]["reasons"]
    assert seen["python_reducer"]["breaks"] == 0


@pytest.mark.parametrize("way", ["module", "compiled"])
def test_buckets_are_recorded(compiled: tuple[Path, dict[str, Any]], way: str) -> None:
    trace = open_run(compiled[0] / way).ranks[0]
    assert len(complete(trace, Kind.BUCKET)) == STEPS
    times = complete(trace, Kind.BACKWARD)["times"]
    # The marks of torch.compile's own module are not traced.
    for column in (BackwardTime.BEGIN, BackwardTime.FORWARD_BEGIN, BackwardTime.FORWARD_END):
        assert (times[:, column] > 0).all() == (way == "compiled")


def test_a_reducer_that_passes_the_hook_by_is_named(compiled: tuple[Path, dict[str, Any]]) -> None:
    folder, seen = compiled
    [said] = seen["python_reducer"]["said"]
    assert "optimize_ddp is 'python_reducer'" in said and "no bucket is recorded" in said
    report = load_report(folder / "python_reducer")
    assert report.buckets == ()
    assert any("optimize_ddp='python_reducer'" in warning for warning in report.warnings)
