"""Real DDP training over Gloo with the probes on: launch ranks here, or join ranks started elsewhere."""

from __future__ import annotations

from pyddpdiag.paths.averaging import Averaging, HookKind
from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.start import join, launch

__all__ = ["Averaging", "HookKind", "TrainResult", "TrainSettings", "join", "launch"]
