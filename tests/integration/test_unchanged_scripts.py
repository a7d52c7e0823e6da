"""`pyddpdiag run` and `python -m pyddpdiag.attach`: scripts that know nothing of pyddpdiag."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from support.plain_job import BATCHES, EPOCHS, FAILS_IN, STEPS
from support.promised import need
from support.reported import findings
from train_support import ROOT, USUAL, finish, started

from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_report
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.cores import usable_cores
from pyddpdiag.trace.layout import Flag, Kind, Records, StepTime
from pyddpdiag.trace.run import open_run

JOB = str(ROOT / "tests" / "support" / "plain_job.py")
RUN = (sys.executable, "-m", "pyddpdiag", "run")


def ran(*command: str, cwd: Path, **extra: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with started(list(command), cwd, **{**USUAL, **extra}) as process:
        return finish(process)


def without_ends(steps: Records) -> Records:
    """The records of steps, without those that only say that a loader came to its end."""
    return steps[steps["times"][:, StepTime.BEGIN] > 0]


def test_elastic_ranks_are_recorded_with_their_steps(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    options = ("--no-lines", "--trace", "run", "--bucket-cap-mb", "1")
    code, out, err = ran(*RUN, *options, *torchrun, "--max-restarts=1", JOB, "loader", cwd=tmp_path)
    assert code == 0, err
    assert "rank 0 trained, attempt 1" in out and "rank 1 trained, attempt 1" in out
    # The verdict is no part of the script's output.
    assert "Where a step goes" in err and "Ranks" not in out
    newest, first = load_report(tmp_path / "run"), load_report(tmp_path / "run", attempt=0)
    assert [rank.steps for rank in newest.ranks] == [EPOCHS * BATCHES] * 2
    assert all(rank.closed for rank in newest.ranks) and newest.buckets
    assert first.ranks[1].last_step == FAILS_IN
    for path in (tmp_path / "run").glob("**/*.lines"):
        assert json.loads(path.read_text(encoding="utf-8"))["frames"] == []
    for rank in open_run(tmp_path / "run" / "attempt-1").ranks:
        assert rank.sidecar.recorded_by == "run"
        assert "construction_end_ns" in rank.sidecar.start_up
        assert not any(name.startswith("set_up") for name in rank.sidecar.start_up)
        assert rank.sidecar.modules[0].bucket_cap_mb == 1
        steps = without_ends(rank.of_kind(Kind.STEP))
        # The number of batches that were taken for evaluations differs; that of steps does not.
        assert steps["step"].tolist() == list(range(EPOCHS * BATCHES))
        assert not (steps["flags"] & (Flag.ABANDONED | Flag.NO_BATCH)).any()
        waits = steps["times"][:, StepTime.BEGIN] - steps["times"][:, StepTime.WAIT_BEGIN]
        assert (waits[1:] > 0).all()
        # Each pass belongs to the step around it.
        assert rank.of_kind(Kind.BACKWARD)["step"].tolist() == list(range(EPOCHS * BATCHES))


def trained_with_a_hook(folder: Path, *way: str, end: str = "", **extra: str) -> str:
    """Trains the script's two modules in a new folder; standard error."""
    folder.mkdir()
    code, _, err = ran(*way, JOB, "hook", ".", *filter(None, [end]), cwd=folder, **extra)
    assert code == 0, err
    return err


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which it trained without pyddpdiag."""
    folder = tmp_path_factory.mktemp("unchanged") / "plain"
    # Without pyddpdiag, torch aborts now and then while Python shuts down (record/orderly_exit.py).
    err = trained_with_a_hook(folder, sys.executable, end="abrupt")
    assert "Where a step goes" not in err
    return folder


def equal_weights(one: Path, other: Path) -> bool:
    names = [f"weights-{rank}.pt" for rank in range(2)]
    pairs = ((torch.load(folder / name, weights_only=True) for folder in (one, other)) for name in names)
    return all(all(map(torch.equal, *pair)) for pair in pairs)


def test_a_script_with_its_own_hook_is_only_timed(tmp_path: Path, plain: Path) -> None:
    folder = tmp_path / "attached"
    err = trained_with_a_hook(folder, sys.executable, "-m", "pyddpdiag.attach", "--trace", "run")
    assert "Where a step goes" in err
    assert equal_weights(folder, plain)
    for rank in open_run(folder / "run").ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        assert sorted(set(buckets["module"].tolist())) == [0, 1]
        foreign = (buckets["flags"] & Flag.FOREIGN) > 0
        native = (buckets["flags"] & Flag.NATIVE) > 0
        assert (foreign != native).all() and foreign.sum() == native.sum() == STEPS
        # Without a loader, a step ends with the optimizer's.
        assert rank.of_kind(Kind.STEP)["step"].tolist() == list(range(STEPS))
        assert rank.sidecar.closed


def test_cures_reach_spawned_ranks_and_leave_the_trainings_bits(tmp_path: Path, plain: Path) -> None:
    folder = tmp_path / "cured"
    cures = {
        "--shared-memory": "require",
        "--bucket-cap-mb": "1",
        "--interface": interfaces.loopback() or "",
        "--gradient-as-bucket-view": "",
        "--pin-ranks": "",
    }
    options = [word for pair in cures.items() for word in pair if word]
    # Gloo would refuse the environment's interface.
    run = (*RUN, "--trace", "run", *options, "--", sys.executable)
    err = trained_with_a_hook(folder, *run, GLOO_SOCKET_IFNAME="none")
    assert equal_weights(folder, plain)
    assert err.count("applying --shared-memory require --bucket-cap-mb 1 ") == 1, err
    assert "The training's bits stay the same." in err
    for rank in range(2):
        assert f"rank {rank}: the script gives bucket_cap_mb=20; --bucket-cap-mb is used instead." in err
        assert f"rank {rank}: --shared-memory is not applied to Linear: the script gave it" in err
    for each in open_run(folder / "run").ranks:
        buckets, layouts = each.of_kind(Kind.BUCKET), each.sidecar.layouts.values()
        named = {module.name: index for index, module in each.sidecar.modules.items()}
        shared = (buckets["flags"] & Flag.SHARED) > 0
        assert (shared == (buckets["module"] == named["Sequential"])).all() and shared.any()
        # Of 2.6 MB in all, until DDP has rebuilt its buckets.
        assert sum(layout.module == named["Sequential"] for layout in layouts) == 3
        assert each.sidecar.modules[named["Sequential"]].bucket_cap_mb == 1
        launch = each.sidecar.launch
        assert launch is not None and launch.command == (sys.executable, JOB, "hook", ".")
        assert launch.cures == cures
    cores = [set(each.sidecar.cores) for each in open_run(folder / "run").ranks]
    assert not cores[0] & cores[1] or usable_cores() < 2


def test_lightning_with_a_validation_loader_is_recorded_in_every_epoch(tmp_path: Path) -> None:
    absent = importlib.util.find_spec("lightning") is None
    need("frameworks", "lightning is not installed (dependency group 'frameworks')" if absent else "")
    job = str(ROOT / "tests" / "support" / "lightning_job.py")
    code, _, err = ran(
        *RUN, "--trace", "run", "--", sys.executable, job, str(EPOCHS), str(BATCHES), cwd=tmp_path
    )
    assert code == 0, err
    for rank in open_run(tmp_path / "run").ranks:
        steps = without_ends(rank.of_kind(Kind.STEP))
        assert steps["step"].tolist() == list(range(2 * EPOCHS * BATCHES))
        assert not (steps["flags"] & (Flag.ABANDONED | Flag.NO_BATCH)).any()
        assert rank.of_kind(Kind.BACKWARD)["step"].tolist() == list(range(2 * EPOCHS * BATCHES))


UNPACKS = """
import os, sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def unpack():
    end = time.monotonic() + 4
    while time.monotonic() < end:
        time.sleep(0.01)

who = sys.argv[1]
if who == "imports" and os.environ["RANK"] == "1":
    unpack()
dist.init_process_group("gloo")
if who == "first" and dist.get_rank() == 0:
    unpack()
dist.barrier()
ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
if who == "module" and dist.get_rank() == 1:
    unpack()
for _ in range(30):
    ddp(torch.ones(2, 8)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("who", ["first", "imports", "module"])
def test_what_one_rank_does_before_its_first_pass_is_found(tmp_path: Path, who: str) -> None:
    """The others wait in a barrier, of which no recorder has a record yet, to join the process group, or in the first
    all-reduce."""
    (tmp_path / "unpacks.py").write_text(UNPACKS.lstrip(), encoding="utf-8")
    code, _, err = ran(*RUN, "--trace", "run", "--nproc", "2", "--", "unpacks.py", who, cwd=tmp_path)
    assert code in (0, 1), err
    (alone,) = findings(tmp_path / "run", "rank_alone")
    assert "before the first step" in alone.message and (alone.cost_s or 0.0) > 1.0
    assert alone.rank == (0 if who == "first" else 1)
    assert alone.where in ("unpacks.py:6", "unpacks.py:7")


RESTORES = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def restore(model):
    state = {name: value + 1 for name, value in model.state_dict().items()}
    time.sleep(0.5)
    model.load_state_dict(state)

dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
if dist.get_rank() == 1:
    restore(ddp.module)
for step in range(80):
    optimizer.zero_grad()
    ddp(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    if step % 20 == 19:
        torch.save(ddp.module.state_dict(), "last.pt")
    if step % 20 == 19 and dist.get_rank() == 0:
        torch.save(ddp.module.state_dict(), "first.pt")
dist.destroy_process_group()
"""


def test_lines_are_found_of_weights_that_differ_and_of_a_file_that_all_ranks_save(tmp_path: Path) -> None:
    """Before the first pass, where one rank changes its weights, no recorder is open yet."""
    (tmp_path / "restores.py").write_text(RESTORES.lstrip(), encoding="utf-8")
    code, _, err = ran(*RUN, "--trace", "run", "--nproc", "2", "--", "restores.py", cwd=tmp_path)
    assert code in (0, 1), err
    [differs] = findings(tmp_path / "run", "different_weights")
    assert differs.where is not None and differs.where.startswith("restores.py:6"), differs
    assert "rank 1 alone was at restores.py:6" in differs.message
    [saved] = findings(tmp_path / "run", "same_checkpoint")
    assert (saved.where, saved.evidence["saves"]) == ("restores.py:20", 8)
    assert "ranks 0, 1 save into the same file last.pt at restores.py:20" in saved.message
    # What is noted in case that no rank comes to train.
    assert not list(tmp_path.glob("run/*.start"))


ACCELERATED = """
import accelerate, torch
from pyddpdiag.integrations.accelerate import Diagnostics
accelerator = accelerate.Accelerator(cpu=True)
ddp = accelerator.prepare(torch.nn.Linear(2, 2))
Diagnostics(accelerator)
with torch.no_grad():
    ddp(torch.ones(1, 2))
if accelerator.is_main_process:
    print(accelerator.num_processes)
accelerator.end_training()
"""


def test_what_the_line_for_accelerate_tells_to_start_is_two_ranks(tmp_path: Path) -> None:
    absent = importlib.util.find_spec("accelerate") is None
    need("frameworks", "accelerate is not installed (dependency group 'frameworks')" if absent else "")
    from pyddpdiag.integrations.accelerate import START

    (tmp_path / "script.py").write_text(ACCELERATED, encoding="utf-8")
    launcher, *options = START.replace("SCRIPT", "script.py").split()
    assert launcher == "torchrun"
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    code, out, err = ran(*torchrun, *options, cwd=tmp_path)
    assert (code, out) == (0, "2\n"), err
    assert err.count("pyddpdiag recorded nothing: no DistributedDataParallel module ran with gradients") == 1
    code, out, err = ran(sys.executable, "script.py", cwd=tmp_path)
    assert (code, out) == (0, "1\n"), err
    assert f"there is one process. Start several: {START}" in err


def test_the_exit_code_and_a_sitecustomize_are_the_scripts_own(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("CALLED = 'theirs'\n", encoding="utf-8")
    program = "import sitecustomize, sys; print(sitecustomize.CALLED); sys.exit(7)"
    path = os.pathsep.join([str(theirs), *filter(None, sys.path)])
    code, out, err = ran(*RUN, "--", sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=path)
    assert (code, out) == (7, "theirs\n"), err
    assert "nothing was recorded" in err


def test_what_cannot_be_run_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--", "no_such_script.py"]) == 2
    said = capsys.readouterr().err
    assert "pyddpdiag run python no_such_script.py, or" in said
    assert "options of pyddpdiag come before the command" in said
    (tmp_path / "rank_0.ddptrace").touch()
    assert main(["run", "--trace", str(tmp_path), "--", sys.executable, "-c", ""]) == 2
    assert "there are traces already" in capsys.readouterr().err
