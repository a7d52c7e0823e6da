"""One tree of exceptions. Each says what failed, on which rank if that is known, and what to do next."""

from __future__ import annotations


class PyddpdiagError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        message: what failed, in one sentence.
        hint: what to do next; kept apart so that a program may show it its own way.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class NativeModuleError(PyddpdiagError, ImportError):
    """The native module is missing, or was built for another minor version of torch."""


class PackageMissingError(PyddpdiagError, ImportError):
    """A package that only this part of pyddpdiag needs is not installed."""


class RecorderError(PyddpdiagError, RuntimeError):
    """A recorder or hook was used in a way that cannot work."""


class RecorderClosedError(RecorderError):
    """The recorder was closed before this use."""


class AlreadyAttachedError(RecorderError):
    """The DDP module already has a communication hook."""


class NoProcessGroupError(RecorderError):
    """torch.distributed has not been initialised."""


class NotGlooError(RecorderError):
    """The process group does not run this device's collectives over Gloo."""


class GradientError(RecorderError):
    """The sentinel found wrong gradients: not finite, or with different sums on different ranks."""


class SocketsError(PyddpdiagError, OSError):
    """The sockets of this process cannot be listed."""


class TraceExistsError(PyddpdiagError, FileExistsError):
    """The folder already holds a trace of this rank."""


class TraceFolderError(PyddpdiagError, OSError):
    """The trace's folder or file cannot be made or written."""


class TraceError(PyddpdiagError, ValueError):
    """A trace cannot be read: what is wrong with which file."""


class TraceVersionError(TraceError):
    """The trace was written by a format version that this reader doesn't know."""


class ReportFileError(PyddpdiagError, ValueError):
    """A saved report cannot be read: what is wrong with it."""


class TrainError(PyddpdiagError, RuntimeError):
    """Training could not be started or did not finish."""


class DataError(TrainError):
    """The training data cannot be used: which file or folder, and what is wrong with it."""


class CheckpointError(TrainError):
    """A checkpoint cannot be written, read, or does not fit the run."""


class RendezvousError(TrainError):
    """The ranks cannot meet: bad --dist-url, stale file, taken port, missing rank."""


class RankFailedError(TrainError):
    """A rank failed or was killed, and the others were ended because of it.

    Args:
        message: the reason with its rank in the first line, one line for each rank that failed as a
            consequence.
        rank: the rank that failed first; None if that is unknown.
        details: its traceback, to be shown before the message; may be empty.
        hint: what to do next.
    """

    def __init__(self, message: str, *, rank: int | None = None, details: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rank = rank
        self.details = details


class DoctorError(PyddpdiagError, RuntimeError):
    """The ranks of a mesh check lost each other."""


class UsageError(PyddpdiagError, ValueError):
    """An argument that cannot be right."""


class FlattenError(UsageError):
    """Tensors that cannot be flattened together, or a buffer that does not fit them."""


class ReductionError(PyddpdiagError, RuntimeError):
    """Gradients that were not averaged: another rank is missing, late, gone, or has other parameters."""


class ResultError(PyddpdiagError, ValueError):
    """A benchmark's result file cannot be read: what is wrong with it."""


class ResultVersionError(ResultError):
    """The result file has a schema version that this reader doesn't know."""


class ResultExistsError(PyddpdiagError, FileExistsError):
    """The result file already exists."""


class ResultWriteError(PyddpdiagError, OSError):
    """A result file cannot be written."""


class RemoteError(PyddpdiagError, OSError):
    """Files cannot be brought to another place, or from there: which, and what the place answered."""


class NotComparableError(PyddpdiagError, ValueError):
    """Results of different models, batches or data types: what differs."""
