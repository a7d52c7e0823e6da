"""Arrays without elements, of which a rank that recorded little has dozens: all ranks share them.

An array takes 130 bytes even if it is empty, and a run may have 16,384 ranks.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np


class Empty:
    """The empty arrays that were seen, each once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[np.dtype[Any], tuple[int, ...]], np.ndarray[Any, Any]] = {}

    def shared(self, part: Any) -> Any:
        """The same, where every empty array in it is the one that others have as well.

        Args:
            part: an array, or a dataclass or dictionary with such parts; anything else is given back as it is.
        """
        if isinstance(part, np.ndarray):
            return part if part.size else self._seen.setdefault((part.dtype, part.shape), part)
        if isinstance(part, dict):
            return {key: self.shared(value) for key, value in part.items()}
        if is_dataclass(part) and not isinstance(part, type):
            return replace(
                part, **{each.name: self.shared(getattr(part, each.name)) for each in fields(part)}
            )
        return part
