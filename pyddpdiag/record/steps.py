"""Marks the steps of a training loop: as it takes batches from its loader, or where the script says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from pyddpdiag import _native
from pyddpdiag.record.modules import Modules
from pyddpdiag.system.clock import monotonic_ns

Batch = TypeVar("Batch")


class Loop:
    """Which loop's step is open: a loop must not end the step of a later loop."""

    def __init__(self) -> None:
        self.latest: object = None


class Steps(Generic[Batch]):
    """A loader whose batches are steps; made by `Recorder.steps`."""

    def __init__(self, core: _native.Recorder, modules: Modules, loop: Loop, loader: Iterable[Batch]) -> None:
        self._core = core
        self._modules = modules
        self._loop = loop
        self._loader = loader

    def __len__(self) -> int:
        """The loader's length; TypeError if it has none."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        """The loader's batches, each a step from here to the next."""
        core = self._core
        self._modules.training.loaders.begins(self._loader)
        mine = object()
        self._loop.latest = mine
        # A loader starts its workers here: the first batch is waited for from now on.
        core.wait_begin()
        try:
            batches = iter(self._loader)
        except BaseException:
            core.wait_abandoned()
            raise
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                core.wait_abandoned()
                return
            except BaseException:
                core.wait_abandoned()
                raise
            core.step_begin()
            try:
                yield batch
            finally:
                if self._loop.latest is mine:
                    self._modules.catch_up(core.step_end())
            self._loop.latest = mine
            core.wait_begin()


class MarkedSteps:
    """Steps whose ends the script marks itself, for `Recorder.step` and `Recorder.mark_step`."""

    def __init__(self, core: _native.Recorder, modules: Modules, loop: Loop) -> None:
        self._core = core
        self._modules = modules
        self._loop = loop
        self._mine: object = None  # the open step that `mark` began

    @contextmanager
    def one(self) -> Iterator[None]:
        """A step from here to the end of the block."""
        mine = self._begin()
        try:
            yield
        finally:
            self._end(mine)

    def mark(self) -> None:
        """The end of one step and the begin of the next."""
        self._end(self._mine)
        self._mine = self._begin()

    def close(self) -> None:
        """Ends the step that the last mark began as one that did not take place."""
        if self._mine is not None and self._loop.latest is self._mine:
            self._core.wait_abandoned()
        self._mine = None

    def _begin(self) -> object:
        self._loop.latest = mine = object()
        self._core.wait_begin()
        self._core.step_begin()
        return mine

    def _end(self, mine: object) -> None:
        if mine is None:
            return
        if self._loop.latest is mine:
            groups = self._core.step_end()
            self._loop.latest = None
            self._modules.catch_up(groups)


class LoopMarks:
    """Steps of a loop that somebody else owns, by what can be seen of it: batches, passes, optimizer steps.

    A step begins with the batch that a training pass uses, which shows only with that pass: evaluations take
    batches, too. Without batches it begins where the step before ended, unless something else went on since.
    A pass that may belong to an evaluation begins a provisional step. It is withdrawn if no backward
    pass of a module begins in it.
    """

    def __init__(self, core: _native.Recorder, modules: Modules) -> None:
        self._core = core
        self._begun, self._ended = _native.quick_steps(core)
        self._modules = modules
        self.open = False
        """Whether a step has begun and not ended."""
        self.waits_since = 0
        """0: nobody has waited for a batch since the last step."""
        self.batch_came = 0
        """0: there is no batch that no step has used."""
        self._last_end = 0  # of the step before, if nothing is known that came since
        self.signs: int | None = None
        """Of backward passes, when a provisional step began; None: the open step is one for sure."""

    def waits(self, *, again: bool = False, since_ns: int = 0) -> None:
        """The loop asks for a batch; `again`: for one more of the same step. The step before has ended.

        It may have waited already `since_ns`.
        """
        if self.open:
            self.end()
        if not (again and self.waits_since):
            self.waits_since = since_ns or monotonic_ns()

    def batch(self) -> None:
        """It came."""
        self.batch_came = monotonic_ns()

    def forget(self) -> None:
        """No step will use it: there is none, or it is for an evaluation."""
        self.waits_since = self.batch_came = self._last_end = 0

    def epoch_ended(self) -> None:
        """The loader of the steps has no more batches."""
        self._core.wait_begin()
        self._core.wait_abandoned()

    @property
    def is_provisional(self) -> bool:
        """Whether nothing shows yet that the open step is really a step."""
        return self.signs == self._core.backward_signs

    def begin(self, *, sure: bool = True) -> None:
        """A step, since its batch came. If one is open, it goes on."""
        if not self.open:
            begun = self.batch_came or self._last_end or monotonic_ns()
            self._begun(self.waits_since or begun, begun)
            self.open = True
            self.signs = None if sure else self._core.backward_signs
        elif sure:
            self.signs = None
        self.waits_since = self.batch_came = self._last_end = 0

    def end(self) -> None:
        """Of the step that is open, if one is."""
        if self.open:
            self.open = False
            if self.signs is not None and self.is_provisional:
                self._core.step_withdrawn()
                groups = len(self._core.groups())
            else:
                groups = self._ended()
                self._last_end = monotonic_ns()
            self._modules.catch_up(groups)

    def close(self) -> None:
        """What is still open did not end as a step."""
        if self.open:
            self.open = False
            self._core.wait_abandoned()
