"""A cable between two TAP devices that delays and loses frames: `python relay.py FIRST SECOND` (Linux, root).

It makes the devices and prints `ready`. Each line on its standard input, `MILLISECONDS PERCENT`, sets the delay and the
loss of either direction; it ends with its standard input.
"""

from __future__ import annotations

import os
import random
import selectors
import struct
import sys
import time
from collections import deque

_SET_INTERFACE = 0x400454CA  # TUNSETIFF
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_MOST = 65536


def tap(name: str) -> int:
    """A file descriptor of a new TAP device."""
    import fcntl

    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return file


def main(first: str, second: str) -> None:
    ends = (tap(first), tap(second))
    to = {ends[0]: ends[1], ends[1]: ends[0]}
    crossing: deque[tuple[float, int, bytes]] = deque()
    delay_s = loss = 0.0
    chance = random.Random(1)
    chosen = selectors.DefaultSelector()
    for file in (*ends, sys.stdin.fileno()):
        chosen.register(file, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        wait = max(0.0, crossing[0][0] - time.monotonic()) if crossing else None
        for key, _ in chosen.select(wait):
            if key.fd == sys.stdin.fileno():
                line = os.read(key.fd, 4096).decode()
                if not line:
                    return
                ms, percent = line.splitlines()[-1].split()
                delay_s, loss = float(ms) / 1000, float(percent) / 100
                continue
            due = time.monotonic() + delay_s
            for _ in range(64):
                try:
                    frame = os.read(key.fd, _MOST)
                except BlockingIOError:
                    break
                except OSError:
                    break  # the device is down, as before it is set up
                if chance.random() >= loss:
                    crossing.append((due, to[key.fd], frame))
        now = time.monotonic()
        while crossing and crossing[0][0] <= now:
            _, file, frame = crossing.popleft()
            try:
                os.write(file, frame)
            except OSError:
                pass  # its queue is full, or it is down: a frame lost, as on any cable


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
