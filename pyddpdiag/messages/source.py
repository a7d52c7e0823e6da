"""Where in its own code Gloo or torch found an error, which their texts begin with."""

from __future__ import annotations

import re
from typing import Final

_SOURCE: Final = re.compile(r"\[[^\[\]]*\.(?:cc|cpp|h):\d+\]\s*")


def without_source(text: str) -> str:
    """The text of an error without these places."""
    return _SOURCE.sub("", text)
