"""The catalog of all messages. Where several fit one line, the first one here counts: special before general."""

from __future__ import annotations

from typing import Final

from pyddpdiag.messages import collectives, models, starting, surroundings
from pyddpdiag.messages.message import Message

CATALOG: Final[tuple[Message, ...]] = (
    *surroundings.MESSAGES,
    *models.MESSAGES,
    *starting.MESSAGES,
    *collectives.MESSAGES,
)
