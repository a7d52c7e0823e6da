"""Ranks that meet in a process group and then each train a model of their own; and ranks that share one without DDP."""

import sys
from pathlib import Path

import pytest
from support import lone_job
from support.lone_job import ALONE, TOGETHER
from support.ranks import ran_once
from support.reported import findings
from train_support import ended

from pyddpdiag.integrations import early_end, unchanged
from pyddpdiag.integrations.alone import AloneWatch
from pyddpdiag.integrations.watched import Watched
from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report


def _job(rank: int, _: int, folder: str) -> None:
    for way in (*ALONE, *TOGETHER):
        watched = Watched(f"{folder}/{way}", {"capacity_mb": 1})
        # As in a process that has done nothing before.
        unchanged._state.begun, unchanged._early = False, early_end.Watch()
        unchanged._alone = AloneWatch(unchanged._trains_alone)
        unchanged.watch(watched)
        lone_job.train(way, rank)
        if watched.session is not None:
            watched.session.close()


trained = ran_once(_job, 2, answers=False)


def _found(folder: Path) -> list[Finding]:
    if not folder.exists():
        return []  # a rank that calls collectives is not recorded
    return findings(folder, "not_reduced", "unreduced_parameters")


@pytest.mark.parametrize("way", ALONE)
def test_ranks_that_train_alone_are_told_so(trained: Path, way: str) -> None:
    [found] = _found(trained / way)
    assert (found.kind, found.severity, found.confidence) == ("not_reduced", "error", "high")
    text = Path(lone_job.__file__).read_text(encoding="utf-8").splitlines()
    steps = 1 + next(place for place, line in enumerate(text) if "optimizer.step()" in line)
    assert found.where is not None and found.where.endswith(f"lone_job.py:{steps}")


@pytest.mark.parametrize("way", TOGETHER)
def test_ranks_that_share_a_model_in_another_way_are_innocent(trained: Path, way: str) -> None:
    assert _found(trained / way) == []


def test_what_a_rank_trained_alone_before_is_no_part_of_the_training(trained: Path) -> None:
    report = load_report(trained / "prepared")
    assert [(one.rank, one.last_step, one.steps) for one in report.ranks] == [(0, 69, 70), (1, 69, 70)]


SCRIPT = """
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.Adam(net.parameters())
# One of the script's own, which torch calls after ours: no other may come in between.
register_optimizer_step_post_hook(lambda *_: None)
for _ in range(20):
    optimizer.zero_grad()
    net(torch.randn(2, 8)).square().sum().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""


def test_the_command_says_so_in_its_first_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    run = (sys.executable, "-m", "pyddpdiag", "run", "--trace", "trace", "--nproc", "2")
    code, errors = ended(*run, "--", "train.py", cwd=tmp_path)
    assert code == 0, errors
    verdict = load_report(tmp_path / "trace").verdict
    says = "Each of 2 ranks trains a model of its own: its optimizer steps at train.py:15"
    assert verdict.findings[0].kind == "not_reduced" and verdict.line.startswith(says), verdict.line
