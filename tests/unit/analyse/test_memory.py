"""Memory that grows until none is left, and memory that only grows for a while."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.usage import growth, lasting
from pyddpdiag.model.memory import Memory

Level = Callable[[Float64], Float64]

GB, S = 10**9, 10**9
FREE = 20 * GB
SPAN_S = 600


def read(level: Level, seed: int, workers: float = 0.0) -> Memory:
    """Readings of 10 minutes of what `level` says for shares of the time, in GB beyond 1 GB."""
    share = np.linspace(0.0, 1.0, 240)
    taken = GB * (1.0 + level(share)) + np.abs(np.random.default_rng(seed).normal(0.0, 2e6, len(share)))
    of_workers = workers * taken
    return Memory(
        tuple((share * SPAN_S * S).astype(np.int64).tolist()),
        tuple((taken - of_workers).astype(np.int64).tolist()),
        tuple(of_workers.astype(np.int64).tolist()),
        tuple((FREE - (taken - GB)).astype(np.int64).tolist()),
        24 * GB,
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("level", "gb_per_s", "from_begin"),
    [
        pytest.param(lambda t: 2.0 * t, 2.0 / SPAN_S, True, id="a leak"),
        pytest.param(lambda t: 2.0 * t**1.5, 2.7 / SPAN_S, True, id="one that becomes faster"),
        pytest.param(lambda t: 2.0 * np.floor(40 * t) / 40, 2.0 / SPAN_S, True, id="in stairs"),
        pytest.param(lambda t: 4.0 * np.maximum(0.0, t - 0.4), 4.0 / SPAN_S, False, id="from some moment on"),
        pytest.param(
            lambda t: 3.0 * np.minimum(t, 0.1) + 2.0 * np.maximum(0.0, t - 0.1),
            2.0 / SPAN_S,
            True,
            id="after a start",
        ),
    ],
)
def test_memory_that_grows_is_measured(level: Level, gb_per_s: float, from_begin: bool, seed: int) -> None:
    found = growth(read(level, seed=seed, workers=0.75))
    assert found is not None and found.from_begin == from_begin and not found.ends
    assert found.per_ns * S / GB == pytest.approx(gb_per_s, rel=0.25)
    assert found.workers == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "level",
    [
        pytest.param(lambda t: 0.0 * t, id="none"),
        pytest.param(lambda t: 0.1 * t, id="less than it matters"),
        pytest.param(lambda t: 3.0 * np.minimum(1.0, 3.0 * t), id="a data set that is read"),
        pytest.param(lambda t: 3.0 * (1.0 - np.exp(-4.0 * t)), id="a cache that fills"),
        pytest.param(lambda t: 3.0 * (1.0 - np.exp(-2.0 * t)), id="a cache that fills slowly"),
        pytest.param(lambda t: 2.0 * (6 * t % 1.0), id="epochs"),
        pytest.param(lambda t: 2.0 * np.sin(12.0 * t) ** 2, id="up and down"),
        pytest.param(lambda t: 2.0 - 2.0 * t, id="less and less"),
    ],
)
def test_memory_that_levels_off_is_no_leak(level: Level, seed: int) -> None:
    found = growth(read(level, seed=seed))
    assert found is None or not lasting({0: found})


@pytest.mark.parametrize("seed", range(3))
def test_what_each_step_keeps_grows_though_steps_become_longer(seed: int) -> None:
    """By time it levels off, and with the steps it does not."""
    memory = read(lambda share: 3.0 * np.sqrt(share), seed=seed)
    ended = (SPAN_S * S * np.linspace(0.0, 1.0, 400) ** 2).astype(np.int64)
    by_time, by_steps = growth(memory), growth(memory, ended)
    assert by_time is not None and by_time.ends
    assert by_steps is not None and not by_steps.ends and by_steps.from_begin


def test_ranks_that_grow_alike_are_named_together() -> None:
    steady, slower = (
        growth(read(lambda t: 3.0 * t, seed=0)),
        growth(read(lambda t: 4.5 * t - 1.0 * t**2, seed=1)),
    )
    cache = growth(read(lambda t: 3.0 * (1.0 - np.exp(-2.0 * t)), seed=2))
    assert steady is not None and slower is not None and cache is not None
    assert (steady.ends, slower.ends, cache.ends) == (False, True, True)
    assert set(lasting({0: steady, 1: slower, 2: cache})) == {0, 1}
    assert not lasting({1: slower, 2: cache})


def test_of_a_damaged_trace_nothing_need_be_in_order() -> None:
    memory, order = read(lambda t: 3.0 * t, seed=0), np.random.default_rng(0).permutation(240)
    mixed = replace(
        memory,
        at_ns=tuple(memory.at_ns[place] for place in order),
        own=tuple(memory.own[place] for place in order),
    )
    ended = np.random.default_rng(1).permutation(np.linspace(0, SPAN_S * S, 400).astype(np.int64))
    for found in (growth(mixed), growth(mixed, ended), growth(memory, ended)):
        assert found is not None and found.per_ns * S / GB == pytest.approx(3.0 / SPAN_S, rel=0.25)


def test_no_readings_say_nothing() -> None:
    assert growth(Memory()) is None
