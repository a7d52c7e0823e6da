"""What began and what ended while somebody watched a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import brief

KEPT: Final = 6
"""As many are shown."""

GONE: Final = 3
"""A finding is over when so many looks in a row do not have it: near a threshold it comes and goes."""

Key = tuple[str, int | None]


@dataclass(frozen=True)
class _Seen:
    text: str
    missing: int = 0


class Changes:
    """Compares the findings of each look with those of the looks before it."""

    def __init__(self) -> None:
        self._run = ""
        self._active: dict[Key, _Seen] = {}
        self._said: deque[str] = deque(maxlen=KEPT)

    def look(
        self, run_id: str, at_s: float, step: int | None, findings: Sequence[Finding]
    ) -> tuple[str, ...]:
        """What began and ended so far, the latest last; nothing of an earlier run.

        Args:
            run_id: of the run that is being watched.
            at_s: when the look was; seconds since 1970.
            step: the newest step.
            findings: of the look. Notes and what may be chance (`low`) do not count.
        """
        if run_id != self._run:
            self._run, self._active = run_id, {}
            self._said.clear()
        now = {
            (one.kind, one.rank): one
            for one in findings
            if one.severity != "note" and one.confidence != "low"
        }
        at = time.strftime("%H:%M:%S", time.localtime(at_s))
        for key, one in now.items():
            if key not in self._active:
                since = step if one.since_step is None else one.since_step
                begins = "" if since is None else f" since step {since}"
                self._said.append(f"{at}{begins}: {brief(replace(one, since_step=None))}")
            self._active[key] = _Seen(_whom(key))
        for key in [key for key in self._active if key not in now]:
            seen = replace(self._active[key], missing=self._active[key].missing + 1)
            self._active[key] = seen
            if seen.missing == GONE:
                del self._active[key]
                self._said.append(
                    f"{at}" + ("" if step is None else f" step {step}") + f": {seen.text} is over"
                )
        return tuple(self._said)


def _whom(key: Key) -> str:
    kind, rank = key
    return kind + ("" if rank is None else f" of rank {rank}")
