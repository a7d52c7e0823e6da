"""`pyddpdiag try` with scripts of Lightning and of transformers' trainer: cures take turns, and the weights stay."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from support.promised import need
from train_support import ROOT, ended

from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run

JOB = str(ROOT / "tests" / "support" / "framework_job.py")
PYDDPDIAG = (sys.executable, "-m", "pyddpdiag")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
STEPS = "300"
CURES = "shared-memory,views"


@pytest.mark.parametrize(
    ("kind", "package", "launcher"),
    [("lightning", "lightning", (sys.executable,)), ("trainer", "transformers", TORCHRUN)],
    ids=["lightning", "transformers"],
)
def test_cures_take_turns_and_the_weights_are_those_of_the_untouched_run(
    tmp_path: Path, kind: str, package: str, launcher: tuple[str, ...]
) -> None:
    absent = importlib.util.find_spec(package) is None
    need("frameworks", f"{package} is not installed (dependency group 'frameworks')" if absent else "")
    results = []
    for name, command in (
        ("tried", (*PYDDPDIAG, "try", "--cures", CURES, "--minutes", "10", "--trace", "trial", "--")),
        ("plain", ()),
    ):
        (tmp_path / name).mkdir()
        code, err = ended(*command, *launcher, JOB, kind, STEPS, str(tmp_path / name), cwd=tmp_path)
        # The training is over before the trial's time: it may or may not have judged by then.
        assert code in ((0, 2) if command else (0,)), err
        assert not command or "What was tried" in err, err
        results.append([torch.load(tmp_path / name / f"weights-{rank}.pt") for rank in range(2)])
    for ours, theirs in zip(*results, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    tried = load_report(tmp_path / "trial").tried
    assert tried is not None and tried.way == "in_run"
    sidecar = open_run(tmp_path / "trial").ranks[0].sidecar
    assert sidecar.framework == package
    if kind == "lightning":
        # An eight-byte broadcast in each step, by which its ranks agree on signals.
        most = max(sidecar.training.callers, key=lambda one: one.calls)
        assert (most.package, most.operation) == ("lightning", "broadcast")
        assert most.where.startswith("lightning/pytorch/loops/training_epoch_loop.py:")
    shared = next(cure for cure in tried.cures if cure.name == "shared memory")
    assert shared.rounds and not shared.left and shared.same_bits, shared
