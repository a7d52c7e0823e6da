"""The digits trained with every hook from the same seeds: accuracies, and losses beside plain DDP as a picture.

Run: python benchmarks/loss_curves.py --seeds 0,1,2,3,4 --picture losses.png, or --nproc 1,2,4. Nothing is timed here,
so it may run beside other work.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from pyddpdiag.train import Averaging, HookKind, TrainSettings, launch
from pyddpdiag.train.events import EpochDone, TrainResult
from pyddpdiag.train.loop import train_rank
from pyddpdiag.train.rank_session import Session

Curves = dict[Averaging, tuple[EpochDone, ...]]
# Plain DDP, which the others are compared with, comes first, then those that should equal it.
PLAIN = Averaging(HookKind.PLAIN)
HOOKS = [
    PLAIN,
    Averaging(HookKind.BUILTIN),
    Averaging(),
    Averaging(HookKind.TIMED),
    Averaging(shared_memory="auto"),
    *(Averaging(hook, bits) for bits in ("bf16", "fp16") for hook in (HookKind.NATIVE, HookKind.TIMED)),
    Averaging(compress="bf16", error_feedback=True),
]


def every_hook(session: Session) -> TrainResult:
    """Trains once with each hook in one process group, and tells the losses of each."""
    for hook in HOOKS:
        trace = f"{session.trace}-{hook.label}" if hook.hook.records else None
        settings = replace(session.settings, **asdict(hook), trace=None)
        result = train_rank(replace(session, settings=settings, trace=trace, tell=lambda event: None))
        if session.place.rank == 0:
            session.tell((hook, result.history))
    return result


def train(ranks: int, epochs: int, seed: int) -> Curves:
    """The history of a training with each hook."""
    curves: Curves = {}

    def take(event: object) -> None:
        if isinstance(event, tuple):
            hook, history = event
            curves[hook] = history
            print(f"{ranks} ranks, seed {seed}, {hook.label}: {history[-1].accuracy:.2%}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainSettings(epochs=epochs, seed=seed, trace=str(Path(folder, "trace")))
        launch(settings, ranks, on_event=take, job=every_hook)
    return curves


def together(runs: Sequence[Curves]) -> list[list[Averaging]]:
    """Hooks with the same losses to the last bit in all runs, in groups; plain DDP is in the first."""
    groups: dict[tuple[float, ...], list[Averaging]] = {}
    for hook in HOOKS:
        losses = tuple(epoch.train_loss for curves in runs for epoch in curves[hook])
        groups.setdefault(losses, []).append(hook)
    return list(groups.values())


def names(hooks: Sequence[Averaging]) -> str:
    """As a list for people."""
    return ", ".join(hook.label for hook in hooks)


def table(runs: dict[str, Curves]) -> str:
    """Accuracy and training loss after the last epoch of each hook and run, in Markdown."""
    lines = ["| hook |" + "".join(f" {name} |" for name in runs), "|---" * (1 + len(runs)) + "|"]
    for hook in HOOKS:
        ends = [curves[hook][-1] for curves in runs.values()]
        cells = "".join(f" {end.accuracy:.2%} ({end.train_loss:.5f}) |" for end in ends)
        lines.append(f"| `{hook.label}` |{cells}")
    return "\n".join(lines)


def draw(title: str, runs: Sequence[Curves], path: Path) -> None:
    """Loss against epoch, median and range over the seeds, and its distance to plain DDP's of the same seed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from PIL import Image

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    losses, distances = figure.subplots(1, 2)
    # Of each hook: one row per seed, one column per epoch.
    rows = {hook: np.array([[epoch.train_loss for epoch in run[hook]] for run in runs]) for hook in HOOKS}
    plain = rows[PLAIN]
    epochs = np.arange(plain.shape[1]) + 1
    exact, *rounding = together(runs)
    label = f"{names(exact)}:\nthe same to the last bit"
    losses.plot(epochs, np.median(plain, 0), color="0.7", linewidth=6, label=label)
    losses.fill_between(epochs, plain.min(0), plain.max(0), color="0.7", alpha=0.3, linewidth=0)
    for number, group in enumerate(rounding):
        mine, style = (
            rows[group[0]],
            {"color": f"C{number + 1}", "marker": "o", "ms": 3, "label": names(group)},
        )
        losses.plot(epochs, np.median(mine, 0), **style)
        losses.fill_between(epochs, mine.min(0), mine.max(0), color=style["color"], alpha=0.12, linewidth=0)
        distances.plot(epochs, np.median(np.abs(mine - plain), 0), **style)
    if len(runs) > 1:
        pairs = [np.abs(plain[a] - plain[b]) for a, b in combinations(range(len(runs)), 2)]
        distances.plot(epochs, np.median(pairs, 0), "k:", label="plain DDP of two different seeds")
    losses.set(title=title, xlabel="epoch", ylabel="training loss", yscale="log")
    distances.set(
        title="Distance to plain DDP of the same seed",
        xlabel="epoch",
        ylabel="|difference of losses|",
        yscale="log",
    )
    for axes in (losses, distances):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=8, loc="lower left")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    # Few colours make a small file.
    Image.open(drawn).convert("RGB").quantize(64).save(path, "PNG", optimize=True)


def numbers(text: str) -> list[int]:
    """`0,1,2` as numbers."""
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=numbers, default=[2], metavar="N,N,...")
    parser.add_argument("--seeds", type=numbers, default=[0], metavar="N,N,...")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--picture", type=Path, help="file for a picture of the first number of ranks")
    chosen = parser.parse_args(arguments)
    runs = {
        (ranks, seed): train(ranks, chosen.epochs, seed) for ranks in chosen.nproc for seed in chosen.seeds
    }
    print("\nTest accuracy (training loss) after the last epoch\n")
    print(table({f"{ranks} ranks, seed {seed}": curves for (ranks, seed), curves in runs.items()}))
    print()
    print(f"Equal losses in all runs: {'; '.join(map(names, together(list(runs.values()))))}")
    if chosen.picture is not None:
        ranks = chosen.nproc[0]
        seeds = "1 seed" if len(chosen.seeds) == 1 else f"median and range of {len(chosen.seeds)} seeds"
        draw(f"Digits, {ranks} ranks, {seeds}", [runs[ranks, seed] for seed in chosen.seeds], chosen.picture)


if __name__ == "__main__":
    main()
