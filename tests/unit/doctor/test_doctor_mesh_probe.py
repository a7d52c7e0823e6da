"""How fast a link is, on a machine whose cores are busy with other work."""

from __future__ import annotations

import itertools
import socket
import threading
import time

from pyddpdiag.doctor.mesh import probe

# What a block waits for a core, once.
STALL_S = 0.25


def test_a_block_that_waits_for_a_core_does_not_make_its_link_slow() -> None:
    ours, theirs = socket.socketpair()
    blocks = []

    def answer() -> None:
        with theirs:
            probe._exactly(theirs, probe._FIRST)
            theirs.sendall(b"1")
            for place in itertools.count():
                try:
                    blocks.append(len(probe._exactly(theirs, probe._BLOCK)))
                except OSError:
                    return
                if place == 2:
                    time.sleep(STALL_S)
                theirs.sendall(b"1")

    other = threading.Thread(target=answer)
    other.start()
    begin = time.perf_counter()
    with ours:
        rate = probe._write(ours)
    elapsed = time.perf_counter() - begin
    other.join(60)
    assert len(blocks) >= 3 and elapsed > STALL_S
    # The mean of all of them; the median does not know the one that waited.
    assert rate > 2 * sum(blocks) * 8 / elapsed / 1e6
