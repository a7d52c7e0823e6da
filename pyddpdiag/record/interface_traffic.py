"""What the machine's network interfaces carry, of all programs together."""

from __future__ import annotations

import psutil


class InterfaceTraffic:
    """Counts from when it is made; `now` returns what has been added since."""

    def __init__(self) -> None:
        self._begin = _counts()

    def now(self) -> dict[str, dict[str, int]]:
        """As `traffic` in the sidecar; an interface whose counters began again, or that is new, is left out."""
        found = {}
        for name, (sent, received) in _counts().items():
            before = self._begin.get(name)
            if before is not None and sent >= before[0] and received >= before[1]:
                found[name] = {"sent": sent - before[0], "received": received - before[1]}
        return found


def _counts() -> dict[str, tuple[int, int]]:
    try:
        counters = psutil.net_io_counters(pernic=True)
    except (OSError, psutil.Error):
        return {}
    return {name: (each.bytes_sent, each.bytes_recv) for name, each in counters.items()}
