"""The words of advice for the run at hand: what its script can do depends on what recorded it (`Sidecar.recorded_by`)
and on the framework that made its DDP module (`Sidecar.framework`).

A script with its own recorder changes an argument. `pyddpdiag run` and the callbacks of frameworks attach by
themselves, so that the script has no recorder to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyddpdiag.messages.shells import Command, Shell, shell_on, write
from pyddpdiag.model.frameworks import FRAMEWORKS, Framework
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.run_options import with_options
from pyddpdiag.model.sidecar import Sidecar

_NO_FRAMEWORK: Final = Framework("", (), "DistributedDataParallel(model, {option})", uneven=None)
_BUCKETS: Final = {"run": "pyddpdiag run --bucket-cap-mb {cap:g}", "train": "--bucket-cap-mb {cap:g}"}


@dataclass(frozen=True)
class Advice:
    """How to follow an advice.

    `recorded_by`: what recorded the run; empty: the script's own recorder. `launch`: the command of `pyddpdiag run`.
    `shell`: the one to write its lines for. `lanes`: whether buckets go over several interfaces, whoever asked for it.
    `framework`: the one that made the DDP module, in which the script types its settings; empty: the script made it.
    """

    recorded_by: str = ""
    launch: Launch = field(default_factory=Launch)
    shell: Shell = Shell.POSIX
    lanes: bool = False
    framework: str = ""

    @property
    def _typed(self) -> Framework:
        """Where settings are typed."""
        return FRAMEWORKS.get(self.framework or self.recorded_by, _NO_FRAMEWORK)

    @property
    def _instead(self) -> str:
        """What a recorder of the script's own replaces."""
        return "Diagnostics" if self.recorded_by in FRAMEWORKS else f"pyddpdiag {self.recorded_by}"

    def share_memory(self) -> str:
        """To average in shared memory."""
        return self._cure("--shared-memory auto", 'shared_memory="auto"')

    def compress(self) -> str:
        """To send gradients in 16 bits."""
        return self._cure("--compress bf16", 'compress="bf16"')

    def _cure(self, option: str, argument: str) -> str:
        commands = ("run", "train")
        return (
            f"pyddpdiag {self.recorded_by} {option}"
            if self.recorded_by in commands
            else self._attach(argument)
        )

    def sparse(self) -> str:
        """To send only the rows of an embedding that a batch uses; empty where the script cannot do that."""
        if self._trains:
            return ""
        return (
            "if it is an embedding that no other layer shares, nn.Embedding(..., sparse=True) sends only the rows that "
            "a batch uses (the optimizer must take sparse gradients, as SGD and SparseAdam do)"
        )

    def bucket_cap(self, cap_mb: float) -> str:
        """To get buckets of another size."""
        own = _BUCKETS.get(self.recorded_by)
        return own.format(cap=cap_mb) if own else self.ddp_option(f"bucket_cap_mb={cap_mb:g}")

    def fits(self, option: str) -> bool:
        """Whether a run like this one may also have what this option of `pyddpdiag run` asks for."""
        cures = self.launch.cures
        today = {**cures, **({"--lanes": ""} if self.lanes and "--connections" not in cures else {})}
        return with_options(today, {option: ""}) is not None

    def line(self, option: str, value: str = "") -> str:
        """A line of its own: the command that starts this run again with a cure; empty if it is not known, or has it.

        Args:
            value: for it; empty: it is a flag.
        """
        if self.launch.cures.get(option) == value or not self.fits(option):
            return ""
        line = run_line(self.launch, {option: value}, self.shell)
        return line and f"\n{line}"

    def own_buffers(self) -> str:
        """To leave each rank its own buffers."""
        return self.ddp_option("broadcast_buffers=False")

    def ddp_option(self, option: str) -> str:
        """To make the DDP module with an option of DistributedDataParallel."""
        return self._typed.ddp.format(option=option)

    def accumulate(self, passes: int) -> str:
        """To accumulate the gradients of so many passes without averaging each."""
        return self._typed.accumulate.format(passes=passes) or (
            "Around forward and backward, in all passes of a step but the last: "
            "with ddp.no_sync(): criterion(ddp(x), y).backward()"
        )

    def workers(self, count: str) -> str:
        """To give the loader so many workers."""
        return self._typed.workers.format(count=count)

    def recorder(self, option: str) -> str:
        """To record with this option of `Recorder`."""
        return self._own_recorder(f"Recorder({option})", option)

    def phases(self) -> str:
        """To name parts of the program; the callbacks of frameworks name evaluations and checkpoints."""
        return self._own_recorder("recorder.phase(...)" + " of a recorder" * bool(self.recorded_by), "")

    def _own_recorder(self, own: str, option: str) -> str:
        callback = self._typed.callback.format(options=option)
        if callback and (option or self.recorded_by == "run"):
            return callback + (", in place of pyddpdiag run," if self.recorded_by == "run" else "")
        return f"{own} in the script, in place of {self._instead}," if self.recorded_by else own

    def uneven(self) -> str:
        """To train on with ranks that have no more batches, or to give all of them equally many."""
        equal = "Give every rank the same number of batches (DistributedSampler(..., drop_last=True))"
        join = self._typed.uneven
        if join == "" or self._trains:
            return f"{equal}."
        join = join or "from torch.distributed.algorithms.join import Join\nwith Join([ddp]):"
        return (
            f"{equal}, or let a rank without more batches take part in the others' steps, around the loop over batches:"
            f"\n{join}"
        )

    def every_rank(self) -> str:
        """To record all ranks."""
        if self.recorded_by == "run":
            return "pyddpdiag run around the command on every node"
        return "the recorder attached to the model on every rank (recorder.attach)"

    @property
    def _trains(self) -> bool:
        return self.recorded_by == "train"

    def _attach(self, options: str) -> str:
        attach = f"recorder.attach(ddp, {options})"
        if not self.recorded_by:
            return attach
        return (
            f'recorder = pyddpdiag.Recorder("DIR"); {attach} after DistributedDataParallel(...), in place of '
            f"{self._instead},"
        )


def run_line(launch: Launch, wanted: Mapping[str, str], shell: Shell) -> str:
    """The command that starts a run again with other options, to paste; empty: it is not known, or cannot have them.

    Args:
        wanted: options of `pyddpdiag run` with their values, beside those that it had; "" for a flag.
    """
    cures = with_options(launch.cures, wanted)
    if not launch.command or cures is None:
        return ""
    words = [word for pair in {**launch.start, **cures}.items() for word in pair if word]
    return write(Command(("pyddpdiag", "run", *words, "--", *launch.command)), shell)


def advice_for(sidecars: Iterable[Sidecar]) -> Advice:
    """The advice for a run with these sidecars."""
    known = list(sidecars)
    lanes = any(group.lanes for one in known for group in one.groups.values())
    first = next((one for one in known if one.recorded_by), None)
    if first is None:
        return Advice(lanes=lanes)
    return Advice(
        first.recorded_by, first.launch or Launch(), shell_on(first.platform), lanes, first.framework
    )
