"""Which events are looked at, and in which process."""

from __future__ import annotations

import os

import pytest

from pyddpdiag.record import forks
from pyddpdiag.record.sampled import is_sampled, next_sampled


def test_the_next_one_is_the_next_one() -> None:
    seen, number = [], 0
    while number < 5000:
        number = next_sampled(number)
        seen.append(number)
    assert seen == [each for each in range(1, number + 1) if is_sampled(each)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked on Windows")
def test_a_forked_child_knows_that_it_is_another_process() -> None:
    assert forks.process == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if forks.process == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0
