"""Loss against epoch and against time, as a picture. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from pyddpdiag.errors import UsageError
from pyddpdiag.scaling.model import Run


def available() -> bool:
    """Whether matplotlib can be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def picture(runs: Sequence[Run], kind: Literal["png", "svg"]) -> bytes:
    """Two plots side by side. Raises `UsageError` without matplotlib."""
    try:
        # Without pyplot: it would look for a screen.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "Charts are drawn by matplotlib, which is not installed.", hint="pip install matplotlib"
        ) from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    by_epoch, by_time = figure.subplots(1, 2, sharey=True)
    for run in runs:
        curve = run.curve()
        losses = [point[2] for point in curve]
        label = "1 (no DDP)" if run.world_size == 1 and not run.result.buckets else f"{run.world_size} ranks"
        by_epoch.plot([point[0] for point in curve], losses, marker="o", markersize=3, label=label)
        by_time.plot([point[1] for point in curve], losses, marker="o", markersize=3, label=label)
    by_epoch.set(xlabel="epoch", ylabel="training loss")
    by_time.set(xlabel="seconds")
    by_epoch.legend()
    for axes in (by_epoch, by_time):
        axes.grid(alpha=0.3)
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=120)
    return target.getvalue()
