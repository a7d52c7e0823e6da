"""torch's own tests of DistributedDataParallel over Gloo, with our hooks in every module that trains.

Run by `python3 dev.py torch_ddp`, not with the other tests: they take long. PYDDPDIAG_WAY says how modules are
registered: "plain" (not at all), "attach", or "timed" (register_comm_hook).
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

import pyddpdiag
from pyddpdiag.integrations import unchanged
from pyddpdiag.integrations.watched import Watched


class Timed(Watched):
    """Registers the Python hook instead."""

    def _attach(self, ddp: DistributedDataParallel, given: Any) -> None:
        if not ddp._comm_hooks:
            ddp.register_comm_hook(self._open(), pyddpdiag.timed_allreduce)


WAYS = {"attach": Watched, "timed": Timed}
WAY = os.environ["PYDDPDIAG_WAY"]
if WAY != "plain":
    # In every rank, which imports this module: into a new folder below the working directory.
    unchanged.watch(WAYS[WAY](None, {"capacity_mb": 1}))


class TestTorchsOwn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()
