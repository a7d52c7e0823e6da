"""Which process this is, for those who ask in every step: a call of the system costs them more than all else."""

from __future__ import annotations

import os

process = os.getpid()
"""Its number; in a forked child the child's."""


def _is_child() -> None:
    global process
    process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_is_child)
