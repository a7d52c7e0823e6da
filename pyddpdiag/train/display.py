"""Shows the progress of a run on standard error: a bar on a terminal, a line per epoch everywhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pyddpdiag.output import clean_lines
from pyddpdiag.ranks.session import Note
from pyddpdiag.train.events import EpochDone, Planned, StepDone


class Display:
    """Handles the events of a run. A context manager, so that the cursor always comes back."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._plan: Planned | None = None
        self._notes: set[str] = set()

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __call__(self, event: object) -> None:
        """Shows an event; most have nothing for people."""
        if isinstance(event, Planned):
            self._start(event)
        elif isinstance(event, StepDone):
            if self._progress is not None and self._task is not None and self._plan is not None:
                done = (event.epoch - self._plan.first_epoch) * self._plan.steps_per_epoch + event.step + 1
                self._progress.update(self._task, completed=done, loss=f"loss {event.loss:.4f}")
        elif isinstance(event, EpochDone):
            # A script announces no plan.
            width, of = (len(str(self._plan.epochs)), f"/{self._plan.epochs}") if self._plan else (1, "")
            self._print(
                f"epoch {event.epoch + 1:{width}d}{of}  loss {event.train_loss:.4f}  "
                f"test loss {event.test_loss:.4f}  test accuracy {event.accuracy:.2%}  {event.seconds:.2f} s"
            )

        elif isinstance(event, Note) and event.text not in self._notes:
            self._notes.add(event.text)
            self._print(event.text)

    def _start(self, plan: Planned) -> None:
        self._plan = plan
        batch = sum(plan.shares)
        if len(set(plan.shares)) == 1:
            split = f"{plan.shares[0]} on each"
        else:
            most = max(plan.shares)
            split = f"{most} on the first {plan.shares.count(most)}, {min(plan.shares)} on others"
        ranks = "1 rank" if plan.world_size == 1 else f"{plan.world_size} ranks"
        threads = "1 thread" if plan.threads == 1 else f"{plan.threads} threads"
        self._print(
            f"Training {plan.parameters:,} parameters on {plan.train_samples} {plan.dataset}, testing on "
            f"{plan.test_samples}; {ranks} with {threads} each; batches of {batch}: {split}."
        )
        device = "" if plan.device == "cpu" else f", on {plan.device}"
        self._print(f"Effective batch size {batch}, peak learning rate {plan.lr:g}{device}.")
        if plan.first_epoch:
            self._print(f"Resuming after epoch {plan.first_epoch}.")
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[loss]}"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(
                "training", total=(plan.epochs - plan.first_epoch) * plan.steps_per_epoch, loss=""
            )

    def _print(self, text: str) -> None:
        # No wrapping in files and pipes: other tools search for one line per epoch.
        self._console.print(
            clean_lines(text), highlight=False, markup=False, soft_wrap=not self._console.is_terminal
        )
