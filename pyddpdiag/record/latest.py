"""The open recorders of this process: a hook that was registered without one finds the latest here."""

from __future__ import annotations

import weakref

from pyddpdiag.record.recording import Recording

# Oldest first.
_open: list[weakref.ref[Recording]] = []


def opened(recorder: Recording) -> None:
    """Note a recorder that was opened."""
    _open.append(weakref.ref(recorder))


def closed(recorder: Recording) -> None:
    """Forget a recorder, and those that are gone."""
    _open[:] = [reference for reference in _open if reference() not in (None, recorder)]


def latest_open() -> Recording | None:
    """The recorder of this process that was opened last and is still open."""
    for reference in reversed(_open):
        recorder = reference()
        if recorder is not None and not recorder.closed and recorder.is_ours():
            return recorder
    return None
