"""Buckets in parts over several interfaces: the bits of one all-reduce, one error for all parts, one set-up."""

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.hooked import complete
from support.ranks import run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.errors import ReductionError, UsageError
from pyddpdiag.paths import beside
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the name of the loopback interface is Linux's")

# One value; less than a chunk for each rank; odd; several segments of Gloo's ring and a rest.
SIZES = (1, 7, 100_003, 1_500_007)
# Divided from 0.3 MiB on, whatever this machine does meanwhile.
DIVIDED = ["lo=100", "lo=300"]


class Sizes(torch.nn.Module):
    """One parameter for each bucket, whose gradients differ from rank to rank and from value to value."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.values = torch.nn.ParameterList(torch.zeros(size, dtype=dtype) for size in SIZES)

    def forward(self, factors: list[torch.Tensor]) -> torch.Tensor:
        """Its gradients are the factors."""
        return torch.stack([(v * f).sum() for v, f in zip(self.values, factors, strict=True)]).sum()


def gradients(ddp: DistributedDataParallel, rank: int, step: int) -> list[bytes]:
    """Of one step; the same for whoever asks."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    dtype = next(ddp.parameters()).dtype
    factors = [torch.randn(size, generator=generator).to(dtype) for size in SIZES]
    ddp.zero_grad()
    ddp(factors).backward()
    return [p.grad.view(torch.uint8).numpy().tobytes() for p in ddp.parameters() if p.grad is not None]


def _bits(rank: int, _: int, folder: str) -> dict[str, bool]:
    same = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        plain = DistributedDataParallel(Sizes(dtype), bucket_cap_mb=0.001)
        plain.register_comm_hook(None, allreduce_hook)
        expected = [gradients(plain, rank, step) for step in range(3)]
        # In its first step DDP has other buckets than after it, so from 3 ranks on other bits.
        afterwards = gradients(plain, rank, 0)
        for way, lanes in {"attach": DIVIDED, "hook": [*DIVIDED, "lo=50"], "measured": ["*", "lo"]}.items():
            name = f"{str(dtype).rpartition('.')[2]}-{way}"
            with pyddpdiag.Recorder(f"{folder}/{name}", capacity_mb=1) as recorder:
                ddp = DistributedDataParallel(Sizes(dtype), bucket_cap_mb=0.001)
                if way == "hook":
                    ddp.register_comm_hook(None, recorder.hook(lanes=lanes))
                else:
                    recorder.attach(ddp, lanes=lanes)
                same[name] = [gradients(ddp, rank, step) for step in range(3)] == expected
                recorder.pause()
                same[f"{name}-paused"] = gradients(ddp, rank, 0) == afterwards
    return same


def collectives(rank: RankTrace) -> set[str]:
    """The names of those that are not in a bucket."""
    return set(complete(rank, Kind.COLLECTIVE)["name"].astype(str).tolist())


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_bits_of_torchs_hook_however_a_bucket_is_divided(ranks: int, tmp_path: Path) -> None:
    for same in run_ranks(_bits, ranks, tmp_path, str(tmp_path), timeout_s=300):
        assert len(same) == 18 and all(same.values()), same
    for rank in open_run(tmp_path / "float32-attach").ranks:
        buckets = complete(rank, Kind.BUCKET)
        # DDP puts neighbours that are small into one bucket.
        assert len(buckets) >= 3 * 2
        assert not (buckets["flags"] & Flag.ERROR).any()
        # The parts of a bucket are no collectives of the program; DDP's own checks and broadcasts are.
        assert "gloo:all_reduce" not in collectives(rank)
        [group] = rank.sidecar.groups.values()
        assert [(lane.interface, lane.mbit) for lane in group.lanes] == [("lo", 100), ("lo", 300)]
        assert [lane.share for lane in group.lanes] == [
            pytest.approx(0.25, abs=0.01),
            pytest.approx(0.75, abs=0.01),
        ]
    for rank in open_run(tmp_path / "float32-measured").ranks:
        # What was measured is none either.
        assert "gloo:all_reduce" not in collectives(rank)


def test_what_gains_too_little_by_a_division_goes_over_one_lane() -> None:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
    backend = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, options)
    own = _native.OwnBackend(backend)
    lanes = _native.Lanes(["a", "b"], [own] * 2, [(0, 300_000), (0, 100_000)], True)
    whole = lanes.ends(1)[-1]
    # A quarter of 0.1 us per byte must be 2 ms.
    assert lanes.ends(79_000) == [0, whole], "the second is the faster one"
    assert lanes.ends(81_000) == lanes.ends(2**40) == lanes.ends() == [pytest.approx(whole / 4, abs=8), whole]


def _tried(rank: int, ranks: int) -> tuple[bool, list[list[int]]]:
    """Two trials of a division, and what comes between."""
    group = dist.group.WORLD
    assert group is not None
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
    store = group.get_group_store()
    backends = [
        _native.OwnBackend(
            dist.ProcessGroupGloo(dist.PrefixStore(f"lane/{place}", store), rank, ranks, options)
        )
        for place in range(2)
    ]
    # As long as the group, as those that are made for a recorder.
    beside.hold(group, *backends)
    # Slower than any, so that a division promises to pay.
    lanes = _native.Lanes(["lo", "lo"], backends, [(0, 60_000), (0, 30_000)], True)
    generator = torch.Generator().manual_seed(rank)
    same, seen = True, [lanes.ends()]
    buffers = [torch.zeros(size) for size in (100_003, 150_007)]
    parts = [_native.LaneParts(buffer, lanes) for buffer in buffers]
    for _ in range(200):
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.normal_(generator=generator)
            expected = buffer.clone()
            dist.all_reduce(expected)
            part.begin(buffer).wait()
            part.bring_back(buffer)
            same = same and torch.equal(buffer, expected)
        if (now := lanes.ends()) != seen[-1]:
            seen.append(now)
    return same, seen


@pytest.mark.parametrize("ranks", [2, 3])
def test_trials_keep_the_bits_and_all_ranks_conclude_the_same(ranks: int, tmp_path: Path) -> None:
    outcomes = run_ranks(_tried, ranks, tmp_path, timeout_s=300)
    assert all(same for same, _ in outcomes)
    assert all(seen == outcomes[0][1] for _, seen in outcomes), outcomes


def _refused(rank: int, _: int, folder: str) -> list[str]:
    said = []
    wrong: list[tuple[list[str], list[str]]] = [
        (["lo", "lo"], ["lo", "nowhere7"]),
        (["lo", "lo"], ["lo", "lo", "lo"]),
        (["lo=1", "lo=2"], ["lo=1", "lo=3"]),
    ]
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        ddp = DistributedDataParallel(Sizes(torch.float32))
        for choices in wrong:
            with pytest.raises(ReductionError) as caught:
                recorder.attach(ddp, lanes=choices[rank])
            said.append(str(caught.value))
        # All ranks have failed alike, so they can go on.
        recorder.attach(ddp, lanes=DIVIDED)
        gradients(ddp, rank, 0)
    return said


def test_what_does_not_fit_is_the_same_error_on_all_ranks(tmp_path: Path) -> None:
    first, second = run_ranks(_refused, 2, tmp_path, str(tmp_path / "trace"))
    assert [text.partition(": ")[2] for text in first] == [text.partition(": ")[2] for text in second]
    for text, words in zip(
        first,
        (
            "rank 1 of the group cannot use them: its interface 'nowhere7' does not exist",
            "rank 0 of the group names 2 interfaces, rank 1 names 3",
            "gives other rates",
        ),
        strict=True,
    ):
        assert words in text


def _killed(rank: int, _: int, folder: str) -> list[str]:
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1)
    ddp = DistributedDataParallel(Sizes(torch.float32), bucket_cap_mb=0.001)
    recorder.attach(ddp, lanes=DIVIDED)
    for step in (0, 1):  # in the second one, DDP makes new buckets over the group's own connections
        gradients(ddp, rank, step)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    said = []
    for step in (2, 3):
        with pytest.raises(RuntimeError) as caught:
            gradients(ddp, rank, step)
        said.append(str(caught.value))
    recorder.close()
    return said


def test_a_killed_rank_ends_the_bucket_with_an_error_that_names_a_lane(tmp_path: Path) -> None:
    begin = time.monotonic()
    said, gone = run_ranks(
        _killed, 2, tmp_path, str(tmp_path / "trace"), group_timeout_s=30, lost=frozenset({1})
    )
    assert gone is None and time.monotonic() - begin < 600
    assert "(interface lo)" in said[0] and "while reducing bucket" in said[0], said
    # The lanes that still stand would sum different buckets of the two ranks: none is used. The second bucket of the
    # same pass says so, or the first of the next one, unless DDP itself misses the rest of the pass that failed.
    refused = "an earlier bucket has failed"
    assert refused in said[0] or refused in said[1] or "Expected to have finished reduction" in said[1], said


def _unused(rank: int, _: int, folder: str) -> list[Any]:
    """One rank has left before the others, as DDP's join() allows."""
    results = []
    for lanes in ((), DIVIDED):
        with pyddpdiag.Recorder(f"{folder}/{len(lanes)}", capacity_mb=1) as recorder:
            ddp = DistributedDataParallel(Sizes(torch.float32), bucket_cap_mb=0.001)
            recorder.attach(ddp, lanes=lanes)
            with ddp.join(divide_by_initial_world_size=False):
                results.append([gradients(ddp, rank, step) for step in range(1 + rank)])
            dist.barrier()
    return results


def test_ranks_that_leave_early_are_not_counted_as_without_lanes(tmp_path: Path) -> None:
    for plain, divided in run_ranks(_unused, 2, tmp_path, str(tmp_path)):
        assert plain == divided


class Reduced:
    """The module that a GradientReducer averages, as `gradients` takes it."""

    def __init__(self, dtype: torch.dtype, **options: Any) -> None:
        self._model = Sizes(dtype)
        self.reducer = pyddpdiag.GradientReducer(
            self._model.named_parameters(), bucket_cap_mb=0.001, **options
        )

    def gradients(self, rank: int, step: int) -> list[bytes]:
        """Of one step; the same for whoever asks."""
        generator = torch.Generator().manual_seed(1000 * step + rank)
        parameters = list(self._model.parameters())
        factors = [torch.randn(size, generator=generator).to(parameters[0].dtype) for size in SIZES]
        self._model.zero_grad()
        self._model(factors).backward()
        self.reducer.all_reduce()
        return [p.grad.view(torch.uint8).numpy().tobytes() for p in parameters if p.grad is not None]


def _reduced(rank: int, _: int, folder: str) -> dict[str, bool]:
    same = {}
    for dtype in (torch.float32, torch.bfloat16):
        expected = [Reduced(dtype).gradients(rank, step) for step in range(4)]
        for views in (False, True):
            name = f"{str(dtype).rpartition('.')[2]}-{views}"
            plain = Reduced(dtype, lanes=DIVIDED, gradient_as_bucket_view=views)
            same[name] = [plain.gradients(rank, step) for step in range(4)] == expected
            recorder = pyddpdiag.Recorder(f"{folder}/{name}", capacity_mb=1)
            reduced = Reduced(dtype, lanes=DIVIDED, gradient_as_bucket_view=views, recorder=recorder)
            bits = []
            for step in range(4):
                # One rank is recorded for longer than the other: both must go the same way all the same.
                if step == 2 + rank:
                    recorder.close()
                bits.append(reduced.gradients(rank, step))
            same[f"{name}-recorded"] = bits == expected
    return same


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_reducer_has_the_bits_of_one_all_reduce_however_a_bucket_is_divided(
    ranks: int, tmp_path: Path
) -> None:
    for same in run_ranks(_reduced, ranks, tmp_path, str(tmp_path), timeout_s=300):
        assert len(same) == 8 and all(same.values()), same
    for rank in open_run(tmp_path / "float32-False").ranks:
        # The two smallest are in one bucket.
        assert len(complete(rank, Kind.BUCKET)) >= 2 * (len(SIZES) - 1)
        [group] = rank.sidecar.groups.values()
        assert [(lane.interface, lane.mbit) for lane in group.lanes] == [("lo", 100), ("lo", 300)]


def _reducers_refused(rank: int, _: int) -> list[str]:
    said = []
    wrong: list[list[dict[str, Any]]] = [
        [{"lanes": DIVIDED}, {}],
        [{"lanes": DIVIDED}, {"lanes": [*DIVIDED, "lo=50"]}],
        [{"lanes": ["lo", "nowhere7"]}, {"lanes": ["lo", "lo"]}],
    ]
    for options in wrong:
        with pytest.raises(ReductionError) as caught:
            Reduced(torch.float32, **options[rank])
        said.append(str(caught.value))
    with pytest.raises(UsageError, match="cannot be combined with shared_memory"):
        Reduced(torch.float32, lanes=DIVIDED, shared_memory="auto")
    # All ranks have failed alike, so they can go on.
    Reduced(torch.float32, lanes=DIVIDED).gradients(rank, 0)
    return said


def test_ranks_whose_reducers_go_different_ways_all_learn_of_it(tmp_path: Path) -> None:
    for said in run_ranks(_reducers_refused, 2, tmp_path):
        assert all("number of lanes" in text for text in said[:2]), said
        assert "rank 0 of the group cannot use them: its interface 'nowhere7' does not exist" in said[2]


def _reducer_killed(rank: int, _: int) -> list[str]:
    reduced = Reduced(torch.float32, lanes=DIVIDED)
    reduced.gradients(rank, 0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    said = []
    for step in (1, 2):
        with pytest.raises(ReductionError) as caught:
            reduced.gradients(rank, step)
        said.append(str(caught.value))
    return said


def test_a_killed_rank_ends_a_reducers_pass_with_an_error_that_names_a_lane(tmp_path: Path) -> None:
    said, gone = run_ranks(_reducer_killed, 2, tmp_path, group_timeout_s=30, lost=frozenset({1}))
    assert gone is None
    assert "(interface lo)" in said[0] and "rank 0: bucket" in said[0], said
    assert "an earlier pass of this GradientReducer has failed" in said[1], said


def _loops(expected: int) -> int:
    """Threads that run Gloo's operations; once there are as many as expected, as each takes its name when it runs."""
    for _ in range(100):
        names = [task.read_text(encoding="utf-8") for task in Path("/proc/self/task").glob("*/comm")]
        count = sum(name.startswith("pt_gloo") for name in names)
        if count == expected:
            break
        time.sleep(0.1)
    return count


def _destroyed(_: int, __: int, folder: str, options: dict[str, Any], beside_it: int) -> tuple[int, int, int]:
    """Threads before, with, and after a group of which a recorder knows; each group has two of its own."""
    dist.barrier()
    before = _loops(2)
    group = dist.new_group()
    ddp = DistributedDataParallel(torch.nn.Linear(512, 512), process_group=group)
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp, **options)
        ddp(torch.ones(2, 512)).sum().backward()
        recorder.detach(ddp)
        there = _loops(4 + beside_it)
        dist.barrier()
        dist.destroy_process_group(group)
        del ddp, group
        gc.collect()
        return before, there, _loops(2)


@pytest.mark.skipif(sys.platform != "linux", reason="names of threads are read from /proc")
@pytest.mark.parametrize(
    "options, beside_it", [({"lanes": ["lo=100", "lo=100"]}, 4), ({"compress": "bf16"}, 1)]
)
def test_threads_end_with_the_group_and_not_with_its_recorder(
    options: dict[str, Any], beside_it: int, tmp_path: Path
) -> None:
    # A thread that lets go of a tensor while the interpreter ends aborts the process.
    for counts in run_ranks(_destroyed, 3, tmp_path, str(tmp_path), options, beside_it):
        assert counts == (2, 4 + beside_it, 2)
