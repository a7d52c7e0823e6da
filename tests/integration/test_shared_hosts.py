"""Several hosts of several ranks each that average their gradients in shared memory and over Gloo."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support import added_up
from support.models import batch, branches
from support.own_hosts import only_own_host
from support.ranks import run_ranks
from support.trained import train
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

# Rank R is on host HOSTS[R]. Not in order, as a launcher need not have it.
HOSTS = [0, 1, 1, 0]
THREE = [0, 1, 1, 2, 0, 2]
KILL = 9  # Windows has no name for it


def _addend(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)


COUNTS = (1, 1000, 16384, 16385, 300_001)


def _sums(rank: int, _: int) -> dict[tuple[str, int], tuple[bool, bytes]]:
    """Whether each sum is (0 + 3) + (1 + 2), and its bits."""
    only_own_host(rank, HOSTS)
    answers = {}
    for turn in range(2):  # run to run
        ranks = added_up.shared()
        number = 0
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for count in COUNTS:
                buffer = _addend(rank, dtype, count)
                added_up.add_up(ranks, buffer, number)
                number += 1
                x = [_addend(other, dtype, count) for other in range(4)]
                same = torch.equal(buffer, (x[0] + x[3]) + (x[1] + x[2]))
                bits = buffer.view(torch.uint8).numpy().tobytes()
                known = answers.setdefault((str(dtype), count), (same, bits))
                assert known == (same, bits), turn
    return answers


def test_the_bits_are_those_of_the_hosts_sums(tmp_path: Path) -> None:
    answers = run_ranks(_sums, 4, tmp_path)
    assert len(answers[0]) == 4 * len(COUNTS)
    for key, (same, _) in answers[0].items():
        assert same, key
    assert all(answer == answers[0] for answer in answers)


def _sums_of_three(rank: int, _: int) -> list[tuple[bool, bytes]]:
    """Whether each sum is that of the hosts' in f32, rounded once, and its bits."""
    only_own_host(rank, THREE)
    ranks = added_up.shared()
    answers = []
    for number, dtype in enumerate((torch.float16, torch.bfloat16)):
        buffer = _addend(rank, dtype, 300_001)
        added_up.add_up(ranks, buffer, number)
        x = [_addend(other, dtype, 300_001) for other in range(6)]
        hosts = [(x[0] + x[4]).float(), (x[1] + x[2]).float(), (x[3] + x[5]).float()]
        same = torch.equal(buffer, (hosts[0] + hosts[1] + hosts[2]).to(dtype))
        answers.append((same, buffer.view(torch.uint8).numpy().tobytes()))
    return answers


def test_16_bit_sums_of_three_hosts_are_rounded_once(tmp_path: Path) -> None:
    answers = run_ranks(_sums_of_three, 6, tmp_path)
    assert all(same for same, _ in answers[0])
    assert all(answer == answers[0] for answer in answers)


def _different(rank: int, _: int) -> str:
    only_own_host(rank, HOSTS)
    ranks = added_up.shared()
    added_up.add_up(ranks, torch.ones(300_000), 0)
    try:
        added_up.add_up(ranks, torch.ones(300_000 + HOSTS[rank]), 1)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_hosts_that_bring_different_buckets_are_both_named(tmp_path: Path) -> None:
    texts = run_ranks(_different, 4, tmp_path)
    for text in texts:
        assert "the ranks do not bring the same bucket" in text
        assert "has bucket 1 of the group, 1200000 bytes of float32" in text
        assert "has bucket 1 of the group, 1200004 bytes of float32" in text
    # The one reason that all give, of two ranks that carry the same part: 0 and 1, or 3 and 2.
    assert len(set(texts)) == 1
    assert {f"rank {rank} (" in texts[0] for rank in (0, 1)} != {
        f"rank {rank} (" in texts[0] for rank in (2, 3)
    }


def _ways(rank: int, _: int, folder: str) -> dict[str, list[list[bytes]]]:
    only_own_host(rank, HOSTS)
    bits = {}
    for way in ("attach", "hook", "reducer"):
        bits[way], values, paths = train(rank, way, f"{folder}/{way}", shared_memory="require")
        _, expected, _ = train(rank, way, f"{folder}/{way}-gloo")
        torch.testing.assert_close(values, expected)
        assert paths == {(True, False)}
    return bits


def test_trains_on_two_hosts(tmp_path: Path) -> None:
    answers = run_ranks(_ways, 4, tmp_path, str(tmp_path))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["attach"] == answers[0]["hook"]


def _without(
    rank: int, _: int, folder: str, signal_number: int, options: dict[str, Any]
) -> tuple[str, float]:
    """Rank 2 gets the signal in the middle of training. What the others say, and how long after that in seconds."""
    only_own_host(rank, HOSTS)
    at = Path(folder, "at")
    done = Path(folder, f"done-{rank}")
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    recorder = pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1)
    recorder.attach(ddp, shared_memory="require", **options)
    processes: list[int] = [0] * 4
    dist.all_gather_object(processes, os.getpid())
    answer = ("no error", 0.0)
    try:
        for step in range(100_000):
            if rank == 2 and step == 5:
                at.write_text(repr(time.monotonic()))
                os.kill(os.getpid(), signal_number)
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
    except RuntimeError as error:
        answer = (str(error), time.monotonic() - float(at.read_text()))
    done.touch()
    if rank == 0:
        while len(list(Path(folder).glob("done-*"))) < 3:
            time.sleep(0.01)
        if signal_number != KILL:
            os.kill(processes[2], KILL)
    return answer


@pytest.mark.parametrize("options", [{}, {"compress": "bf16"}], ids=["", "in 16 bits"])
def test_a_killed_rank_is_named_on_all_hosts(tmp_path: Path, options: dict[str, Any]) -> None:
    answers = run_ranks(_without, 4, tmp_path, str(tmp_path), KILL, options, lost=frozenset({2}))
    for rank in (0, 1, 3):
        text, seconds = answers[rank]
        assert "rank 2 (process " in text, text
        assert "has ended in the middle of training" in text
        assert seconds < 2


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
def test_a_stopped_rank_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    answers = run_ranks(
        _without, 4, tmp_path, str(tmp_path), signal.SIGSTOP, {}, lost=frozenset({2}), group_timeout_s=8
    )
    for rank in (0, 1, 3):
        text, seconds = answers[rank]
        assert "waited 8 s for rank 2 (process " in text, text
        assert seconds < 12
