"""Trials of cures over shaped links: what they find there, and on which of two interfaces."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support.commands import ran
from support.links import NAMES, on_hosts, two_hosts
from support.ports import own_port
from support.trial_job import noted

from pyddpdiag.model.tried import Tried

pytestmark = pytest.mark.usefixtures("links")

SLOW, FAST = NAMES
SUPPORT = Path(__file__).parents[1] / "support"
TRAINS = """
import os, sys, torch, pyddpdiag
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from support.trial_job import noted
torch.set_num_threads(1)
rank, url, folder, interface = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
cure, layers, rows = sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
os.environ["GLOO_SOCKET_IFNAME"] = interface
dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2)
ddp = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(layers))))
recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False)
recorder.attach(ddp, trial=pyddpdiag.Trial([cure], minutes=3))
over = torch.zeros(1)
while not over:
    for _ in range(5):
        ddp(torch.ones(rows, 512)).square().mean().backward()
    trial = noted(recorder.path)
    over[0] = trial is not None and trial.state != "running"
    dist.all_reduce(over)
recorder.close()
"""


ENDED = ("decided", "time_over")
"""A busy machine may need more rounds than there is time for: what was found by then is kept. A trial ends as soon as
it knows, so that its 3 minutes are taken only there."""


def tried(tmp_path: Path, mbit: int, *job: str) -> Tried:
    """A trial of one cure over a link of so many Mbit/s; `job`: the cure, layers of 1 MiB, rows of each batch."""
    url = f"tcp://10.77.0.1:{own_port()}"
    folder = tmp_path / "run"
    commands = [[sys.executable, "-c", TRAINS, str(rank), url, str(folder), SLOW, *job] for rank in range(2)]
    with two_hosts((mbit, mbit)) as hosts:
        ends = on_hosts(hosts, commands, tmp_path, 300)
    assert [code for code, _, _ in ends] == [0, 0], str(ends)
    trial = noted(folder / "rank_0.ddptrace")
    assert trial is not None
    return trial


def test_sixteen_bits_are_found_over_a_slow_link(tmp_path: Path) -> None:
    trial = tried(tmp_path, 50, "compress", "2", "2")
    [half] = trial.cures
    # Buckets of 2 MiB take 340 ms over the link, and half of that in 16 bits.
    assert trial.state in ENDED and (trial.best, trial.kept) == ("bf16", "bf16"), trial
    assert half.ratio is not None and half.ratio < 0.8 and half.is_faster and not half.same_bits
    assert half.options == {"--compress": "bf16"}


def test_buckets_that_go_beside_backward_are_found_over_a_link(tmp_path: Path) -> None:
    """By default, the last bucket of 7 MiB is ready when backward is over, and takes 0.4 s.

    Of that, at least a sixth of a step is saved wherever backward takes between 0.2 and 1.3 s.
    """
    trial = tried(tmp_path, 150, "buckets=1", "8", "1000")
    [small] = trial.cures
    assert trial.state in ENDED and (trial.best, trial.kept) == (small.name, small.name), trial
    assert small.is_faster and small.same_bits
    assert small.options == {"--bucket-cap-mb": "1"}


@pytest.mark.timeout(500)
def test_the_faster_of_two_interfaces_is_found_by_starts(tmp_path: Path) -> None:
    job = [str(SUPPORT / "tried_job.py"), "communication", "1000000", "-"]
    with two_hosts((200, 1000)) as hosts:
        launch = [sys.executable, "-m", "support.both_hosts", str(own_port()), ",".join(hosts), *job]
        command = [sys.executable, "-m", "pyddpdiag", "try", "--restart", "--minutes", "6"]
        command += ["--cures", f"interface={FAST}", "--trace", "trial", "--json", "result.json", "--"]
        env = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": SLOW,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        done = ran(*command, *launch, cwd=tmp_path, env=env, timeout_s=480)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    [fast] = found["cures"]
    assert found["best"] == fast["name"] == f"interface {FAST}", done.stderr
    assert fast["ratio_high"] < 1 and fast["options"] == {"--interface": FAST}
    assert f"pyddpdiag run --interface {FAST} -- " in done.stderr
