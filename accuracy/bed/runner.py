"""Makes one run: starts its ranks, lets the fault act, has the run reported, and measures what the fault costs."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from bed.beside import Beside
from bed.causes import CAUSES
from bed.jobs import HEALTHY, draw, draw_healthy, half_of
from bed.judge import Judgement, communicates, judge
from bed.ranks import Ranks, environment
from bed.server import Server
from bed.surroundings import Surroundings, ThisMachine
from bed.truth import Drawn, Truth, stronger

RUN_S = 240.0
GROUP_S = 120.0
# From the moment that the job is stuck or dead until the report is asked for.
LOOK_S = 5.0
# Of the scripts with a mistake, the share that `pyddpdiag run` itself starts: each takes longer, by torch's start.
BY_COMMAND = 0.2
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """A run, from its seed alone.

    Attributes:
        cause: a name in `CAUSES`, or `healthy`.
        kind: of a healthy job; "" otherwise.
        dose: so many times as strong as the fault is drawn, where it has a strength.
    """

    seed: int
    cause: str
    kind: str = ""
    dose: float = 1.0

    def drawn(self) -> Drawn:
        """Job, fault and truth."""
        rng = random.Random(f"{self.seed} {self.cause} {self.kind}")
        if self.cause == "healthy":
            return Drawn(draw_healthy(rng, half_of(self.seed), self.kind), {"name": ""}, Truth())
        drawn = CAUSES[self.cause].draw(rng, draw(rng, half_of(self.seed)))
        if drawn.job.script and random.Random(f"{self.seed} command").random() < BY_COMMAND:
            drawn = replace(drawn, job=replace(drawn.job, command=True))
        return replace(drawn, fault=stronger(drawn.fault, self.dose))


@dataclass
class Outcome:
    """What a run showed.

    Attributes:
        cost: step with the fault over step without it, measured in the same run; for a healthy run, step with
            all-reduces over step without; None where it was not measured.
        step_s: seconds of a step without recorder and fault.
        waited: of each rank, the share of the judged run that its main thread waited for a core.
        load: load average before the run, per core.
        others: share of all cores' time that other programs took while the run was made.
        exit_code, verdict: of `pyddpdiag report --json`.
        account: of each rank: its wall time, the sum of the parts, and the part that nobody knows, in seconds.
        problem: why the run is not judged; "" if it is.
    """

    plan: Plan
    drawn: Drawn
    cost: float | None = None
    step_s: float | None = None
    waited: list[float | None] = field(default_factory=list)
    load: float = 0.0
    others: float = 0.0
    seconds: float = 0.0
    exit_code: int | None = None
    verdict: dict[str, Any] | None = None
    judgement: Judgement | None = None
    account: list[tuple[float, float, float]] = field(default_factory=list)
    problem: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is part of the result: judged, and costly enough to be reported (10%)."""
        if self.judgement is None:
            return False
        cause = CAUSES.get(self.plan.cause)
        return cause is None or cause.always_counts or (self.cost is not None and self.cost >= 1.1)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for a line of JSON."""
        return {**asdict(self), "counts": self.counts}


def surroundings(drawn: Drawn, needs: str) -> Surroundings:
    """Where the run takes place; to be closed after it."""
    if needs == "links":
        from bed.hosts import Hosts

        return Hosts(drawn.job.ranks, drawn.fault)
    return ThisMachine(drawn.fault, drawn.job.pin)


class _Run:
    def __init__(self, outcome: Outcome, where: Surroundings, look: str, trace: Path) -> None:
        self.outcome = outcome
        self.trace = trace
        self.report: dict[str, Any] | None = None
        self.where = where
        self.look = look
        self.ranks: Ranks | None = None
        self.blocks: dict[bool, list[float]] = {True: [], False: []}
        self._delays: list[tuple[float, float] | None] = []
        self._begin = 0.0
        self._last_block: list[float] = []

    def answer(self, what: str, asked: list[dict[str, Any]]) -> str | None:
        assert self.ranks is not None
        if what == "calibrated":
            self.outcome.step_s = max(one["step_s"] for one in asked)
            # A link that is cut is cut in the middle.
            self.where.switch(self.outcome.drawn.fault["name"] != "cut")
        elif what == "begins":
            self._delays, self._begin = self.ranks.delays(), time.monotonic()
        elif what == "ends":
            wall = time.monotonic() - self._begin
            for before, after in zip(self._delays, self.ranks.delays(), strict=True):
                known = before is not None and after is not None
                self.outcome.waited.append((after[1] - before[1]) / wall if known else None)  # type: ignore[index]
        elif what == "closed":
            self.judge()
            if self.needs_cost():
                return "measure"
        elif what in ("on", "off"):
            self.where.switch(what == "on")
        return None

    def judge(self) -> None:
        """Has the run reported."""
        self.outcome.exit_code, self.report = report_of(self.trace)
        self.outcome.verdict = self.report["verdict"]
        self.outcome.account = accounts(self.report)
        self.weigh()

    def weigh(self) -> None:
        """Judges the report by what is known of the cost by now."""
        assert self.report is not None
        self.outcome.cost = self.cost()
        truth = self.outcome.drawn.truth_if(self.outcome.waited)
        self.outcome.judgement = judge(self.report, truth, self.outcome.cost)

    def needs_cost(self) -> bool:
        """A fault counts by its cost; of a healthy run, it says whether communication was an alarm."""
        cause = CAUSES.get(self.outcome.plan.cause)
        assert self.outcome.judgement is not None
        return communicates(self.outcome.judgement) if cause is None else not cause.always_counts

    def hear(self, rank: int, event: str, message: dict[str, Any]) -> bool:
        assert self.ranks is not None
        if event == "block":
            self._last_block.append(message["seconds"])
            if len(self._last_block) == len(self.ranks.processes):
                self.blocks[message["on"]].append(max(self._last_block))
                self._last_block = []
        fault = self.outcome.drawn.fault
        if self.look != "stuck" or rank != fault["rank"]:
            return False
        if event == "strike":
            process = psutil.Process(self.ranks.processes[rank].pid)
            if fault["name"] == "kill":
                process.kill()
            elif fault["name"] == "interrupt":
                process.terminate()
            elif fault["name"] == "cut":
                self.where.switch(True)
            else:
                process.suspend()
            return True
        return event == "stalled"

    def cost(self) -> float | None:
        pairs = list(zip(self.blocks[True], self.blocks[False], strict=False))
        return statistics.median(on / off for on, off in pairs) if pairs else None


def run(
    plan: Plan,
    keep: Path | None = None,
    *,
    drawn: Drawn | None = None,
    brief: bool = False,
    ask_again_s: float = 0.0,
    server: Server | None = None,
) -> Outcome:
    """Makes the run of a plan and judges its report; a run that fails says why in `problem`.

    Args:
        plan: of the run.
        keep: folder for trace, report and the ranks' errors; None keeps nothing.
        drawn: job, fault and truth, where not those that the plan's seed draws.
        brief: few steps, and the cost measured once: for a busy machine and a fault that any look shows.
        ask_again_s: for so long the report of a job that is stuck is asked for again until it names the cause: what
            stands still is recognised by its time, and on a busy machine that is long.
        server: forks the ranks; None: each is a process that loads torch itself.
    """
    drawn = drawn or plan.drawn()
    outcome = Outcome(plan, drawn, load=psutil.getloadavg()[0] / (psutil.cpu_count() or 1))
    begin, beside = time.monotonic(), Beside()
    with tempfile.TemporaryDirectory(prefix="bed-") as temporary:
        folder = Path(temporary) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _make(outcome, folder, brief, ask_again_s, server)
        except (TimeoutError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            outcome.problem = f"{type(error).__name__}: {error}"
    outcome.seconds, outcome.others = time.monotonic() - begin, beside.share()
    return outcome


def _make(outcome: Outcome, folder: Path, brief: bool, ask_again_s: float, server: Server | None) -> None:
    cause = CAUSES.get(outcome.plan.cause)
    look = cause.look if cause else "end"
    drawn, trace = outcome.drawn, folder / "trace"
    spec = folder / "spec.json"
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    document = {
        "job": asdict(drawn.job),
        "fault": drawn.fault,
        "trace": str(trace),
        "meeting": str(meeting),
        "timeout_s": GROUP_S,
        "brief": brief,
        "mode": "judged",
    }
    spec.write_text(json.dumps(document), encoding="utf-8")
    part = "script" if drawn.job.script else "rank"
    with closing(surroundings(drawn, cause.needs if cause else "")) as where:
        this = _Run(outcome, where, look, trace)
        if drawn.job.command:
            _recorded_by_command(spec, drawn.job.ranks, trace, where)
            this.judge()
            if this.needs_cost():
                _cost_of_script(this, document, folder, server)
            this.weigh()
            return
        with Ranks(spec, drawn.job.ranks, where, folder, part, server) as ranks:
            this.ranks = ranks
            stopped = ranks.follow(this.answer, this.hear, RUN_S)
            if stopped:
                time.sleep(LOOK_S)
            elif look != "end" or any(process.wait() for process in ranks.processes):
                last = [file.read_text(encoding="utf-8", errors="replace")[-400:] for file in ranks.errors]
                raise RuntimeError(f"the ranks ended otherwise than planned: {last}")
            if this.report is None:
                this.judge()
            if drawn.job.script and this.needs_cost():
                _cost_of_script(this, document, folder, server)
            this.weigh()
            until = time.monotonic() + (ask_again_s if stopped else 0.0)
            while time.monotonic() < until and not (outcome.judgement and outcome.judgement.cause):
                time.sleep(2.0)
                this.judge()


def _recorded_by_command(spec: Path, ranks: int, trace: Path, where: Surroundings) -> None:
    """`pyddpdiag run` starts the script, which knows nothing of it, and waits for its end."""
    options = ["--trace", str(trace), "--nproc", str(ranks)]
    done = subprocess.run(
        [sys.executable, "-m", "pyddpdiag", "run", *options, "--", "-m", "bed.alone", str(spec)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        cwd=trace.parent,
        env={**environment(), "GLOO_SOCKET_IFNAME": where.interface},
    )
    # 1: something was found; 2: too little to judge by.
    if done.returncode not in (0, 1, 2) or not trace.is_dir():
        raise RuntimeError(f"pyddpdiag run ended with {done.returncode}: {done.stderr[-400:]}")


def _cost_of_script(this: _Run, document: dict[str, Any], folder: Path, server: Server | None) -> None:
    """Another set of ranks trains with the mistake and without it, in turn."""
    spec = folder / "spec-cost.json"
    again = {**document, "mode": "cost", "meeting": f"{document['meeting']}-cost"}
    spec.write_text(json.dumps(again), encoding="utf-8")
    with Ranks(spec, document["job"]["ranks"], this.where, folder, "script", server) as ranks:
        this.ranks = ranks
        ranks.follow(lambda *_: None, this.hear, RUN_S)


def accounts(report: dict[str, Any]) -> list[tuple[float, float, float]]:
    """Of each rank, in seconds: its wall time, the sum of all parts, and the part that is not known."""
    return [
        (
            one["wall_s"],
            sum(value for name, value in one.items() if name.endswith("_s") and name != "wall_s"),
            one["unknown_s"],
        )
        for one in report["account"]
    ]


def report_of(trace: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and content of `pyddpdiag report --json`, as a user would run it."""
    done = subprocess.run(
        [sys.executable, "-m", "pyddpdiag", "report", str(trace), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=trace.parent,
    )
    if not done.stdout:
        raise RuntimeError(f"no report: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def plans(
    causes: list[str], runs: int, seed: int, *, final: bool, healthy: int = 50, dose: float = 1.0
) -> Iterator[Plan]:
    """`runs` runs: causes in a random order, healthy runs of all kinds between them.

    Args:
        causes: names in `CAUSES`.
        runs: how many, healthy ones included.
        seed: of the first run.
        final: take the half of seeds and models that is kept for the final measurement.
        healthy: percentage of healthy runs; 50: every second one.
        dose: how strong the faults are.
    """
    rng = random.Random(seed)
    order: list[str] = []
    for i in range(runs):
        one = 2 * (seed + i) + int(final)
        before = i * healthy // 100
        if (i + 1) * healthy // 100 > before:
            yield Plan(one, "healthy", HEALTHY[before % len(HEALTHY)])
            continue
        if not order:
            order = rng.sample(causes, len(causes))
        yield Plan(one, order.pop(), dose=dose)
