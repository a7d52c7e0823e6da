"""A module that is trained in evaluation mode, as a rule because nobody called `train()` after an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.modes import SURE_LOOKS, Mode
from pyddpdiag.model.words import count, ranks, verb


def _look(view: RunView) -> Iterator[Finding]:
    left = [
        (rank, one)
        for rank, sidecar in view.sidecars.items()
        for one in sidecar.training.modes
        if one.since_looks >= SURE_LOOKS and (one.dropouts or one.norms)
    ]
    if not left:
        return
    # A module that never was in training mode may be meant so, as one with frozen statistics.
    forgotten = [entry for entry in left if entry[1].before]
    worst = max((one for _, one in forgotten or left), key=lambda one: one.dropouts + one.norms)
    same = [(rank, one) for rank, one in forgotten or left if one.module == worst.module]
    whose = sorted({rank for rank, _ in same})
    since = min(one.since_step or 0 for _, one in same)
    alone = any(
        one.module == worst.module and one.looks and not one.since_looks
        for sidecar in view.sidecars.values()
        for one in sidecar.training.modes
    )
    when = f"since step {since} at the latest" if forgotten else "from the first step on"
    yield Finding(
        kind="left_in_eval",
        severity="warning" if forgotten or alone else "note",
        message=f"{ranks(whose)} {verb(whose, 'trains', 'train')} in evaluation mode {when}: {_without(worst)}.",
        confidence="high" if forgotten or alone else "medium",
        rank=whose[0] if alone and len(whose) == 1 else None,
        since_step=since,
        cost_ms=None,  # it costs no time: the model learns something else
        evidence={
            "ranks": len(whose),
            "looks_in_eval": worst.since_looks,
            "looks_before": worst.before,
            "dropout_layers": worst.dropouts,
            "normalisation_layers": worst.norms,
        },
        change_mind="The model is fine-tuned with its statistics frozen and without dropout on purpose.",
        advice=_advice(forgotten),
    )


def _without(one: Mode) -> str:
    parts = []
    if one.dropouts:
        parts.append(
            f"{count(one.dropouts, 'dropout layer')} {'drops' if one.dropouts == 1 else 'drop'} nothing"
        )
    if one.norms:
        uses = "uses its" if one.norms == 1 else "use their"
        parts.append(
            f"{count(one.norms, 'normalisation layer')} {uses} running statistics and no longer the batch's"
        )
    return ", and ".join(parts)


def _advice(forgotten: Sequence[object]) -> str:
    if forgotten:
        return "model.train() at the start of each epoch: an evaluation before it called model.eval()."
    return "model.train() before the first step: a loaded model may come in evaluation mode (from_pretrained does so)."


CHECK = Check(("left_in_eval",), _look, rests_on="records")
