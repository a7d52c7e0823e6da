"""Servers that refuse: a wrong key or password, and a bucket, container or share that is not there.

A report says so in one message. A training whose traces are refused is not begun; where that shows only at its end,
its traces are kept here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from collecting.conftest import configured, s3_serving
from support.commands import python, ran

KEY = "are the keys or the password right"
PLACE = "does the bucket, container or share exist"
REACHED = "is the place reachable from here?"
EMPTY = "no traces there. hint: is it the place that --trace named?"
SCRIPT = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(8, 4))
for _ in range(4):
    ddp(torch.ones(2, 8)).sum().backward()
dist.destroy_process_group()
print("trained to its end")
"""


@dataclass(frozen=True)
class Refusal:
    """A URL that is refused, and the environment in which it is.

    `report` and `run` are what these commands say. The training `begins` where the refusal shows only at its end.
    """

    url: str
    given: dict[str, str]
    report: str
    run: str
    begins: bool


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    # From the first request on, it asks who it is.
    asking = {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}
    with configured(asking), s3_serving(tmp_path_factory.mktemp("s3")) as (given, _):
        yield given


@pytest.fixture(
    params=["s3-key", "gs-bucket", "az-key", "az-container", "smb-password", "smb-share", "smb-read-only"]
)
def refusal(request: pytest.FixtureRequest) -> Iterator[Refusal]:
    kind, _, what = request.param.partition("-")
    served = request.getfixturevalue(kind)
    given, begins, run = {}, False, KEY
    if kind == "s3":
        url, given = "s3://traces/runs/refused", served
    elif what == "key":
        name = "AZURE_STORAGE_CONNECTION_STRING"
        url, given = f"{served}/refused", {name: os.environ[name].replace("AccountKey=E", "AccountKey=A")}
    elif kind in ("gs", "az"):
        url, begins, run = f"{kind}://nowhere/runs/refused", True, PLACE
    elif what == "password":
        url = f"{served}/refused".replace(":secret@", ":wrong@")
    else:
        url = f"{served}/refused".replace("/traces/", "/nowhere/" if what == "share" else "/locked/")
        # Samba's client asks again and again for a share.
        begins, run = True, REACHED if what == "share" else KEY
    with configured(given):
        # A place that may be empty cannot be told from one that is not there.
        yield Refusal(url, given, EMPTY if begins else KEY, run, begins)


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_report_says_in_one_message_what_to_look_at(refusal: Refusal) -> None:
    ended = python("-m", "pyddpdiag", "report", refusal.url, timeout_s=120)
    said = one_line(ended.stderr)
    assert ended.returncode == 2 and refusal.report in said, str(ended)
    assert "Traceback" not in said and len(ended.stderr.splitlines()) < 8, ended.stderr
    assert "secret" not in said and "wrong@" not in said


def test_a_training_is_not_begun_or_keeps_its_traces(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pyddpdiag", "run", "--trace", refusal.url, "--nproc", "2", "--"),
        "train.py",
    ]
    ended = ran(*command, cwd=tmp_path, timeout_s=200)
    said = one_line(ended.stderr)
    assert refusal.run in said and "Traceback" not in said, ended.stderr
    assert "secret" not in said and "wrong@" not in said
    kept = {path.name for path in tmp_path.glob("**/*.ddptrace")}
    if not refusal.begins:
        assert ended.returncode == 2 and not ended.stdout and not kept, str(ended)
        return
    # What it trained is not at stake.
    assert ended.stdout.count("trained to its end") == 2 and ended.returncode == 0, str(ended)
    assert kept == {"rank_0.ddptrace", "rank_1.ddptrace"}, ended.stderr
    assert "to bring it: pyddpdiag collect" in said, ended.stderr
