"""Settings of torch that slow a training down, as the sidecar has them."""

import torch
from torch.profiler import ProfilerActivity, profile

from pyddpdiag.record.debugging import Debugging


def test_the_profiler_is_counted_and_the_rest_is_on_or_was() -> None:
    debugging = Debugging()
    assert debugging.now() == {}
    with profile(activities=[ProfilerActivity.CPU]), torch.autograd.set_detect_anomaly(True):
        assert debugging.now() == {"anomaly_detection": 2, "profiler": 1}
        assert debugging.now()["profiler"] == 2
    assert debugging.now() == {"anomaly_detection": 1, "profiler": 2}
