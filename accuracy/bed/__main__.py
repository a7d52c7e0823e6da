"""Measures how often the report is right: `python3 dev.py accuracy [--runs N] [--seed S] [--final]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bed import hosts, page, quotas
from bed.causes import CAUSES
from bed.judge import judge
from bed.ranks import environment
from bed.runner import ROOT, Outcome, Plan, accounts, plans, report_of, run
from bed.server import Server


def available(names: list[str]) -> list[str]:
    """Those of the causes that a check looks for and that can be injected here; the others are named."""
    asked = {CAUSES[name].needs for name in names}
    refused = {
        "links": hosts.why_not() if "links" in asked else "",
        "quota": quotas.why_not() if "quota" in asked else "",
    }
    left_out = {name: f"no check for {CAUSES[name].kind}" for name in names if not CAUSES[name].checked}
    left_out |= {name: why for name in names if (why := refused.get(CAUSES[name].needs, ""))}
    for name, why in left_out.items():
        print(f"left out: {name} ({why})")
    return [name for name in names if name not in left_out]


def show(number: int, runs: int, outcome: Outcome) -> None:
    """One line per run."""
    plan, judgement = outcome.plan, outcome.judgement
    name = f"{plan.cause} ({plan.kind})" if plan.kind else plan.cause
    cost = "" if outcome.cost is None else f", step x {outcome.cost:.2f}"
    if judgement is None:
        result = f"FAILED: {outcome.problem}"
    else:
        result = (
            f"{judgement.said}; cause {'right' if judgement.cause else 'WRONG'}, blames {judgement.blame}"
        )
    print(f"{number}/{runs} seed {plan.seed} {name}{cost}: {result} [{outcome.seconds:.0f} s]", flush=True)


def folder_of(seed: int, cause: str) -> str:
    """The name of a kept run's folder."""
    return f"{seed:05}-{''.join(c if c.isalnum() else '-' for c in cause)}"


def judged_again(row: page.Row, keep: Path) -> page.Row:
    """An outcome with the report that its kept trace gets now; as it was, where the run was looked at while stuck."""
    plan = Plan(**row["plan"])
    cause = CAUSES.get(plan.cause)
    trace = keep / folder_of(plan.seed, plan.cause) / "trace"
    if row["problem"] or (cause is not None and cause.look == "stuck") or not trace.is_dir():
        return row
    code, report = report_of(trace)
    new = judge(report, plan.drawn().truth_if(row["waited"]), row["cost"])
    print(f"{folder_of(plan.seed, plan.cause)}: {row['judgement']['said']} -> {new.said}")
    changed = {"exit_code": code, "verdict": report["verdict"], "account": accounts(report)}
    return {**row, **changed, "judgement": asdict(new), "again": True}


def main() -> None:
    # Ended from outside, it still takes its ranks and hosts away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="accuracy", description=__doc__)
    parser.add_argument("--runs", type=int, default=192, help="runs, healthy ones included (default 192)")
    parser.add_argument(
        "--healthy",
        type=int,
        choices=range(101),
        default=50,
        metavar="PERCENT",
        help="share of healthy runs between those with a cause (default 50)",
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="start no run after that time (default: none)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default 0)")
    parser.add_argument("--final", action="store_true", help="the held-out half of seeds and models")
    parser.add_argument("--dose", type=float, default=1.0, help="how strong faults are (default 1)")
    parser.add_argument("--only", default="", help="causes, by semicolons; without healthy runs between them")
    parser.add_argument("--healthy-only", action="store_true", help="healthy runs alone")
    parser.add_argument(
        "--output", type=Path, help="file of outcomes, one line of JSON per run; goes on in it after those"
    )
    parser.add_argument(
        "--keep", type=Path, help="folder for the traces of all runs, to look at or to judge again"
    )
    parser.add_argument(
        "--rejudge",
        type=Path,
        metavar="DIR",
        help="no runs: judge the traces that --keep left there by the present checks; for development only",
    )
    parser.add_argument("--page", type=Path, help="page whose figures are replaced (docs/accuracy.md)")
    parser.add_argument("--page-only", action="store_true", help="no runs: write the page from --output")
    given = parser.parse_args()
    output: Path = given.output or ROOT / "runs" / time.strftime("accuracy-%Y%m%d-%H%M%S.jsonl")
    rows = []
    if output.exists():
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    if given.rejudge is not None:
        rows = [judged_again(row, given.rejudge) for row in rows]
    elif not given.page_only:
        output.parent.mkdir(parents=True, exist_ok=True)
        chosen = [name for name in given.only.split(";") if name]
        names = available(chosen or list(CAUSES))
        todo = list(
            plans(
                names,
                given.runs,
                given.seed,
                final=given.final,
                healthy=0 if chosen else given.healthy,
                dose=given.dose,
            )
        )
        made = {Plan(**row["plan"]) for row in rows}
        todo = [plan for plan in todo if plan not in made]
        if given.healthy_only:
            todo = [plan for plan in todo if plan.cause == "healthy"]
        until = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
        server = Server(environment()) if sys.platform == "linux" else None
        with output.open("a", encoding="utf-8") as file:
            for number, plan in enumerate(todo, 1):
                if time.monotonic() > until:
                    break
                if server is not None and not server.runs:
                    server = Server(environment())
                outcome = run(
                    plan, given.keep and given.keep / folder_of(plan.seed, plan.cause), server=server
                )
                show(number, len(todo), outcome)
                rows.append(json.loads(json.dumps(outcome.as_dict())))
                print(json.dumps(rows[-1]), file=file, flush=True)
    print(f"outcomes: {output}\n\n{page.figures(rows, page.versions())}")
    if given.page is not None:
        page.write(given.page, rows)


if __name__ == "__main__":
    main()
