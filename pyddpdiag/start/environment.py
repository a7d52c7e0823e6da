"""The variables of launchers and of `pyddpdiag run` as Python found them: a script may remove them before it trains."""

from __future__ import annotations

import os
from typing import Final

_OURS: Final = ("PYDDPDIAG_", "TORCHELASTIC_")
_kept: dict[str, str] = {}


def keep() -> None:
    """Remembers them. Called before the script."""
    _kept.update({name: value for name, value in os.environ.items() if name.startswith(_OURS)})


def get(name: str, default: str = "") -> str:
    """The variable's value now; where it is gone, the one that was kept."""
    return os.environ.get(name, _kept.get(name, default))
