"""Gradient norms over the run with what the sentinel found, and the loss where it was recorded."""

from __future__ import annotations

import numpy as np

from pyddpdiag.model import words
from pyddpdiag.model.details import GradientNorms, Loss, RunDetails
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.report.charts.chart import Axis, Chart, Line, Panel, Points, plain
from pyddpdiag.report.page import Part
from pyddpdiag.report.tables import Table

MOST_RANKS = 8
MOST_POINTS = 600
MOST_MARKS = 200


def parts(report: RunReport, details: RunDetails | None) -> list[Part]:
    """The charts that have something to show."""
    if details is None:
        return []
    found: list[Part] = []
    if len(details.norms):
        found.append(_norms(details.norms, report))
    if details.loss is not None and details.loss.epoch:
        found.append(_loss(details.loss))
    return found


def _norms(norms: GradientNorms, report: RunReport) -> Chart:
    ranks = np.unique(norms.rank).tolist()
    shown = ranks[:MOST_RANKS]
    series: list[Line | Points] = []
    table: dict[str, list[str]] = {"rank": [], "step": [], "norm": [], "largest value": [], "not finite": []}
    top = float(np.nanmax(norms.norm)) if np.isfinite(norms.norm).any() else 1.0
    for place, rank in enumerate(shown):
        mine = np.flatnonzero(norms.rank == rank)
        kept = _thinned(norms, mine)
        step, norm = norms.step[kept].tolist(), plain(norms.norm[kept])
        series.append(Line(f"rank {rank}", step, norm, str(place)))
        table["rank"] += [str(rank)] * len(kept)
        table["step"] += [str(each) for each in step]
        table["norm"] += ["not finite" if each is None else f"{each:.5g}" for each in norm]
        table["largest value"] += ["-" if v != v else f"{v:.5g}" for v in norms.maximum[kept].tolist()]
        table["not finite"] += [str(each) for each in norms.non_finite[kept].tolist()]
    bad = np.flatnonzero(norms.non_finite > 0)[:MOST_MARKS]
    if len(bad):
        series.append(
            Points(
                "not finite",
                norms.step[bad].tolist(),
                [float(f"{top:.4g}")] * len(bad),
                "bad",
                "cross",
                [
                    f"rank {norms.rank[at]}, step {norms.step[at]}; {norms.non_finite[at]} values are not finite"
                    for at in bad.tolist()
                ],
            )
        )
    findings = [finding for finding in report.verdict.findings if kind_of(finding).marks == "gradients"]
    marked = [finding for finding in findings if finding.since_step is not None]
    if marked:
        series.append(
            Points(
                "found",
                [finding.since_step for finding in marked],
                [float(f"{top:.4g}")] * len(marked),
                "late",
                "diamond",
                [finding.message for finding in marked],
            )
        )
    found = " ".join(words.sentence(finding.message.rstrip(".")) + "." for finding in findings)
    left = "" if len(shown) == len(ranks) else f" The first {len(shown)} of {len(ranks)} ranks are shown."
    return Chart(
        "gradient-norms",
        "Norm of each rank's own gradient",
        "Before the ranks average, in the steps whose gradients were examined; apart where inputs differ, and the same "
        f"scale if all is well.{left} " + (found or "Nothing wrong was found in them."),
        [Panel(series, Axis("norm (L2)", logarithmic=_wide(norms)), height=240)],
        Axis("step"),
        Table("Norm of each rank's own gradient", table, 0),
    )


def _thinned(
    norms: GradientNorms, mine: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """At most so many points: of each stretch the largest, or one that is not finite, so that no peak is lost."""
    if len(mine) <= MOST_POINTS:
        return mine
    stretch = np.arange(len(mine)) * MOST_POINTS // len(mine)
    height = np.where(norms.non_finite[mine] > 0, np.inf, np.nan_to_num(norms.norm[mine]))
    order = np.lexsort((-height, stretch))
    first = np.searchsorted(stretch[order], np.arange(MOST_POINTS))
    return np.asarray(mine[np.sort(order[first])])


def _wide(norms: GradientNorms) -> bool:
    known = norms.norm[np.isfinite(norms.norm) & (norms.norm > 0)]
    return bool(len(known) and known.max() > 50 * np.median(known))


def _loss(loss: Loss) -> Chart:
    x = list(loss.epoch)
    series = [Line("training", x, plain(loss.train_loss), "0", marks=True)]
    if any(value is not None for value in loss.test_loss):
        series.append(Line("test", x, plain(loss.test_loss), "1", marks=True))
    columns = {
        "epoch": [str(each) for each in x],
        "training loss": ["-" if v is None else f"{v:.5g}" for v in loss.train_loss],
        "test loss": ["-" if v is None else f"{v:.5g}" for v in loss.test_loss],
        "accuracy": ["-" if v is None else f"{v:.2%}" for v in loss.accuracy],
        "seconds": [f"{v:.1f}" for v in loss.elapsed_s],
    }
    return Chart(
        "loss",
        "Loss after each epoch",
        "As the training wrote it beside the trace.",
        [Panel(series, Axis("loss"), height=220)],
        Axis("epoch"),
        Table("Loss after each epoch", columns, 0),
    )
