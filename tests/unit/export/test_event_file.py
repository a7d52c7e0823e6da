"""TensorBoard's own reader, and our writer of its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pages import skip_without

from pyddpdiag.export.tensorboard import Series, event_file


def test_event_files_hold_steps_of_any_size(tmp_path: Path) -> None:
    skip_without("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    steps = np.array([0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
    values = np.append(np.linspace(0.0, 1e6, len(steps) - 1), np.nan)
    series = Series("rank/wall_ms", steps, 1.7e9 + np.arange(len(steps)) / 7, values).known()
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(event_file([series]))
    head, *found = EventFileLoader(str(path)).Load()
    assert head.file_version == "brain.Event:2"
    assert [event.step for event in found] == steps[:-1].tolist()
    assert [event.wall_time for event in found] == series.wall_s.tolist()
    read = [event.summary.value[0].tensor.float_val[0] for event in found]
    assert read == pytest.approx(values[:-1].tolist(), rel=1e-6)
