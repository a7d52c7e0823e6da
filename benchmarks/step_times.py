"""The step times of a result file as a picture: the hooks side by side, by model, number of ranks and bucket size.

Run: python3 dev.py bench benchmarks/bench_shared_memory.py -k test_case --benchmark-json=steps.json
     python benchmarks/step_times.py steps.json docs/images/shared-memory-steps.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness import picture

from pyddpdiag.bench.intervals import estimate
from pyddpdiag.bench.reading import read
from pyddpdiag.bench.results import Entry

# The same hook has the same colour in every panel.
COLOURS = {"plain": "0.45", "native": "C0", "native+bf16": "C1", "native+shared": "C2", "noop": "0.75"}
NAMES = {
    "plain": "plain DDP",
    "native": "attach",
    "native+bf16": 'attach, compress="bf16"',
    "native+shared": "attach, shared memory",
    "noop": "nothing averaged",
}


def panels(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The steps that only the hook tells apart, by what they have in common."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        info = entry.extra_info
        if info.get("kind") == "step":
            cap = f"{info['bucket_cap_mb']:g} MiB"
            found.setdefault(f"{info['model']}, {info['ranks']} ranks, buckets of {cap}", []).append(entry)
    return found


def draw(entries: Sequence[Entry], path: Path) -> None:
    """A row per hook: the median step with its 95% interval, and every round as a dot."""
    groups = panels(entries)
    if not groups:
        raise SystemExit("step_times.py: no steps in this file")
    heights = [len(group) for group in groups.values()]
    figure = picture.blank(9, 0.6 + sum(0.34 * rows + 0.55 for rows in heights))
    all_axes = figure.subplots(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (title, group) in zip(all_axes, groups.items(), strict=True):
        for row, entry in enumerate(group):
            milliseconds = [1e3 * seconds for seconds in entry.round_s]
            middle = estimate(milliseconds)
            colour = COLOURS.get(entry.extra_info["hook"], "C3")
            axes.plot(milliseconds, [row] * len(milliseconds), ".", color=colour, alpha=0.25, ms=5)
            axes.plot([middle.low, middle.high], [row, row], color=colour, linewidth=5, alpha=0.6)
            axes.plot([middle.median], [row], "|", color="k", ms=12)
            axes.annotate(
                f"{middle.median:.1f}",
                (middle.median, row),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        hooks = [entry.extra_info["hook"] for entry in group]
        axes.set_yticks(range(len(group)), [NAMES.get(hook, hook) for hook in hooks], fontsize=8)
        axes.set_ylim(len(group) - 0.4, -0.75)
        axes.set_xlim(left=0)
        axes.set_title(title, fontsize=9, loc="left")
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(alpha=0.3, axis="x")
    all_axes[-1].set_xlabel("milliseconds per step", fontsize=8)
    picture.save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the file and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a file of --benchmark-json")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    chosen = parser.parse_args(arguments)
    draw(read(chosen.results).entries, chosen.picture)


if __name__ == "__main__":
    main()
