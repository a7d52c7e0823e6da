"""Notes of the processes below `pyddpdiag run`, for lines on why nothing is recorded, or was.

A process leaves a note when it loads DistributedDataParallel, joins a process group, makes such a module, calls it, or
steps an optimizer, each time the first one; while it is in the call by which it joins; when an exception ends it before
anything is recorded, and when it made a module and never called it. What only a note needs is imported then: every
Python process below the command loads this.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pyddpdiag.output import clean
from pyddpdiag.start import environment

NOTES: Final = "PYDDPDIAG_RUN_NOTES"
"""The environment variable that names the folder of the notes."""

LOADED, JOINED, CALLED, STEPPED = "loaded", "joined", "called", "stepped"
"""DistributedDataParallel is there; a process group is; such a module is called; an optimizer has stepped."""

_JOINING, _MADE, _UNCALLED, _ERROR = "joining", "made", "uncalled", "error"
_LIMIT: Final = 300

# What a launcher says of its ranks is never the cause.
_SUMMARIES: Final = (
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "CalledProcessError",
)


class Watch:
    """What one process notes. Nothing here may end or disturb the script."""

    def __init__(self) -> None:
        self._done: set[str] = set()

    def arrange(self, fails: Callable[[str], None]) -> None:
        """Notes the exception that ends this process. Once per process, before its script.

        Args:
            fails: gets what the exception was and its line.
        """
        if not environment.get(NOTES):
            return
        before = sys.excepthook

        @functools.wraps(before)
        def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            if not self.called and not isinstance(error, KeyboardInterrupt):
                _write_error(error)
            with suppress(Exception):
                fails(_said(_described(error)))

        sys.excepthook = note

    @property
    def knows_modules(self) -> bool:
        """Whether this process has made a DDP module."""
        return _MADE in self._done

    @property
    def called(self) -> bool:
        """Whether this process has called one."""
        return CALLED in self._done

    def note(self, kind: str, **content: str) -> None:
        """What has happened, if it is the first time; `JOINED` with its `backend`."""
        if kind not in self._done:
            self._done.add(kind)
            _write(kind, content)

    @contextmanager
    def joins(self, world_size: int) -> Iterator[None]:
        """It calls `init_process_group`, which waits for other ranks; `world_size`: -1: not known."""
        with suppress(Exception):
            from pyddpdiag.record.script_lines import line_of_frame

            size = f"world_size={world_size}" if world_size > 0 else ""
            line = line_of_frame(sys._getframe())
            _write(_JOINING, {"where": f"init_process_group({size}){f' at {line}' if line else ''}"})
        try:
            yield
        finally:
            _remove(_JOINING)

    def made(self) -> None:
        """A DistributedDataParallel module was made."""
        if not self.knows_modules:
            from multiprocessing import util

            self.note(_MADE)
            util.Finalize(None, self._ends, exitpriority=0)

    def _ends(self) -> None:
        error = sys.exc_info()[1]  # of a process of multiprocessing, which has no hook for it
        if isinstance(error, SystemExit) and error.code not in (None, 0):
            error = error.__context__ if isinstance(error.__context__, Exception) else None
        if isinstance(error, Exception) and not self.called:
            _write_error(error)
        if not self.called:
            _write(_UNCALLED, {})


def _described(error: BaseException) -> dict[str, Any]:
    from pyddpdiag.record.script_lines import line_of_error

    first = next(iter(str(error).strip().splitlines()), "")
    return {"error": type(error).__name__, "message": first[:_LIMIT], "where": line_of_error(error)}


def _write_error(error: BaseException) -> None:
    with suppress(Exception):
        from pyddpdiag.record.last_words import explained

        _write(_ERROR, {**_described(error), "hint": str(explained(error) or "")})


def _write(kind: str, content: dict[str, Any]) -> None:
    if path := _path(kind):
        with suppress(Exception):
            import json

            path.write_text(json.dumps({**content, "at": time.time()}), encoding="utf-8")


def _remove(kind: str) -> None:
    if path := _path(kind):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _path(kind: str) -> Path | None:
    folder = environment.get(NOTES)
    return Path(folder, f"{kind}_{os.getpid()}.json") if folder else None


@dataclass(frozen=True)
class Early:
    """What the processes noted: `error` is of the first that failed by itself, `hint` what the catalog knows of it.

    How many of them know DDP (`loaded`), are in a process group (`groups`, with their `backends`), have `made` a DDP
    module, and had an optimizer that `stepped`; whether one has `called` such a module, or ended with one `uncalled`.
    `joining`: the call by which a process joins a group, of each that is in it.
    """

    error: str = ""
    hint: str = ""
    uncalled: bool = False
    loaded: int = 0
    joining: tuple[str, ...] = ()
    groups: int = 0
    backends: tuple[str, ...] = ()
    made: int = 0
    called: bool = False
    stepped: int = 0


def read(folder: Path) -> Early:
    """The notes in a folder."""
    errors = []
    for raw in _contents(folder, _ERROR):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            errors.append((raw["error"] in _SUMMARIES, float(raw["at"]), _said(raw), str(raw["hint"])))
    backends = {clean(str(raw.get("backend", "")), 32) for raw in _contents(folder, JOINED)} - {""}
    own = min((one for one in errors if not one[0]), default=None)
    return Early(
        error=own[2] if own is not None else "",
        hint=own[3] if own is not None else "",
        uncalled=any(folder.glob(f"{_UNCALLED}_*.json")),
        loaded=_count(folder, LOADED),
        joining=tuple(clean(str(raw.get("where", "")), _LIMIT) for raw in _contents(folder, _JOINING)),
        groups=_count(folder, JOINED),
        backends=tuple(sorted(backends)),
        made=_count(folder, _MADE),
        called=_count(folder, CALLED) > 0,
        stepped=_count(folder, STEPPED),
    )


def _count(folder: Path, kind: str) -> int:
    return sum(1 for _ in folder.glob(f"{kind}_*.json"))


def _contents(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """What the notes of this kind say; one that is being written may be cut."""
    import json

    for path in folder.glob(f"{kind}_*.json"):
        with suppress(OSError, ValueError, TypeError):
            yield dict(json.loads(path.read_text(encoding="utf-8")))


def _said(raw: dict[str, Any]) -> str:
    text = f": {raw['message'].rstrip('.')}" if raw["message"] else ""
    where = f", at {raw['where']}" if raw["where"] else ""
    return clean(f"{raw['error']}{text}{where}", 2 * _LIMIT)


def why_nothing(early: Early, exit_code: int) -> str:
    """Why nothing was recorded, in a sentence or two; below it a hint, where the catalog of messages has one."""
    from pyddpdiag.messages.exit_codes import shown
    from pyddpdiag.model.words import count, listed

    if early.error and exit_code:
        code, hint = shown(exit_code), f"\n{early.hint}" if early.hint else ""
        ended = f"the command ended with exit code {code} before any module had trained"
        return f"{ended}, by {early.error}.{hint}"
    if early.uncalled:
        return (
            "a DistributedDataParallel module was made, and its forward never called. Call the module itself: "
            "ddp(batch), and not ddp.module(batch), which reduces no gradients."
        )
    if exit_code:
        code = shown(exit_code)
        return (
            f"the command ended with exit code {code} before any module had trained. Its own output says why."
        )
    if early.stepped and not early.groups:
        return (
            f"{count(early.stepped, 'process', 'processes')} trained in no process group. Start the ranks together: "
            "torchrun --nproc-per-node 2 SCRIPT. (`accelerate launch --cpu` starts one process, whatever "
            "--num_processes says.)"
        )
    if early.stepped and early.groups and not early.made:
        return (
            f"{count(early.stepped, 'process', 'processes')} trained in a process group"
            f"{f' ({listed(early.backends)})' if early.backends else ''}, and made no DistributedDataParallel "
            "module. Where the script averages gradients itself (dist.all_reduce of each), wrap the model: "
            "ddp = DistributedDataParallel(model) does so in buckets, beside the backward pass."
        )
    if early.loaded:
        return "no DistributedDataParallel module trained over Gloo."
    return (
        "no DistributedDataParallel module trained over Gloo in a Python that has pyddpdiag installed and heeds "
        "PYTHONPATH (python -I and -E do not)."
    )
