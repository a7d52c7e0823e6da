"""Real DDP training over Gloo with the probes on: launch ranks here, or join ranks started elsewhere."""

from __future__ import annotations

from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.settings import HookKind, TrainSettings
from pyddpdiag.train.start import join, launch

__all__ = ["HookKind", "TrainResult", "TrainSettings", "join", "launch"]
