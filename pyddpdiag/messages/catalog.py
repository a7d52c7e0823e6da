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
    otherwise,
    spawning,
    starting,
    surroundings,
    wrapping,
)
from pyddpdiag.messages.message import Message

CATALOG: Final[tuple[Message, ...]] = (
    *memory.MESSAGES,
    *crashes.MESSAGES,
    *surroundings.MESSAGES,
    *elastic.MESSAGES,
    *spawning.MESSAGES,
    *models.MESSAGES,
    *wrapping.MESSAGES,
    *starting.MESSAGES,
    *connecting.MESSAGES,
    *collectives.MESSAGES,
    *otherwise.MESSAGES,
)
