"""Which lines of the script the ranks were at: in a stretch of time, in a part of the step, and more than others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import LEAST_SAMPLES, MOST, SEVERAL
from pyddpdiag.analyse.filing import OWN, PARTS, PHASE, START, RankLines
from pyddpdiag.analyse.flames import ON_DISK, flame, stacks_of
from pyddpdiag.analyse.looks import Sample, joined
from pyddpdiag.model.lines import Flame, Line, LineStats
from pyddpdiag.model.words import percent
from pyddpdiag.trace.rows import Bool

FLAMES: Final = 64
"""How many ranks' looks are drawn."""

SHOWN: Final = 5
"""How many lines of each rank and part are in the tables."""

Numbers = npt.NDArray[np.int64]

COMPILE: Final = "torch.compile"
COMPILER: Final = (
    *(f"torch._dynamo.{name}." for name in ("bytecode", "convert_frame", "exc", "guards", "output_graph")),
    *(
        "torch._dynamo.symbolic_convert.",
        "torch._dynamo.variables.",
        "torch._dynamo.source.",
        "torch._dynamo.utils.",
    ),
    *("torch._functorch.", "torch._guards.", "torch._inductor.", "torch._subclasses.", "torch.fx.", "sympy."),
)
"""What runs while torch.compile compiles; what it compiled runs from other modules of it (`eval_frame`)."""

LOCKED: Final = (
    "Each rank waits there while another one holds the lock, and more workers would wait, too: hold it for less time, "
    "let those that only read share it (fcntl.LOCK_SH), or lock only to write."
)
CURES: Final = {
    **dict.fromkeys(("fcntl.flock", "fcntl.lockf"), LOCKED),
    COMPILE: "torch.compile compiles again there, as a rule for each new shape of the inputs: pad them to few shapes, "
    "or call torch._dynamo.mark_dynamic(tensor, dimension) before; TORCH_LOGS=recompiles says why it does.",
}


@dataclass(frozen=True)
class Where:
    """A line of the script that explains `share` of something, known from `samples` looks at it.

    `call` is what it called at most of them: `time.sleep`, or `torch.compile` for all that it calls while it compiles;
    empty: not known, or not always the same.
    `whole_function`: the share is that of the function, in which this is the most frequent line. `on_disk`: at most of
    the looks there it waited for a disk. `alone`: a rank is mostly there, and nobody else is.
    """

    line: Line
    call: str
    share: float
    samples: int
    whole_function: bool = False
    on_disk: bool = False
    alone: bool = False

    def __str__(self) -> str:
        """As a message names it: `train.py:41 in load_labels (os.fsync, waits for a disk)`."""
        inside = ", ".join(name for name in (self.call, ON_DISK if self.on_disk else "") if name)
        return str(self.line) + (f" ({inside})" if inside else "")

    def says(self, of: str) -> str:
        """The sentence with its share, as `92% of what it needs more`."""
        if self.alone:
            return f"It is mostly at {self}, where no other rank is"
        place = f"in {self.line.function}, mostly at {self}" if self.whole_function else f"at {self}"
        return f"{percent(self.share)} of {of} is {place}"

    @property
    def cure(self) -> str:
        """What to do about what it calls; empty: that depends on the script."""
        return CURES.get(self.call, "")

    def advice(self, otherwise: str) -> str:
        """What to do about what it calls; if that depends on the script, to look at it, and `otherwise`."""
        return self.cure or f"Look at {self}{otherwise}"

    @property
    def facts(self) -> dict[str, float | int | str | None]:
        """For a finding."""
        return {
            "where_share": self.share,
            "where_samples": self.samples,
            "where_call": self.call or None,
            "where_on_disk": int(self.on_disk),
        }


class RunLines:
    """The samples of the ranks of a run, as far as they have any."""

    def __init__(self, ranks: Mapping[int, RankLines]) -> None:
        self._ranks = ranks

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._ranks)

    @property
    def by_rank(self) -> Mapping[int, RankLines]:
        """The samples of each rank."""
        return self._ranks

    def know(self, ranks: Iterable[int]) -> bool:
        """Whether there are some of each of these ranks."""
        return all(rank in self._ranks for rank in ranks)

    def of(self, ranks: Collection[int]) -> RunLines:
        """Those of these ranks only."""
        return RunLines({rank: each for rank, each in self._ranks.items() if rank in ranks})

    def where(self, rank: int, from_ns: int, to_ns: int) -> Where | None:
        """The line at which a rank mostly was between two times of its own clock; None: it is not known."""
        mine = self._ranks.get(rank)
        if mine is None:
            return None
        return where_of([(mine, (mine.at_ns >= from_ns) & (mine.at_ns < to_ns))])

    def last(self, rank: int, since_ns: int) -> str:
        """The line of the newest look at a rank since then, on its own clock; empty: there is none."""
        mine = self._ranks.get(rank)
        if mine is None or not len(mine) or mine.at_ns[-1] <= since_ns:
            return ""
        lines = mine.stacks[int(mine.stack[-1])].lines
        return str(lines[-1]) if lines else ""

    def most_of(self, steps: Numbers, *parts: str) -> Where | None:
        """The line at which the ranks mostly were in these parts of these steps."""
        return where_of(
            [(each, each.of_parts(*parts) & np.isin(each.step, steps)) for each in self._ranks.values()]
        )

    def in_phase(self, name: str, ranks: Collection[int]) -> Where | None:
        """The line at which these ranks mostly were in a phase of this name."""
        chosen = []
        for each in (self._ranks[rank] for rank in ranks if rank in self._ranks):
            numbers = [number for number, phase in enumerate(each.phases) if phase == name]
            chosen.append((each, each.of_parts(PHASE) & np.isin(each.phase, numbers)))
        return where_of(chosen)

    def more_of(self, rank: int, steps: Numbers, extra_ms: float, times: float = 1.0) -> Where | None:
        """What a rank does for longer than the others in its own time of these steps.

        Args:
            extra_ms: what it needs more in all of them: where the looks saw too little of that, nothing is known. While
                a thread holds the GIL, no look is possible.
            times: how many times as long it may be at every line.
        """
        mine = self._ranks.get(rank)
        others = [each for other, each in self._ranks.items() if other != rank]
        if mine is None or not others or not len(steps):
            return None
        return _more(_own([mine], steps), [_own([each], steps) for each in others], extra_ms, times)

    def only_of(self, rank: int, first_step: int | None, last_step: int) -> Where | None:
        """The line at which a rank was in its own time of these steps, and nobody was at any other time.

        `first_step`: None: from the start of its process on.
        """
        mine = self._ranks.get(rank)
        if mine is None:
            return None
        # The own time before the second step has no number.
        then = mine.of_parts(*OWN, *(() if first_step is not None else (START,)))
        then &= (mine.step >= (-1 if first_step is None else first_step)) & (mine.step <= last_step)
        here = _Times([(mine, then)])
        elsewhere = _Times(
            [(each, ~then if each is mine else np.ones(len(each), np.bool_)) for each in self._ranks.values()]
        )
        alone = {line: count for line, count in here.samples.items() if line not in elsewhere.samples}
        line = max(alone, key=lambda each: alone[each], default=None)
        if line is None or alone[line] < SEVERAL:
            return None
        share = here.ms[line] / here.total_ms
        return Where(line, here.call(line), share, alone[line], on_disk=here.waits([line]))

    def more_on_disk_ms(self, rank: int, steps: Numbers) -> float:
        """For how much longer than the others, by their lower median, a rank waits for a disk in all of these steps.

        In its own time, by the looks that saw it; nan: too few did, or there are no others to compare with.
        """
        ms = {
            each_rank: float(np.count_nonzero(self._on_disk(each, steps))) * each.interval_ms
            for each_rank, each in self._ranks.items()
        }
        if rank not in ms or len(ms) < 2 or ms[rank] < LEAST_SAMPLES * self._ranks[rank].interval_ms:
            return float("nan")
        others = sorted(each for other, each in ms.items() if other != rank)
        return ms[rank] - others[(len(others) - 1) // 2]

    @staticmethod
    def _on_disk(lines: RankLines, steps: Numbers) -> Bool:
        waiting = np.array([stack.on_disk for stack in lines.stacks], np.bool_)
        return lines.of_parts(*OWN) & np.isin(lines.step, steps) & waiting[lines.stack]

    def more_in(
        self, steps: Numbers, usual: Numbers, extra_ms: float = 0.0, times: float = 1.0
    ) -> Where | None:
        """What the ranks do for longer in their own time of these steps than in the `usual` ones.

        `extra_ms` is by how much each of these steps is longer: where the looks saw too little of that, nothing is
        known. `times`: how many times as long they may be at every line.
        """
        if not (self._ranks and len(steps) and len(usual)):
            return None
        ranks = self._ranks.values()
        return _more(_own(ranks, steps), [_own(ranks, usual)], extra_ms * len(steps), times)

    def table(self) -> tuple[LineStats, ...]:
        """The most frequent lines of each rank and part."""
        return tuple(row for rank, each in self._ranks.items() for row in _rows(rank, each))

    def flames(self) -> tuple[Flame, ...]:
        """The looks at each rank as bars."""
        return tuple(flame(rank, each) for rank, each in list(self._ranks.items())[:FLAMES])

    def collapsed(self) -> Iterable[str]:
        """One line for each stack: rank, part, lines and call, with `;` between them, and how many looks saw it."""
        for rank, each in self._ranks.items():
            for names, count in stacks_of(each):
                yield ";".join([f"rank {rank}", *(name.replace(";", ",") for name in names)]) + f" {count}"


class _Times:
    """Milliseconds and samples of each line, with those of each call at it."""

    def __init__(self, chosen: Iterable[tuple[RankLines, Bool]], steps: Numbers | None = None) -> None:
        self._chosen = list(chosen)
        self._steps = np.unique(steps) if steps is not None else np.empty(0, np.int64)
        self.ms: dict[Line, float] = {}
        self.samples: dict[Line, int] = {}
        self.calls: dict[Line, Counter[str]] = {}
        self.on_disk: Counter[Line] = Counter()
        self.total_ms = 0.0
        for each, mask in self._chosen:
            counts = np.bincount(each.stack[mask], minlength=len(each.stacks)).tolist()
            for stack, count in zip(each.stacks, counts, strict=True):
                if not count:
                    continue
                self.total_ms += count * each.interval_ms
                if stack.lines:
                    line = stack.lines[-1]
                    self.ms[line] = self.ms.get(line, 0.0) + count * each.interval_ms
                    self.samples[line] = self.samples.get(line, 0) + count
                    self.calls.setdefault(line, Counter())[stack.call] += count
                    self.on_disk[line] += count * stack.on_disk

    @property
    def steps(self) -> int:
        """How many were looked at, those of each rank."""
        return len(self._steps) * len(self._chosen)

    def call(self, line: Line) -> str:
        """What it called at most samples; empty: not the same."""
        calls = self.calls[line]
        if 2 * sum(times for name, times in calls.items() if name.startswith(COMPILER)) > calls.total():
            return COMPILE
        (name, times), *_ = calls.most_common(1)
        return name if 2 * times >= self.samples[line] else ""

    def waits(self, lines: Iterable[Line]) -> bool:
        """Whether it waited for a disk at more than half of the samples at these lines."""
        lines = list(lines)
        return 2 * sum(self.on_disk[line] for line in lines) > sum(self.samples[line] for line in lines)

    def at(self, lines: Collection[Line]) -> Sample:
        """The time at these lines in each step of each rank."""
        found = []
        for each, mask in self._chosen:
            there = np.array(
                [bool(stack.lines) and stack.lines[-1] in lines for stack in each.stacks], np.bool_
            )
            step = np.searchsorted(self._steps, each.step[mask][there[each.stack[mask]]])
            looks = np.bincount(step, minlength=len(self._steps)).astype(np.float64)
            found.append(Sample(looks * each.interval_ms, each.interval_ms))
        return joined(found)


def _own(ranks: Iterable[RankLines], steps: Numbers) -> _Times:
    """Of these ranks in their own time of these steps."""
    return _Times([(each, each.of_parts(*OWN) & np.isin(each.step, steps)) for each in ranks], steps)


def where_of(chosen: Iterable[tuple[RankLines, Bool]]) -> Where | None:
    """The line at which most of these looks of ranks were; None: nowhere in particular."""
    times = _Times(chosen)
    lines = _place(times.ms, times.total_ms)
    return _if_seen(times, lines, sum(times.ms[line] for line in lines) / times.total_ms) if lines else None


def _more(mine: _Times, others: Sequence[_Times], extra_ms: float, times: float) -> Where | None:
    """What takes longer than so many times what it takes the others, beyond chance.

    What slows a whole rank, as a processor that it has to share, makes it take longer at every line, and its waits for
    a core come at some of them far more often: these have most of its looks, and are not the reason.
    """
    middle = (len(others) - 1) // 2
    usual = {line: sorted(each.ms.get(line, 0.0) / each.steps for each in others)[middle] for line in mine.ms}
    extra = {line: max(0.0, took - usual[line] * mine.steps) for line, took in mine.ms.items()}
    seen_ms, steps = sum(extra.values()), sum(each.steps for each in others)
    if not seen_ms > 0 or seen_ms < MOST * extra_ms:
        return None
    ahead = {
        line: mine.ms.get(line, 0.0) / mine.steps
        - times * sum(each.ms.get(line, 0.0) for each in others) / steps
        for line in {line for each in (mine, *others) for line in each.ms}
    }
    lines = _place(ahead, sum(max(0.0, each) for each in ahead.values()))
    share = sum(extra.get(line, 0.0) for line in lines) / seen_ms
    places = len(mine.ms) + len({(line.file, line.function) for line in mine.ms})
    if not share or not mine.at(lines).exceeds(joined([each.at(lines) for each in others]), times, places):
        return None
    return _if_seen(mine, [line for line in lines if line in mine.ms], share)


def _place(of: Mapping[Line, float], total: float) -> list[Line]:
    """The line at which most of it is, or else the lines of such a function, the first one most; empty: nowhere."""
    if not of or not total > 0:
        return []
    line = max(of, key=lambda each: of[each])
    if of[line] >= MOST * total:
        return [line]
    by_function: dict[tuple[str, str], float] = {}
    for each, part in of.items():
        by_function[each.file, each.function] = by_function.get((each.file, each.function), 0.0) + part
    best = max(by_function, key=lambda each: by_function[each])
    # Everything is in the module's own code.
    if by_function[best] < MOST * total or best[1] in ("", "<module>"):
        return []
    inside = [each for each in of if (each.file, each.function) == best]
    return sorted(inside, key=lambda each: -of[each])


def _if_seen(times: _Times, lines: Sequence[Line], share: float) -> Where | None:
    """These lines, which have a share of something; None: too few looks saw them."""
    samples = sum(times.samples[line] for line in lines)
    if samples < LEAST_SAMPLES:
        return None
    return Where(lines[0], times.call(lines[0]), share, samples, len(lines) > 1, times.waits(lines))


def _rows(rank: int, lines: RankLines) -> Iterable[LineStats]:
    for number, part in enumerate(PARTS):
        mask = lines.part == number
        whole = int(np.count_nonzero(mask))
        counts = Counter[tuple[str, str]]()
        for stack, count in zip(
            lines.stacks, np.bincount(lines.stack[mask], minlength=len(lines.stacks)), strict=True
        ):
            if count:
                counts[str(stack.lines[-1]) if stack.lines else "", stack.call] += int(count)
        for (where, call), count in counts.most_common(SHOWN):
            yield LineStats(
                rank,
                part,
                where,
                call,
                count,
                count / whole,
                count * lines.interval_ms / 1e3,
                lines.missed_ms / 1e3,
            )
