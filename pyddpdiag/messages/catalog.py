"""The catalog of all messages. Where several fit one line, the first one here counts: special before general."""

from __future__ import annotations

from typing import Final

from pyddpdiag.messages import (
    collectives,
    connecting,
    crashes,
    elastic,
    memory,
    models,
    spawning,
    starting,
    surroundings,
    wrapping,
)
from pyddpdiag.messages.message import Message

CATALOG: Final[tuple[Message, ...]] = (
    *memory.MESSAGES,
    *surroundings.MESSAGES,
    *elastic.MESSAGES,
    *spawning.MESSAGES,
    *models.MESSAGES,
    *wrapping.MESSAGES,
    *starting.MESSAGES,
    *connecting.MESSAGES,
    *collectives.MESSAGES,
    # Of an abort, what the native code says counts.
    *crashes.MESSAGES,
)
