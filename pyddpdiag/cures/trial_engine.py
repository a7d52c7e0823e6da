"""A trial of cures in one rank of a running training: settings change between two passes, on all ranks alike.

The ranks count synchronising backward passes. A block ends for all of them at the forward pass after so many, which
they know beforehand. There they bring their numbers, rank 0 decides what comes next (`trial_schedule.py`), and all put
it on or none does. Whatever cannot be decided or done leaves the training with what it has.
"""

from __future__ import annotations

import copy
import functools
import random
import sys
import weakref
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.cures.ddp_reducer import Reducers
from pyddpdiag.cures.options import Cures, from_options
from pyddpdiag.cures.trial_agreement import Agreement, Measured, Weights, block_of
from pyddpdiag.cures.trial_candidates import Run, candidates
from pyddpdiag.cures.trial_options import Trial
from pyddpdiag.cures.trial_schedule import Schedule, Turn
from pyddpdiag.errors import ReductionError, UsageError
from pyddpdiag.model.tried import AS_IT_IS, TODAY, Tried, TriedCure, tried_from_json, tried_to_json
from pyddpdiag.output import say
from pyddpdiag.record import attachments
from pyddpdiag.record.recorder import Recorder
from pyddpdiag.system.clock import monotonic_ns

_AFTER: Final = 3
"""Passes before the first block: memory is allocated, and DDP rebuilds its buckets."""

_MOST_IN_VAIN: Final = 6
"""Times in a row that the ranks may fail to meet."""

_UNDER_WAY: Final = "a pass of another forward call is under way"

# How many trials the ranks of a group have begun: the same on all of them.
_begun: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()
_running: weakref.WeakSet[TrialEngine] = weakref.WeakSet()


def begin(recorder: Recorder, ddp: DistributedDataParallel, given: torch.nn.Module, options: Trial) -> None:
    """As `Trial.begin`. One trial at a time: a module that comes later keeps what it has, and a line says so."""
    name = type(ddp.module).__name__
    if any(each.running for each in _running):
        if recorder.rank == 0:
            say(f"pyddpdiag: cures are tried on another module; {name} keeps its setting.", sys.stderr)
        return
    group = attachments.group_of(ddp)
    if group.size() == 1:
        say(f"pyddpdiag: no cure is tried on {name}: its group has one rank.", sys.stderr)
        return
    number = _begun[group] = _begun.get(group, 0) + 1
    _watch_joins()
    _running.add(TrialEngine(recorder, ddp, given, options, number))


@functools.cache
def _watch_joins() -> None:
    """Ends a trial before `join()`, in which a rank without batches would run no forward pass that could."""
    join_hook = DistributedDataParallel.join_hook

    @functools.wraps(join_hook)
    def ending(ddp: DistributedDataParallel, **options: Any) -> Any:
        for each in list(_running):
            each.joins(ddp)
        return join_hook(ddp, **options)  # type: ignore[no-untyped-call]

    DistributedDataParallel.join_hook = ending  # type: ignore[method-assign, assignment]


class TrialEngine:
    """One rank's side of a trial; kept alive by the module's forward hook until it is over.

    Args:
        recorder: to which the module is attached.
        ddp: the module.
        given: on which the script calls it.
        options: the same on all ranks.
        number: of this trial among those of the module's group.
    """

    def __init__(
        self,
        recorder: Recorder,
        ddp: DistributedDataParallel,
        given: torch.nn.Module,
        options: Trial,
        number: int,
    ) -> None:
        self._recorder, self._options = recorder, options
        self._ddp = weakref.ref(ddp)
        self._native = attachments.native_module(ddp)
        self._reducers = Reducers(ddp)
        self._weights = Weights(self._reducers.parameters)
        group = attachments.group_of(ddp)
        self._agreement = Agreement(group, f"{recorder.run_id}/{number}")
        self._decides = group.rank() == 0
        # From here on, nothing waits for other ranks before all of them train.
        self._current = Cures(**asdict(attachments.request_of(ddp)))
        self._settings = {TODAY: self._current}
        self._tried = TODAY  # the latest cure since the weights were compared
        self._schedule: Schedule | None = None  # rank 0's; None: the ranks have not met
        self._turn: Turn | None = None  # None: not begun
        today = TriedCure(AS_IT_IS, self._current.options(), same_bits=True)
        self._trial = Tried("in_run", "running", today, minutes=options.minutes)
        self._seen = self._begun_at = self._prepared = self._native.passes
        self._since_ns = self._in_vain = 0
        self._measured = Measured(self._native, recorder.core)
        self.running = True
        # Before the marks of the forward pass, which would count a change as part of it.
        self._handle = given.register_forward_pre_hook(self._before_forward, prepend=True)
        recorder.modules.note_trial(self._trial)

    def joins(self, ddp: DistributedDataParallel) -> None:
        """All ranks are about to train a module within `join()`, where they run different passes."""
        if self._ddp() is ddp and self.running:
            self._to_today(ddp)
            why = "The script trains within join(), where ranks run different passes."
            self._give_up(why, TODAY)
            if self._options.stop:
                raise SystemExit(0)

    def _facts(self, ddp: DistributedDataParallel) -> dict[str, Any]:
        """What this rank knows of its module, as JSON can hold it."""
        reduced = list(self._reducers.parameters.values()) or [
            one for one in ddp.module.parameters() if one.requires_grad
        ]
        return {
            "gradient_bytes": sum(one.nbytes for one in reduced),
            "dtypes": sorted({str(one.dtype).removeprefix("torch.") for one in reduced}),
            "bucket_cap_mb": ddp.bucket_bytes_cap / 2**20,
            "default_cap": bool(getattr(ddp, "bucket_bytes_cap_default", False)),
            "views": bool(ddp.gradient_as_bucket_view),
            "keeps_layout": bool(ddp.find_unused_parameters),
            "no_rebuild": self._reducers.why_not,
            "parameter_bytes": [one.nbytes for one in reduced],
        }

    def _before_forward(self, _: torch.nn.Module, __: Any) -> None:
        """A forward pass begins: between two passes, if gradients were reduced since the last one."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not self.running:
            return
        passes = self._native.passes
        prepared, self._prepared = self._prepared, passes
        ddp = self._ddp()
        if passes == self._seen or ddp is None or not any(module.training for module in ddp.modules()):
            return
        if self._recorder.closed or not attachments.is_attached(ddp):
            return  # the other ranks may not know of it: what is on stays on
        if ddp._join_config.enable:
            self.joins(ddp)  # of a class with a `join_hook` of its own
            return
        turn = self._turn or Turn(TODAY, 0, _AFTER)
        self._measured.step(counts=passes - self._begun_at > turn.uncounted)
        needed = turn.uncounted + turn.passes
        if passes - self._begun_at >= needed:
            # Since the last forward call that DDP prepared a pass for, one has begun and come to its end.
            at_rest = passes > prepared and _is_finalized(ddp)
            why_not = self._block_ended(ddp, passes, at_rest)
            self._in_vain = self._in_vain + 1 if why_not else 0
            if self._in_vain == _MOST_IN_VAIN:
                self._give_up(f"The ranks could not meet: {why_not}.", self._trial.now)
        self._seen = self._native.passes
        self._measured.goes_on()

    def _block_ended(self, ddp: DistributedDataParallel, passes: int, at_rest: bool) -> str:
        """The ranks meet, and change to what is decided.

        Returns:
            Why they did not meet, and nothing has changed; empty: they did.

        Raises:
            ReductionError: weights that were equal on all ranks are so no more, or a reducer lacks a parameter.
        """
        self._since_ns = self._since_ns or monotonic_ns()
        if self._schedule is None:
            met = self._agreement.meet(
                {"facts": self._facts(ddp), "seed": random.SystemRandom().getrandbits(32)}
            )
            if met.why_not:
                return met.why_not
            self._schedule = self._scheduled(met.value)
            self._compare_weights(ddp)
        ours: Any = {"passes": passes, "at_rest": at_rest, "numbers": self._measured.numbers()}
        surely = False
        while True:
            # Only what all ranks read counts.
            schedule = copy.deepcopy(self._schedule)
            decided = self._agreement.decide(ours, functools.partial(self._decide, schedule), surely=surely)
            why_not = decided.why_not or decided.value["why_not"]
            if why_not:
                if surely:  # a change was undone
                    self._note(replace(self._trial, now=TODAY))
                    self._measured.begins()
                return str(why_not)
            self._schedule = schedule
            turn = Turn(**decided.value["turn"])
            if not surely and (turn.over or self._weights.few):
                self._compare_weights(ddp)
            trial = tried_from_json(decided.value["trial"])
            assert trial is not None
            why = self._put_on(ddp, turn.name)
            if not why:
                break
            # All ranks have today's setting again.
            self._schedule.failed(turn.name, why)
            ours, surely = {**ours, "numbers": None}, True
        self._note(trial)
        if not turn.over:
            self._foretell()
        self._turn, self._begun_at = turn, passes
        self._measured.begins()
        if turn.over:
            self._reducers.keep()
            self._over()
            self._tell()
            if self._options.stop:
                raise SystemExit(0)
        return ""

    def _scheduled(self, brought: list[dict[str, Any]]) -> Schedule:
        """The settings and their schedule, from what all ranks brought to their first meeting."""
        facts = brought[0]["facts"]
        why_not = next((each["facts"]["no_rebuild"] for each in brought if each["facts"]["no_rebuild"]), "")
        sizes = facts["parameter_bytes"]
        alike = all(each["facts"]["parameter_bytes"] == sizes for each in brought)
        run = Run(
            **{
                **facts,
                "today": self._current,
                "ranks": len(brought),
                "one_host": self._agreement.one_host,
                "in_run": True,
                "dtypes": frozenset(facts["dtypes"]),
                "no_rebuild": why_not or ("" if alike else "the ranks reduce different parameters"),
                "parameter_bytes": tuple(sizes),
            }
        )
        cures = candidates(self._options.wanted(), run)
        self._settings |= {each.name: from_options(each.options) for each in cures if not each.left}
        # A training that ends goes on with nothing.
        keep = "none" if self._options.stop else self._options.keep
        trial = replace(self._trial, cures=tuple(cures))
        return Schedule(trial, keep, brought[0]["seed"], self._measured.latest_s)

    def _compare_weights(self, ddp: DistributedDataParallel) -> None:
        """Where all ranks are.

        Raises:
            ReductionError: as `_block_ended`; all ranks have today's setting again.
        """
        tried, self._tried = self._tried, TODAY
        ours = {"marks": self._weights.marks(), "lacking": self._reducers.lacking(ddp)}
        decided = self._agreement.decide(
            ours, lambda brought: self._weights.compared(brought, tried), surely=True
        )
        if not decided.value:
            return
        self._to_today(ddp)
        why = f"after '{tried}' was tried, {decided.value}"
        self._give_up(why, TODAY)
        raise ReductionError(
            f"rank {self._recorder.rank}: {why}",
            hint="start again from the last checkpoint, without a trial of it, and report this; if the script itself "
            "changes weights of single ranks, it needs no report.",
        )

    def _decide(self, schedule: Schedule, brought: list[Any]) -> dict[str, Any]:
        """On rank 0: what comes next, from all ranks' numbers."""
        why_not = "" if all(each["at_rest"] for each in brought) else _UNDER_WAY
        if len({each["passes"] for each in brought}) > 1:
            why_not = "they have run different numbers of passes"
        if why_not:
            return {"why_not": why_not}
        block = block_of([each["numbers"] for each in brought], schedule.round)
        if block is not None:
            schedule.measured(self._trial.now, block)
        if schedule.is_over:
            turn = Turn(TODAY, 0, over=True)  # the best could not be put on again
        else:
            turn = schedule.next((monotonic_ns() - self._since_ns) / 1e9)
        return {"why_not": "", "turn": vars(turn), "trial": tried_to_json(schedule.tried())}

    def _put_on(self, ddp: DistributedDataParallel, name: str) -> str:
        """Changes to a setting, on all ranks or on none.

        Returns:
            Why it is not on: the ranks have today's setting; "": it is on.
        """
        wanted = self._settings[name]
        if wanted == self._current:
            return ""  # the same on all ranks
        self._to_today(ddp)
        if name == TODAY:
            return ""
        error = self._change(ddp, wanted)
        decided = self._agreement.decide(error, _first, surely=True)
        why = str(decided.why_not or decided.value)
        if why:
            self._to_today(ddp)
        else:
            self._tried = name
        return why

    def _change(self, ddp: DistributedDataParallel, wanted: Cures) -> str:
        """From today's setting; why this rank cannot, or "": it has done it."""
        today, self._current = self._current, wanted
        try:
            views = wanted.gradient_as_bucket_view or None
            if wanted.bucket_sizes or views:
                self._reducers.put_on(ddp, wanted.bucket_sizes, views)
            if wanted.request != today.request:
                # Where the ranks have no shared memory, the cure leaves.
                shares = wanted.shared_memory != today.shared_memory
                asked = replace(wanted, shared_memory="require") if shares else wanted
                attachments.change_path(ddp, asked.request)
        except Exception as error:  # whatever it is, the other ranks must know
            return str(error) or type(error).__name__
        return ""

    def _to_today(self, ddp: DistributedDataParallel) -> None:
        """Gives this rank back what the script has. It needs no other rank."""
        had, self._current = self._current, self._settings[TODAY]
        self._reducers.put_back(ddp)
        if had.request != self._current.request:
            with suppress(UsageError):  # the module was detached: its buckets go over Gloo as they are
                attachments.change_path(ddp, self._current.request)

    def _give_up(self, why: str, kept: str) -> None:
        """Ends the trial in this rank, which changes nothing any more."""
        self._note(replace(self._trial, state="failed", why=why, now=TODAY, kept=kept))
        self._reducers.keep()
        self._over()
        self._tell()

    def _note(self, trial: Tried) -> None:
        self._trial = trial
        self._recorder.modules.note_trial(trial)

    def _foretell(self) -> None:
        """On rank 0: how long the trial takes."""
        if self._recorder.rank == 0 and self._schedule is not None and (said := self._schedule.expected()):
            say(f"pyddpdiag try: {said}", sys.stderr)

    def _over(self) -> None:
        self.running = False
        self._handle.remove()

    def _tell(self) -> None:
        if self._recorder.rank != 0:
            return
        trial, kept = self._trial, self._trial.kept
        best = trial.best_cure
        if best is not None and best.ratio is not None:
            found = f"{best.name} takes {best.ratio:.2f} of today's step"
        else:
            found = trial.why or trial.verdict
        goes_on = kept or "today's setting"
        ends = "The training ends" if self._options.stop else f"The training goes on with {goes_on}"
        say(f"pyddpdiag: the trial of cures is over: {found.rstrip('.')}. {ends}.", sys.stderr)


def _is_finalized(ddp: DistributedDataParallel) -> bool:
    """Whether the last pass came to its end. DDP says no in its next forward pass, with an error of its own."""
    try:
        ddp.reducer._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def _first(errors: list[Any]) -> str:
    """The first error of a rank, with its number; empty: there is none."""
    return next((f"rank {rank}: {error}" for rank, error in enumerate(errors) if error), "")
