"""All ranks become slower in a part of the run: found with its steps and cause; a run that varies is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.processor_use import NOTHING, Extra, write
from support.reported import findings, report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.findings import Finding

LATER = range(40, 80)


def slower(found: list[Finding]) -> Finding:
    (one,) = (each for each in found if each.kind == "slower_steps")
    return one


@pytest.mark.parametrize(
    ("extra", "cause", "confidence"),
    [
        (Extra(cpu=40), "compute", "medium"),
        # Shared caches make work take up to half as long again, where the machine is busy.
        (Extra(cpu=18), "compute", "low"),
        (Extra(sleep=40), "blocked", "medium"),
        (Extra(delay=40), "core", "low"),
        (Extra(cpu=30, delay=100), "compute", "medium"),
        (Extra(sleep=14, delay=12), "blocked", "medium"),
    ],
)
def test_all_ranks_that_become_slower_have_the_step_and_the_cause(
    tmp_path: Path, extra: Extra, cause: str, confidence: str
) -> None:
    write(tmp_path, [replace(extra, steps=LATER)] * 2, steps=80, load=4.0, cores=2)
    found = slower(findings(tmp_path))
    assert (found.rank, found.cause, found.confidence) == (None, cause, confidence)
    assert (found.since_step, found.until_step) == (40, None)
    # The trace knows when that was; each step loses what it takes more, without what other programs take.
    of_itself = extra.at(0) - (extra.delay if cause != "core" else 0.0)
    assert found.cost_s == pytest.approx(40 * of_itself / 1e3, rel=0.1)
    assert found.evidence["own_before_ms"] == pytest.approx(30, rel=0.1)
    assert found.evidence["own_ms"] == pytest.approx(30 + of_itself, rel=0.1)
    assert isinstance(found.evidence["since_time"], str)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (range(30, 60), "in steps 30 to 59"),
        (range(1, 40), "in steps 1 to 39"),
        (range(50, 80), "from step 50 on"),
    ],
)
def test_a_stretch_has_its_end(tmp_path: Path, steps: range, said: str) -> None:
    write(tmp_path, [Extra(sleep=25, steps=steps)] * 3, steps=80)
    found = slower(findings(tmp_path))
    assert f"all ranks are slower {said}: " in found.message
    assert (found.since_step, found.until_step) == (steps[0], None if steps[-1] == 79 else steps[-1])


def test_one_rank_that_becomes_slower_is_late_and_the_others_are_not_slower(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(sleep=40, steps=LATER), NOTHING], steps=80)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.since_step) == ("late_rank", 1, 40)


@pytest.mark.parametrize(
    ("cpu_ms", "steps", "confidence"),
    [(18, range(40, 80), "low"), (60, range(40, 80), "medium"), (18, range(80, 120), "low")],
)
def test_a_rank_that_computes_for_longer_for_a_while_may_have_a_neighbour(
    tmp_path: Path, cpu_ms: float, steps: range, confidence: str
) -> None:
    """On an idle virtual machine, a core took up to 1.8 times as long for 2 to 3 s at a time."""
    write(tmp_path, [NOTHING, Extra(cpu=cpu_ms, steps=steps), NOTHING], steps=120)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause, found.confidence) == ("late_rank", 1, "compute", confidence)


def own_times(folder: Path, own: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[Finding]:
    """Ranks with these own times in ms: [steps, ranks]."""
    writers = [RankWriter(rank, own.shape[1]) for rank in range(own.shape[1])]
    now = 10**9
    for step, times in enumerate(own):
        arrived = now + int(times.max() * MS)
        for writer, mine in zip(writers, times.tolist(), strict=True):
            writer.step(step, now, now, arrived + MS)
            writer.backward(step, now, now + int(mine * MS), arrived + MS)
            writer.bucket(step, now + int(mine * MS), arrived, arrived + MS)
        now = arrived + MS
    return [one for one in report_of(writers, folder).verdict.findings if one.kind == "slower_steps"]


def test_a_run_that_becomes_slower_bit_by_bit_is_said_to(tmp_path: Path) -> None:
    own = 20 + np.arange(100.0)[:, None] * 0.4 + np.random.default_rng(0).normal(0, 0.5, (100, 2))
    (found,) = own_times(tmp_path, own)
    assert "and more and more" in found.message and found.evidence["grows"] == 1


def test_steps_that_vary_are_no_change(tmp_path: Path) -> None:
    """Heavy tails, inputs of two lengths in turn, and slow stretches of a few steps."""
    random = np.random.default_rng(1)
    found = 0
    for run in range(40):
        own = 20 * random.lognormal(0, 0.3, (100, 2))
        if run % 4 == 1:
            own = own * random.choice([1.0, 2.5], (100, 1))
        elif run % 4 == 2:
            own[40:50] *= 3.0
        elif run % 4 == 3:
            # Noise that lasts: each step resembles the one before.
            walk = np.convolve(random.normal(0, 0.1, 104), np.ones(5), "valid")
            own = own * np.exp(walk)[:, None]
        found += len(own_times(tmp_path / str(run), own))
    assert found == 0


@pytest.mark.parametrize(
    ("threads", "delay", "confidence"), [(2, 40.0, "low"), (2, 0.0, "medium"), (1, 40.0, "medium")]
)
def test_threads_that_may_spin_for_want_of_a_core_are_no_sure_change_of_the_work(
    tmp_path: Path, threads: int, delay: float, confidence: str
) -> None:
    extra = Extra(cpu=60, delay=delay, steps=LATER)
    write(tmp_path, [extra] * 2, steps=80, load=1.0, cores=2, threads=[threads] * 2)
    found = slower(findings(tmp_path))
    assert (found.cause, found.confidence) == ("compute", confidence)
    assert ("OMP_NUM_THREADS" in str(found.advice)) == (confidence == "low")
    assert ("spin" in found.message) == (confidence == "low")


def test_what_shows_only_with_the_wait_for_a_core_is_no_sleep_of_all_ranks(tmp_path: Path) -> None:
    """They sleep a little more as well, which is no change by itself: other programs may have made it."""
    write(tmp_path, [Extra(sleep=7.2, delay=7, steps=LATER)] * 2, steps=80, load=4.0, cores=2)
    found = slower(findings(tmp_path))
    assert (found.cause, found.confidence) == (None, "low")
    assert found.evidence["core_wait_share"] == pytest.approx(7 / 14.2, abs=0.05)


@pytest.mark.parametrize("call", ["torch.optim.adam._single_tensor_adam", "torch.cat"])
def test_an_optimizer_that_takes_longer_may_have_denormal_numbers(tmp_path: Path, call: str) -> None:
    """Measured: AdamW over 3.4 million parameters, half of whose averages are denormal, takes 65 ms in place of 25."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now, computed = 10**9, 0
    for step in range(80):
        own = 70 if step >= 40 else 30
        computed += own
        for writer in writers:
            for at in range(0, own, 5):
                line = 8 if at < 25 else 9
                writer.look(now + at * MS, ("train.py", line, "main"), call if line == 9 else "torch.relu")
            writer.step(step, now, now, now + (own + 3) * MS)
            writer.backward(step, now, now + own * MS, now + (own + 3) * MS)
            writer.bucket(step, now + own * MS, now + own * MS, now + (own + 3) * MS)
            writer.usage(step, now + (own + 3) * MS, computed * MS, 0)
        now += (own + 3) * MS
    found = slower(report_of(writers, tmp_path).verdict.findings)
    assert found.where == "train.py:9 in main" and found.cause == "compute"
    assert ("torch.set_flush_denormal(True)" in found.advice) is call.startswith("torch.optim.")
