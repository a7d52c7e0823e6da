"""The causes of trouble that are injected: how strongly, into which rank, and what is true of the run then."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from bed.jobs import MANY_LAYERS, Job, half_models
from bed.jobs import draw as draw_job
from bed.mistakes import MISTAKES
from bed.truth import Answer, Drawn, Truth
from pyddpdiag.analyse.catalog import CHECKS

Look = Literal["end", "stuck"]
"""When the report is made: after an orderly end, or some seconds after the job is stuck or dead."""


@dataclass(frozen=True)
class Cause:
    """A cause.

    Attributes:
        name: in the confusion matrix.
        draw: takes the seed's generator and an ordinary job.
        look: when the report is made.
        needs: `links` for hosts of its own with shaped links, `quota` for limits of processor time, "" for nothing.
        always_counts: it is wrong and not slow, so its cost does not matter.
    """

    name: str
    draw: Callable[[random.Random, Job], Drawn]
    look: Look = "end"
    needs: Literal["", "links", "quota"] = ""
    always_counts: bool = field(default=False)

    @property
    def kind(self) -> str:
        """The kind of finding that names it best."""
        job = draw_job(random.Random(0), "open")
        return self.draw(random.Random(0), job).truth.answers[0].kind

    @property
    def checked(self) -> bool:
        """Whether a check looks for it: the report cannot name what none looks for."""
        return any(self.kind in check.kinds for check in CHECKS)


def _rank(rng: random.Random, job: Job) -> int:
    return rng.randrange(job.ranks)


def _share(rng: random.Random) -> float:
    """Extra time as a share of the step, from little to much."""
    return float(rng.choice((0.25, 0.5, 1.0, 1.5)))


def _late(name: str, cause: str, kinds: tuple[str, ...] = ()) -> Callable[[random.Random, Job], Drawn]:
    def draw(rng: random.Random, job: Job) -> Drawn:
        rank = _rank(rng, job)
        answers = (Answer("late_rank", cause), *(Answer(kind) for kind in kinds))
        return Drawn(job, {"name": name, "rank": rank, "share": _share(rng)}, Truth(answers, rank))

    return draw


def _now_and_then(rng: random.Random, job: Job) -> Drawn:
    rank = _rank(rng, job)
    fault = {
        "name": "burst",
        "rank": rank,
        "share": rng.choice((2.0, 4.0)),
        "chance": rng.uniform(0.15, 0.25),
    }
    return Drawn(job, {**fault, "seed": rng.randrange(2**30)}, Truth((Answer("episodic_rank"),), rank))


def _by_rhythm(rng: random.Random, job: Job) -> Drawn:
    rank = _rank(rng, job)
    fault = {"name": "rhythm", "rank": rank, "share": rng.choice((2.0, 4.0)), "every": rng.choice((5, 7, 10))}
    return Drawn(job, fault, Truth((Answer("episodic_rank"),), rank))


def _change(rng: random.Random, job: Job) -> Drawn:
    # Once and back, or from some step on.
    rank, (since, until) = _rank(rng, job), rng.choice(((0.2, 0.5), (0.4, 0.8), (0.5, 1.0), (0.65, 1.0)))
    fault = {"name": "change", "rank": rank, "share": rng.choice((1.0, 1.5)), "since": since, "until": until}
    return Drawn(job, fault, Truth((Answer("late_rank", "blocked"),), rank))


def _change_of_all(rng: random.Random, job: Job) -> Drawn:
    drawn = _change(rng, job)
    name = rng.choice(("change", "change busy"))
    answer = Answer("slower_steps", "blocked" if name == "change" else "compute")
    return Drawn(job, {**drawn.fault, "name": name, "rank": None}, Truth((answer,)))


def _drift(rng: random.Random, job: Job) -> Drawn:
    rank = _rank(rng, job)
    fault = {"name": "drift", "rank": rank, "share": rng.choice((1.0, 1.5))}
    return Drawn(job, fault, Truth((Answer("late_rank", "compute"),), rank))


def _tail(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "tail", "rank": None, "share": rng.choice((4.0, 6.0)), "chance": 0.1}
    return Drawn(job, {**fault, "seed": rng.randrange(2**30)}, Truth((Answer("data_wait"),)))


def _tail_of_one(rng: random.Random, job: Job) -> Drawn:
    drawn = _tail(rng, job)
    rank = _rank(rng, job)
    answers = Answer("episodic_rank"), Answer("late_rank", "data")
    return Drawn(job, {**drawn.fault, "rank": rank, "chance": 0.15}, Truth(answers, rank))


def _flap(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=rng.choice((3, 3, 4)), batch=48)
    rank = _rank(rng, job)
    fault = {"name": "flap", "rank": rank, "down_s": 0.3, "each_s": rng.choice((2.0, 5.0))}
    return Drawn(job, fault, Truth((Answer("flapping_link"),), rank))


def _cut(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=rng.choice((3, 3, 4)), batch=48)
    fault = {"name": "cut", "rank": _rank(rng, job), "step": rng.randrange(12, 24)}
    return Drawn(job, fault, Truth((Answer("transport_stalled"),), fault["rank"]))


def _loader_of_all(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "loader", "rank": None, "share": _share(rng)}
    return Drawn(job, fault, Truth((Answer("data_wait"),)))


def _core(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, pin=True, ranks=2)
    rank = _rank(rng, job)
    fault = {"name": "core", "rank": rank, "others": rng.choice((1, 2))}
    return Drawn(job, fault, Truth((Answer("core_contention"), Answer("late_rank", "core")), rank))


def _threads(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "threads", "rank": None, "threads": rng.choice((8, 16))}
    return Drawn(job, fault, Truth((Answer("oversubscribed_threads"),)))


def _threads_of_one(rng: random.Random, job: Job) -> Drawn:
    rank = _rank(rng, job)
    fault = {"name": "threads", "rank": rank, "threads": rng.choice((8, 16))}
    return Drawn(job, fault, Truth((Answer("oversubscribed_threads"),), rank))


def _pause(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "pause", "rank": None, "share": rng.choice((4.0, 8.0)), "every": rng.choice((8, 12))}
    return Drawn(job, fault, Truth((Answer("pause"),)))


def _checkpoint(rng: random.Random, job: Job) -> Drawn:
    # Rank 0 writes while the others wait in their next all-reduce.
    fault = {"name": "pause", "rank": 0, "share": rng.choice((4.0, 8.0)), "every": rng.choice((8, 12))}
    # It does so after the step, where the others wait for what it does alone.
    return Drawn(job, fault, Truth((Answer("episodic_rank"), Answer("rank_alone"), Answer("pause")), 0))


def _small_buckets(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "buckets", "rank": None, "cap_mb": rng.choice((0.001, 0.01))}
    job = replace(job, model=MANY_LAYERS[job.model], batch=12, cap_mb=4.0)
    return Drawn(job, fault, Truth((Answer("small_buckets"),)))


def _single_bucket(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "buckets", "rank": None, "cap_mb": 4096.0}
    # Computing and sending take about as long: what a single bucket cannot overlap shows.
    job = replace(job, model=MANY_LAYERS[job.model], ranks=2, batch=960, cap_mb=0.5)
    return Drawn(job, fault, Truth((Answer("single_bucket"),)))


def _uneven(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "uneven", "rank": None, "share": rng.choice((1.0, 2.0)), "seed": rng.randrange(2**30)}
    # The work comes before the forward pass, at a line of its own, as no longer inputs do.
    return Drawn(job, fault, Truth((Answer("uneven_ranks"), Answer("hot_line", beside="uneven_ranks"))))


def _at_step(name: str, *kinds: str) -> Callable[[random.Random, Job], Drawn]:
    def draw(rng: random.Random, job: Job) -> Drawn:
        rank = _rank(rng, job)
        fault = {"name": name, "rank": rank, "step": rng.randrange(12, 24)}
        return Drawn(job, fault, Truth(tuple(Answer(kind) for kind in kinds), rank))

    return draw


def _order(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, model=MANY_LAYERS[job.model], ranks=3, batch=48, cap_mb=0.25)
    rank = _rank(rng, job)
    names = ["eth0,eth1"] * job.ranks
    names[rank] = "eth1,eth0"
    fault = {"name": "order", "rank": rank, "interfaces": names, "right": "eth0,eth1"}
    return Drawn(job, fault, Truth((Answer("interface_order"),), rank))


def _wrong_interface(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=3, batch=48)
    fault = {"name": "wrong", "rank": None, "interfaces": ["eth1"] * job.ranks, "right": "eth0"}
    fault["divide"] = rng.choice((3.0, 6.0))
    # Nothing was measured over the other interface: that it would be faster is one explanation of two.
    answers = Answer("wrong_interface"), Answer("exposed_communication", beside="wrong_interface")
    return Drawn(job, fault, Truth(answers))


def _link(name: str, kind: str, **choices: tuple[float, ...]) -> Callable[[random.Random, Job], Drawn]:
    def draw(rng: random.Random, job: Job) -> Drawn:
        # With two hosts a link has two ends and no side to blame: three or four.
        job = replace(job, ranks=rng.choice((3, 3, 4)), batch=48)
        rank = _rank(rng, job)
        numbers = {key: rng.choice(values) for key, values in choices.items()}
        return Drawn(job, {"name": name, "rank": rank, **numbers}, Truth((Answer(kind),), rank))

    return draw


def _quota(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=2)
    rank = rng.choice((None, 0, 1))
    fault = {"name": "quota", "rank": rank, "cores": rng.choice((0.3, 0.5))}
    return Drawn(job, fault, Truth((Answer("cpu_quota"),), rank))


def _disk(rng: random.Random, job: Job) -> Drawn:
    rank = _rank(rng, job)
    fault = {"name": "disk", "rank": rank, "share": _share(rng)}
    return Drawn(job, fault, Truth((Answer("late_rank"), Answer("episodic_rank")), rank))


def _two(rng: random.Random, job: Job) -> Drawn:
    """One rank computes more and another one sleeps."""
    job = replace(job, ranks=rng.choice((3, 4)))
    rank, also = rng.sample(range(job.ranks), 2)
    fault = {"name": "two", "rank": rank, "also": also, "share": rng.choice((0.5, 1.0, 1.5))}
    answers = Answer("late_rank", "compute"), Answer("late_rank", "blocked")
    return Drawn(job, fault, Truth(answers, rank, also))


def _between_hosts(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=4, batch=48)
    fault = {"name": "rate", "rank": None, "host": 1, "divide": rng.choice((3.0, 6.0)), "hosts": [0, 0, 1, 1]}
    return Drawn(job, fault, Truth((Answer("slow_link"), Answer("exposed_communication")), apart=(0, 1)))


def _traffic(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, ranks=rng.choice((3, 4)), batch=48)
    rank = _rank(rng, job)
    fault = {"name": "traffic", "rank": rank}
    # Whether it is the link itself or who else sends through it, the report has to name that link.
    return Drawn(job, fault, Truth((Answer("slow_link"), Answer("exposed_communication")), rank))


def _huge_bucket(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, model=half_models(job.model)["embedding"], batch=16, ranks=2)
    fault = {"name": "huge bucket", "rank": None}
    kinds = ("exposed_communication", "loopback", "single_bucket")
    return Drawn(job, fault, Truth(tuple(Answer(kind) for kind in kinds)))


def _large_last(rng: random.Random, job: Job) -> Drawn:
    job = replace(job, model=half_models(job.model)["front"], batch=16, ranks=2, cap_mb=0.5)
    return Drawn(job, {"name": "huge bucket", "rank": None}, Truth((Answer("large_last_bucket"),)))


CAUSES: dict[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause("straggler computes", _late("busy", "compute")),
        Cause("straggler sleeps", _late("sleep", "blocked")),
        Cause("straggler now and then", _now_and_then),
        Cause("straggler by rhythm", _by_rhythm),
        Cause("straggler in a part of the run", _change),
        Cause("straggler that drifts", _drift),
        Cause("all ranks slower in a part of the run", _change_of_all),
        Cause("straggler on a slow disk", _disk),
        Cause("two stragglers", _two),
        Cause("quota", _quota, needs="quota"),
        Cause("one huge bucket", _huge_bucket),
        Cause("large last bucket", _large_last),
        Cause("slow batches, one rank", _tail_of_one),
        Cause("slow batches, all ranks", _tail),
        Cause("slow loader, one rank", _late("loader", "data", ("data_wait",))),
        Cause("slow loader, all ranks", _loader_of_all),
        Cause("other load on a core", _core),
        Cause("too many threads", _threads),
        Cause("too many threads, one rank", _threads_of_one),
        Cause("pause of all ranks", _pause),
        Cause("checkpoint by rank 0", _checkpoint),
        Cause("small buckets", _small_buckets),
        Cause("single bucket", _single_bucket, needs="links"),
        Cause("uneven inputs", _uneven),
        Cause("NaN in one rank", _at_step("nan", "non_finite_gradient"), always_counts=True),
        Cause("killed", _at_step("kill", "rank_lost"), "stuck", always_counts=True),
        Cause("ended from outside", _at_step("interrupt", "interrupted"), "stuck", always_counts=True),
        Cause("stopped", _at_step("stop", "rank_stopped"), "stuck", always_counts=True),
        Cause("stuck in its code", _at_step("stuck", "rank_stuck"), "stuck", always_counts=True),
        Cause(
            "skips a step", _at_step("skip", "rank_behind", "fewer_all_reduces"), "stuck", always_counts=True
        ),
        Cause(
            "fewer batches",
            _at_step("fewer", "rank_behind", "fewer_all_reduces"),
            "stuck",
            always_counts=True,
        ),
        Cause(
            "exception", _at_step("exception", "rank_lost", "operation_failed"), "stuck", always_counts=True
        ),
        Cause(
            "dies in a user's collective",
            _at_step("user collective", "rank_lost", "operation_failed"),
            "stuck",
            always_counts=True,
        ),
        Cause(
            "leaves a collective out",
            _at_step("left out", "mismatched_all_reduce"),
            "stuck",
            always_counts=True,
        ),
        Cause("order of interfaces", _order, needs="links"),
        Cause("slow interface used", _wrong_interface, needs="links"),
        Cause("slow link, one direction", _link("rate out", "slow_link", divide=(3.0, 6.0)), needs="links"),
        Cause("slow link", _link("rate", "slow_link", divide=(3.0, 6.0)), needs="links"),
        Cause("link that flaps", _flap, needs="links"),
        Cause("link that is cut", _cut, "stuck", needs="links", always_counts=True),
        Cause("delayed link", _link("delay", "high_latency", ms=(5.0, 15.0)), needs="links"),
        Cause("slow path between two hosts", _between_hosts, needs="links"),
        Cause("other traffic", _traffic, needs="links"),
        Cause("lossy link", _link("loss", "packet_loss", percent=(1.0, 3.0)), needs="links"),
        *(Cause(name, draw, always_counts=wrong) for name, draw, wrong in MISTAKES),
    )
}
"""All causes by name."""
