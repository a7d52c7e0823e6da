"""What `pyddpdiag run` watches in a rank: its DDP modules, and the steps of its loop."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import util
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

import pyddpdiag
from pyddpdiag.errors import NotGlooError, PyddpdiagError
from pyddpdiag.integrations.alone import at_next_step
from pyddpdiag.integrations.contained import contained
from pyddpdiag.integrations.recorded_training import Session
from pyddpdiag.integrations.waiting import Waits
from pyddpdiag.output import say
from pyddpdiag.record import forks
from pyddpdiag.record.attachments import is_attached
from pyddpdiag.record.bucket_hook import RecorderHook
from pyddpdiag.record.callers import maker
from pyddpdiag.record.hooks import ScriptsHook, TimedHook
from pyddpdiag.record.identities import Identities
from pyddpdiag.record.latest import latest_open
from pyddpdiag.record.module_tree import modules_in, parameters_in, trains
from pyddpdiag.record.modules import require_gloo
from pyddpdiag.record.recorder import Recorder
from pyddpdiag.record.steps import LoopMarks

STEPS_PAST_IT: Final = 3
"""So many steps of an optimizer with a module's gradients, and no forward pass of the module, are no accident."""

if TYPE_CHECKING:
    # A rank's start is short.
    from pyddpdiag.cures.applied import Applied
    from pyddpdiag.cures.trial_options import Trial
    from pyddpdiag.model.launch import Launch

_OURS = (pyddpdiag.timed_allreduce, pyddpdiag.timed_bf16_allreduce, pyddpdiag.timed_fp16_allreduce)

_OWN_HOOK = "the script gave it a recorder or a communication hook"

# Of the recorder, its file, and the store by which ranks agree: none of them may end the script.
_FAILURES = (PyddpdiagError, RuntimeError, OSError)


class Watched:
    """One process's DDP modules and its training loop. Its recorder is opened by the first module that trains.

    A script with a recorder of its own keeps it: modules are attached to that, and steps are the script's business.

    Args:
        folder: of the run; None: the ranks agree on a new one.
        options: of the Recorder.
        recorded_by, launch: as in `Session`.
        cures: what to apply to the modules; None: nothing.
        trial: what to try on the first module that trains; None: nothing.
    """

    def __init__(
        self,
        folder: str | Path | None,
        options: Mapping[str, Any],
        recorded_by: str = "run",
        launch: Launch | None = None,
        cures: Applied | None = None,
        trial: Trial | None = None,
    ) -> None:
        self._folder = folder
        self._launch = launch
        self.cures = cures
        self._trial = trial
        self._recorded_by = recorded_by
        self._framework = ""  # that made a module
        self._options = options
        self.session: Session | None = None
        """The recorder that this opened; None: not yet, or the script has its own."""
        self._seen: Identities[DistributedDataParallel, None] = Identities()
        self.waits = Waits()
        """For batches of DataLoaders."""
        self._thread = get_ident()
        self._process = 0  # that records
        self._by_batches = False  # the open step began with a batch
        # By their ids, as all of this is asked in every step, and some classes have no hash.
        self._optimizers: dict[int, weakref.ref[Optimizer]] = {}  # that step in every step
        self._stepped: set[int] = set()  # of these, in the open step
        # Modules whose forward pass nobody has seen, with the optimizer steps that had gradients of theirs.
        self._uncalled: Identities[DistributedDataParallel, int] = Identities()
        self._passed_by: Identities[DistributedDataParallel, None] = Identities()  # recorded all the same
        self._alone = False  # no module is there
        self.hears_optimizers = False
        """Whether `stepped` is to be called."""
        self._begun_by: DistributedDataParallel | None = None
        self._signs = 0  # of backward passes, when that pass began
        self._accumulates = False
        self._failed = False
        self.left_alone = ""
        """Why a DDP module that runs is not recorded here; "" if each one is, or none has run with gradients."""

    def made_module(self, ddp: DistributedDataParallel) -> None:
        """A DDP module was made, by what is on this thread's stack."""
        if self._alone and self.session is not None:
            # What this rank trained alone before was to prepare this training, and the others have no such steps.
            self.session.discard()
            self.session, self._alone = None, False
        self._uncalled.add(ddp, 0)
        self._framework = self._framework or maker(sys._getframe())
        self.hears_optimizers = True

    def trains_alone(self) -> None:
        """This rank trains, and calls no collective: nobody averages its gradients."""
        with suppress(*_FAILURES):
            self._open().modules.training.look_at_all()
            self._alone = True
            self.hears_optimizers = True

    def forward(self, ddp: DistributedDataParallel, given: Any) -> None:
        """A forward pass of a DDP module begins; `given` is torch.compile's module of it, or the same."""
        # DDP itself looks only at this, and never at `training`.
        may_train = torch.is_grad_enabled()
        if may_train and id(ddp) not in self._seen.known:
            self._uncalled.discard(ddp)
            self._seen.add(ddp, None)
            try:
                self._attach(ddp, given)
            except Exception as error:
                # Other ranks may sum this module's buckets in a way that DDP's own would wait for in vain.
                if self.cures is not None:
                    contained.let_pass(error)
                raise
        session = self.loop()
        if session is None:
            return
        marks = session.steps
        if not may_train:
            marks.forget()
            return
        # Lightning leaves the wrapper in evaluation mode, and the model inside trains. With all of it in that mode,
        # this is an evaluation that records gradients, or a fine-tuning: the backward pass will show it.
        sure = trains(ddp) or any(trains(module) for _, module in modules_in(ddp))
        if marks.open and self._is_another(marks, ddp, sure):
            marks.end()
        if not marks.open:
            self._by_batches = marks.batch_came != 0
            self.waits.trains(session, by_batches=self._by_batches, sure=sure)
            # Only until there is something better to tell steps by.
            self._begun_by = None if self._by_batches or self._optimizers else ddp
            self._stepped.clear()
            if self._begun_by is not None:
                self._signs = self._passes()
        # The gradients of a pass in no_sync are for a later one of the same step.
        self._accumulates = not ddp.require_backward_grad_sync
        marks.begin(sure=sure)

    def raised(self, error: BaseException) -> None:
        """An exception has left a forward pass of a DDP module."""
        session = self.loop()
        if session is not None:
            recorder = session.recorder
            recorder.modules.training.raises.note(error, recorder.core.current_step)

    def _passes(self) -> int:
        assert self.session is not None
        return self.session.recorder.core.backward_signs

    def _is_another(self, marks: LoopMarks, ddp: DistributedDataParallel, sure: bool) -> bool:
        """Whether a pass belongs to another step than the open one, though the loop took no batch."""
        if self._by_batches:
            return False
        if sure and marks.is_provisional:
            return True  # the pass before was of an evaluation
        # Neither a loader nor an optimizer of torch's: each pass is a step, but for those of one backward pass.
        return self._begun_by is ddp and not self._accumulates and self._passes() != self._signs

    def timed(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that the script registers, with the probes around it; our own ones as they are."""
        if any(hook is ours for ours in _OURS) or isinstance(hook, (TimedHook, RecorderHook)):
            return hook
        try:
            return ScriptsHook(hook, self._open())
        except _FAILURES as error:
            self._cannot(error)
            return hook

    def saved(self, target: object, since_ns: int) -> None:
        """The script saved something with `torch.save`, from `since_ns` on."""
        if self.session is not None:
            self.session.recorder.modules.training.saves.saved(target, since_ns)

    def _attach(self, ddp: DistributedDataParallel, given: Any) -> None:
        own_hook = bool(ddp._comm_hooks) or is_attached(ddp)
        path: dict[str, Any] = {}
        if self.cures is not None:
            path = self._path(self.cures, ddp, own_hook)
        if self._trial is not None and self._can_try(ddp, own_hook):
            path["trial"], self._trial = self._trial, None
        if own_hook:
            self.left_alone = self.left_alone or _OWN_HOOK
            return  # recorded by the script, or timed
        try:
            recorder = self._open()
            recorder.attach(given, **path)
        except _FAILURES as error:
            if path.keys() - {"trial"}:
                raise  # with cures, it ends the training
            self._cannot(error)
        else:
            if self.cures is not None:
                self.cures.attached(recorder, ddp)

    def _path(self, cures: Applied, ddp: DistributedDataParallel, own_hook: bool) -> dict[str, Any]:
        """The options of the path on which all ranks agree; none, if one of them cannot take it."""
        not_gloo = _not_gloo(ddp)
        if not_gloo:
            return cures.path_for(ddp, over_gloo=False, obstacle=not_gloo)
        return dict(cures.path_for(ddp, over_gloo=True, obstacle=self._obstacle(ddp, own_hook)))

    def _can_try(self, ddp: DistributedDataParallel, own_hook: bool) -> bool:
        """Whether this rank can try cures on a module; why not is said in a line."""
        why = _not_gloo(ddp) or self._obstacle(ddp, own_hook)
        if why:
            rank = dist.get_rank() if dist.is_initialized() else 0
            name = type(ddp.module).__name__
            say(f"pyddpdiag run: rank {rank}: no cure is tried on {name}: {why.rstrip('.')}.", sys.stderr)
        return not why

    def _obstacle(self, ddp: DistributedDataParallel, own_hook: bool) -> str:
        """Why no hook of ours can serve a module in this rank; empty: one can."""
        if own_hook:
            return _OWN_HOOK
        if ddp._get_ddp_logging_data().get("comm_hook"):  # type: ignore[no-untyped-call]
            return "it has a builtin communication hook of torch"
        if getattr(ddp, "_use_python_reducer", False):
            return "torch's python_reducer calls no hook"
        try:
            self._open()
        except _FAILURES as error:
            return str(error)
        return ""

    def _open(self) -> Recorder:
        recorder = latest_open()
        if not isinstance(recorder, Recorder):
            self.session = Session(
                self._folder, self._options, self._recorded_by, self._launch, self._framework
            )
            recorder = self.session.recorder
            self._process = os.getpid()
            # After the note how the process ended, which has priority 0. Processes of multiprocessing run this, too.
            util.Finalize(None, _closes, (self.session,), exitpriority=-1)
        elif self.session is None:
            self.left_alone = f"the script has a recorder of its own, of '{recorder.folder}'"
        return recorder

    def _look_for_uncalled(self, optimizer: Optimizer) -> None:
        """Records a module that is passed by, as by `ddp.module(batch)`: each rank trains it alone."""
        if get_ident() != self._thread:
            return
        trained = {
            id(one) for group in optimizer.param_groups for one in group["params"] if one.grad is not None
        }
        for ddp, steps in self._uncalled.items():
            if not any(id(parameter) in trained for _, parameter in parameters_in(ddp)):
                continue
            self._uncalled.add(ddp, steps + 1)
            if steps + 1 < STEPS_PAST_IT:
                continue
            self._uncalled.discard(ddp)
            self._seen.add(ddp, None)
            if ddp._comm_hooks or is_attached(ddp):
                continue  # the script's own
            at_next_step(optimizer, partial(self._attach_passed_by, weakref.ref(ddp)))

    def _attach_passed_by(self, gone: weakref.ref[DistributedDataParallel]) -> None:
        ddp = gone()
        if ddp is None:
            return
        try:
            self._open().attach(ddp)
        except _FAILURES as error:
            self._cannot(error)
        else:
            self._passed_by.add(ddp, None)

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        try:
            if self._uncalled.known:
                self._look_for_uncalled(optimizer)
            session = self.loop()
            if session is None:
                return
            marks, one = session.steps, id(optimizer)
            self._begun_by = None
            if one in self._stepped:
                # It steps more often than the others, which then tell nothing of the end of a step.
                self._optimizers = {each: self._optimizers[each] for each in self._stepped}
            if one not in self._optimizers:
                self._optimizers[one] = weakref.ref(optimizer, partial(self._optimizer_gone, one))
            self._stepped.add(one)
            if marks.open and marks.signs is not None:
                marks.begin()  # in which an optimizer steps: no evaluation
            if not self._by_batches and self._optimizers.keys() <= self._stepped:
                marks.end()
            if not marks.open and (self._passed_by.known or self._alone):
                self._stepped.clear()
                marks.begin()  # no forward pass will say so
        except BaseException as error:
            if not contained.holds(error):
                raise

    def _optimizer_gone(self, one: int, _: weakref.ref[Optimizer]) -> None:
        self._optimizers.pop(one, None)
        self._stepped.discard(one)

    def loop(self) -> Session | None:
        """What records the loop, on its thread and in the process that records; None: nothing does."""
        session = self.session
        if session is None or get_ident() != self._thread or forks.process != self._process:
            return None
        return None if session.recorder.modules.closed else session

    def _cannot(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self.left_alone = str(error)
            rank = dist.get_rank() if dist.is_initialized() else "?"
            say(f"pyddpdiag run: rank {rank}: a DDP module is left alone: {error}", sys.stderr)


def _closes(session: Session) -> None:
    with contained:
        session.close()


def _not_gloo(ddp: DistributedDataParallel) -> str:
    """Why a module does not reduce over Gloo, the same on all ranks; empty: it does."""
    try:
        require_gloo(ddp, dist.get_rank() if dist.is_initialized() else 0)
    except NotGlooError as error:
        return error.message
    return ""
