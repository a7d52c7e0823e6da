"""Real DDP training over Gloo with the probes on: a launcher for this machine, and a way to join other launchers."""

from __future__ import annotations

from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.joined import join
from pyddpdiag.train.launcher import launch
from pyddpdiag.train.settings import HookKind, TrainSettings

__all__ = ["HookKind", "TrainResult", "TrainSettings", "join", "launch"]
