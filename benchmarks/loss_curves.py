"""The digits trained with every hook from the same seeds: accuracies, and losses beside plain DDP as a picture.

Run: python benchmarks/loss_curves.py --seeds 0,1,2 --picture losses.png, or --ranks 1,2,4. Nothing is timed here,
so it may run beside other work.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyddpdiag.train import HookKind, TrainSettings, launch
from pyddpdiag.train.events import EpochDone, Event, Told, TrainResult
from pyddpdiag.train.loop import Session, train_rank

Curves = dict[HookKind, tuple[EpochDone, ...]]
# Plain DDP, which the others are compared with, comes first, then those that should equal it.
HOOKS = sorted(HookKind, key=lambda hook: (hook is not HookKind.PLAIN, not hook.exact))


def every_hook(session: Session) -> TrainResult:
    """Trains once with each hook in one process group, and tells the losses of each."""
    for hook in HOOKS:
        trace = f"{session.trace}-{hook.value}" if hook.records else None
        settings = replace(session.settings, hook=hook, trace=None)
        result = train_rank(replace(session, settings=settings, trace=trace, tell=lambda event: None))
        if session.place.rank == 0:
            session.tell(Told(0, (hook, result.history)))
    return result


def train(ranks: int, epochs: int, seed: int) -> Curves:
    """The history of a training with each hook."""
    curves: Curves = {}

    def take(event: Event) -> None:
        if isinstance(event, Told) and isinstance(event.what, tuple):
            hook, history = event.what
            curves[hook] = history
            print(f"{ranks} ranks, seed {seed}, {hook.value}: {history[-1].accuracy:.2%}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainSettings(epochs=epochs, seed=seed, trace=str(Path(folder, "trace")))
        launch(settings, ranks, on_event=take, job=every_hook)
    return curves


def together(curves: Curves) -> list[list[HookKind]]:
    """Hooks with the same losses to the last bit, in groups; plain DDP is in the first."""
    groups: dict[tuple[float, ...], list[HookKind]] = {}
    for hook in HOOKS:
        groups.setdefault(tuple(epoch.train_loss for epoch in curves[hook]), []).append(hook)
    return list(groups.values())


def names(hooks: Sequence[HookKind]) -> str:
    """As a list for people."""
    return ", ".join(hook.value for hook in hooks)


def table(runs: dict[str, Curves]) -> str:
    """Accuracy and training loss after the last epoch of each hook and run, in Markdown."""
    lines = ["| hook |" + "".join(f" {name} |" for name in runs), "|---" * (1 + len(runs)) + "|"]
    for hook in HOOKS:
        ends = [curves[hook][-1] for curves in runs.values()]
        cells = "".join(f" {end.accuracy:.2%} ({end.train_loss:.5f}) |" for end in ends)
        lines.append(f"| `{hook.value}` |{cells}")
    return "\n".join(lines)


def apart(curve: Sequence[EpochDone], plain: Sequence[EpochDone]) -> list[float]:
    """How far the training losses are from those of plain DDP, per epoch."""
    return [abs(one.train_loss - other.train_loss) for one, other in zip(curve, plain, strict=True)]


def draw(title: str, curves: Curves, others: Sequence[Curves], path: Path) -> None:
    """Loss against epoch, and its distance to plain DDP's; `others` are of other seeds, for comparison."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from PIL import Image

    # Without pyplot: it would look for a screen.
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, distances = figure.subplots(1, 2)
    plain = curves[HookKind.PLAIN]
    epochs = [epoch.epoch + 1 for epoch in plain]
    exact, *rounding = together(curves)
    label = f"{names(exact)} (the same to the last bit)"
    losses.plot(epochs, [e.train_loss for e in plain], color="0.75", linewidth=6, label=label)
    for number, group in enumerate(rounding):
        curve, colour = curves[group[0]], f"C{number + 1}"
        losses.plot(epochs, [e.train_loss for e in curve], color=colour, marker="o", ms=3, label=names(group))
        distances.plot(epochs, apart(curve, plain), color=colour, marker="o", ms=3, label=names(group))
    for number, other in enumerate(others):
        curve, label = other[HookKind.PLAIN], "plain, other seeds" if number == 0 else None
        losses.plot(epochs, [e.train_loss for e in curve], color="0.4", ls=":", label=label)
        distances.plot(epochs, apart(curve, plain), color="0.4", ls=":", label=label)
    losses.set(title=title, xlabel="epoch", ylabel="training loss", yscale="log")
    distances.set(
        title="Distance to plain DDP", xlabel="epoch", ylabel="|difference of losses|", yscale="log"
    )
    for axes in (losses, distances):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    # Few colours make a small file.
    Image.open(picture).convert("RGB").quantize(48).save(path, "PNG", optimize=True)


def numbers(text: str) -> list[int]:
    """`0,1,2` as numbers."""
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=numbers, default=[2], metavar="N,N,...")
    parser.add_argument("--seeds", type=numbers, default=[0], metavar="N,N,...")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--picture", type=Path, help="file for a picture of the first number of ranks")
    chosen = parser.parse_args(arguments)
    runs = {
        (ranks, seed): train(ranks, chosen.epochs, seed) for ranks in chosen.ranks for seed in chosen.seeds
    }
    print("\nTest accuracy (training loss) after the last epoch\n")
    print(table({f"{ranks} ranks, seed {seed}": curves for (ranks, seed), curves in runs.items()}))
    print()
    for (ranks, seed), curves in runs.items():
        print(f"{ranks} ranks, seed {seed}, equal losses: {'; '.join(map(names, together(curves)))}")
    if chosen.picture is not None:
        ranks = chosen.ranks[0]
        first, *others = (runs[ranks, seed] for seed in chosen.seeds)
        draw(f"Digits, {ranks} ranks", first, others, chosen.picture)


if __name__ == "__main__":
    main()
