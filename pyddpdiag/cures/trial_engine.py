"""A trial of cures in one rank of a running training: settings change between two passes, on all ranks alike.

The ranks count synchronising backward passes. A block ends for all of them at the forward pass after so many, which
they know beforehand. There they bring their numbers, rank 0 decides what comes next (`trial_schedule.py`), and all put
it on or none does. A rank that is lost ends the training with an error, as it does in an all-reduce.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.cures import ddp_reducer
from pyddpdiag.cures.trial_agreement import Agreement
from pyddpdiag.cures.trial_candidates import Candidate, Module, Setting, candidates
from pyddpdiag.cures.trial_options import Trial
from pyddpdiag.cures.trial_schedule import UNCOUNTED, Schedule, Turn
from pyddpdiag.errors import ReductionError
from pyddpdiag.model import trial as model
from pyddpdiag.output import say
from pyddpdiag.own_clock import monotonic_ns
from pyddpdiag.record import attachments
from pyddpdiag.record.recorder import Recorder

_AFTER: Final = 3
"""Passes before the first block: memory is allocated, and DDP rebuilds its buckets."""

# How many trials the ranks of a group have begun: the same on all of them.
_begun: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()
_running: weakref.WeakSet[TrialEngine] = weakref.WeakSet()


def begin(recorder: Recorder, ddp: DistributedDataParallel, given: torch.nn.Module, options: Trial) -> None:
    """As `Trial.begin`. One trial at a time: a module that comes later keeps what it has, and a line says so.

    Raises:
        ReductionError: not all ranks came.
    """
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
    _running.add(TrialEngine(recorder, ddp, given, options, number))


@dataclass
class _Measured:
    """What this rank saw of the block that is on."""

    steps_s: list[float]
    waits_s: list[float]
    first_step: int = 0
    last_step: int = 0


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
        self._old_layout = None if ddp_reducer.why_not(ddp) else ddp_reducer.layout_of(ddp)
        group = attachments.group_of(ddp)
        self._agreement = Agreement(
            group,
            number,
            {"no_rebuild": ddp_reducer.why_not(ddp), "seed": random.SystemRandom().getrandbits(32)},
        )
        today, others = candidates(options.cures, self._facts(ddp))
        self._settings: Mapping[str, Candidate] = {each.cure.name: each for each in (today, *others)}
        self._current = today.setting
        # Rank 0's; that of the others only knows how the trial begins.
        self._schedule = Schedule(
            today.cure,
            [each.cure for each in others],
            self._native.index,
            # A training that ends goes on with nothing.
            "none" if options.stop else options.keep,
            60 * options.minutes,
            self._agreement.brought[0]["seed"],
        )
        self._decides = group.rank() == 0
        self._turn: Turn | None = None  # None: not begun
        self._trial = self._schedule.trial()
        self._seen = self._begun_at = self._native.passes
        self._seen_ns = self._since_ns = 0
        self._waited_ns = 0
        self._measured = _Measured([], [])
        self.running = True
        # Before the marks of the forward pass, which would count a change as part of it.
        self._handle = given.register_forward_pre_hook(self._before_forward, prepend=True)
        recorder.modules.note_trial(self._trial)

    def _facts(self, ddp: DistributedDataParallel) -> Module:
        why_not = next((each["no_rebuild"] for each in self._agreement.brought if each["no_rebuild"]), "")
        reduced = [one for one in ddp.module.parameters() if one.requires_grad]
        return Module(
            path=attachments.request_of(ddp),
            ranks=len(self._agreement.brought),
            one_host=self._agreement.one_host,
            gradient_bytes=sum(one.numel() * one.element_size() for one in reduced),
            dtypes=frozenset(str(one.dtype).removeprefix("torch.") for one in reduced),
            bucket_cap_mb=ddp.bucket_bytes_cap / 2**20,
            default_cap=bool(getattr(ddp, "bucket_bytes_cap_default", False)),
            views=bool(ddp.gradient_as_bucket_view),
            keeps_layout=bool(ddp.find_unused_parameters),
            no_rebuild=why_not,
            parameter_bytes=tuple(one.numel() * one.element_size() for one in reduced),
        )

    def _before_forward(self, _: torch.nn.Module, __: Any) -> None:
        """A forward pass begins: between two passes, if gradients were reduced since the last one."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not self.running:
            return
        passes = self._native.passes
        ddp = self._ddp()
        if passes == self._seen or ddp is None or not any(module.training for module in ddp.modules()):
            return
        if self._recorder.closed or not attachments.is_attached(ddp):
            self._over()
            return
        now, step = monotonic_ns(), self._recorder.core.current_step
        if self._turn is not None and passes - self._begun_at > UNCOUNTED:
            waited = self._native.waited_ns
            self._measured.steps_s.append((now - self._seen_ns) / 1e9)
            self._measured.waits_s.append((waited - self._waited_ns) / 1e9)
            self._measured.first_step = self._measured.first_step or self._last_step
            self._measured.last_step = step
        self._last_step = step
        needed = _AFTER if self._turn is None else UNCOUNTED + self._turn.passes
        joining = bool(ddp._join_config.enable)
        if passes - self._begun_at >= needed or joining:
            self._block_ended(ddp, passes, joining)
            passes = self._native.passes
        self._seen, self._seen_ns, self._waited_ns = passes, monotonic_ns(), self._native.waited_ns

    _last_step = 0

    def _block_ended(self, ddp: DistributedDataParallel, passes: int, joining: bool) -> None:
        self._since_ns = self._since_ns or monotonic_ns()
        ours = self._numbers(passes)
        while True:
            decided = self._agreement.decide(
                "decide what comes next", ours, lambda brought: self._decide(brought, joining)
            )
            turn = Turn(**decided["turn"])
            trial = model.trial_from_json(decided["trial"])
            assert trial is not None
            self._note(trial)
            why = self._put_on(ddp, turn.name)
            if not why:
                break
            # All ranks have today's setting again.
            if self._decides:
                self._schedule.failed(turn.name, why)
            ours = None
        self._turn, self._begun_at, self._measured = turn, passes, _Measured([], [])
        if turn.over:
            self._over()
            self._tell()
            if self._options.stop:
                raise SystemExit(0)

    def _numbers(self, passes: int) -> dict[str, Any] | None:
        """What this rank measured; None: nothing."""
        steps, waits = self._measured.steps_s, self._measured.waits_s
        if self._turn is None or not steps:
            return None
        return {
            "step_s": median(steps),
            "exposed_s": median(waits),
            "passes": len(steps),
            "first_pass": self._begun_at,
            "last_pass": passes - 1,
            "first_step": self._measured.first_step,
            "last_step": self._measured.last_step,
        }

    def _decide(self, brought: list[Any], joining: bool) -> dict[str, Any]:
        """On rank 0: what comes next, from all ranks' numbers."""
        measured = [each for each in brought if each is not None]
        if measured and len(measured) == len(brought):
            slowest = max(measured, key=lambda each: float(each["step_s"]))
            own = measured[0]
            self._schedule.measured(
                self._trial.on,
                model.Block(
                    order=self._schedule.blocks,
                    first_pass=own["first_pass"],
                    last_pass=own["last_pass"],
                    first_step=own["first_step"],
                    last_step=own["last_step"],
                    passes=own["passes"],
                    step_s=slowest["step_s"],
                    exposed_s=slowest["exposed_s"],
                ),
            )
        if joining:
            turn = self._schedule.cut_short(
                "The script trains within join(), where ranks run different passes."
            )
        elif self._trial.state in ("decided", "time over", "failed"):
            turn = Turn(model.TODAY, 0, over=True)  # the best could not be put on again
        else:
            turn = self._schedule.next((monotonic_ns() - self._since_ns) / 1e9)
        return {"turn": vars(turn), "trial": model.trial_to_json(self._schedule.trial())}

    def _put_on(self, ddp: DistributedDataParallel, name: str) -> str:
        """Changes to a setting, on all ranks or on none.

        Returns:
            Why it is not on: the ranks have today's setting; "": it is on.

        Raises:
            ReductionError: a rank cannot go back.
        """
        before, wanted = self._current, self._settings[name].setting
        if wanted == before:
            return ""  # the same on all ranks
        today = self._settings[model.TODAY].setting
        error = self._change(ddp, before, wanted)
        why = str(self._agreement.decide(f"change to {name}", error, _first))
        if not why:
            self._current = wanted
            return ""
        # One of the two is today's. Ranks that have changed and ranks that could not undo the same parts, since some of
        # these need all ranks.
        error = self._change(ddp, before if wanted == today else wanted, today)
        failed = str(self._agreement.decide("go back to today's setting", error, _first))
        if failed:
            raise ReductionError(
                f"rank {self._recorder.rank}: after '{name}' failed ({why}), the ranks could not go back: {failed}",
                hint="train without a trial, and report this.",
            )
        self._current = today
        return why

    def _change(self, ddp: DistributedDataParallel, before: Setting, wanted: Setting) -> str:
        """Why this rank cannot; empty: it has done it."""
        try:
            if wanted.layout != before.layout:
                self._rebuild(ddp, wanted)
            if wanted.path != before.path:
                attachments.change_path(ddp, wanted.path)
        except Exception as error:  # whatever it is, the other ranks must know
            return str(error) or type(error).__name__
        return ""

    def _rebuild(self, ddp: DistributedDataParallel, setting: Setting) -> None:
        old = self._old_layout
        if old is None:
            return  # no setting of this trial has had another reducer
        sizes = setting.bucket_caps_mb
        ddp_reducer.replace_reducer(
            ddp,
            replace(
                old,
                config=ddp_reducer.with_sizes(ddp, sizes) if sizes else old.config,
                views=old.views if setting.views is None else setting.views,
            ),
        )

    def _note(self, trial: model.Trial) -> None:
        self._trial = trial
        self._recorder.modules.note_trial(trial)

    def _over(self) -> None:
        self.running = False
        self._handle.remove()

    def _tell(self) -> None:
        if self._recorder.rank != 0:
            return
        trial, kept = self._trial, self._trial.kept
        best = next((each for each in trial.cures if each.name == trial.best), None)
        if best is not None and best.result is not None:
            found = f"{best.name} takes {best.result.ratio:.2f} of today's step"
        else:
            found = trial.why or trial.verdict
        goes_on = "today's setting" if kept == model.TODAY else kept
        ends = "The training ends" if self._options.stop else f"The training goes on with {goes_on}"
        say(f"pyddpdiag: the trial of cures is over: {found.rstrip('.')}. {ends}.", sys.stderr)


def _first(errors: list[Any]) -> str:
    """The first error of a rank, with its number; empty: there is none."""
    return next((f"rank {rank}: {error}" for rank, error in enumerate(errors) if error), "")


__all__ = ["TrialEngine", "begin"]
