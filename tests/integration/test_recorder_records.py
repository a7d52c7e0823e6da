"""What the records say: times in order, the right bytes and names, the same numbers on every rank."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.hooked import WAYS, backward, complete, in_order, register, times, train
from support.models import branches
from support.ranks import ran_once, run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import DTYPE_NAMES, BackwardTime, BucketTime, Flag, Kind
from pyddpdiag.trace.run import Run, open_run

Answers = tuple[Path, list[dict[str, int]]]

STEPS = 5
SMALL_MB = 0.002
BRANCHES_NAMES = [
    f"{layer}.{kind}" for layer in ("stem", "left", "right", "head") for kind in ("weight", "bias")
]
BRANCHES_NUMBERS = 12 * 24 + 24 + 2 * (24 * 24 + 24) + 24 * 5 + 5
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Case: DDP's options and the recorder's.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one bucket": ({}, {"parameter_interval": 1}),
    "many buckets": ({"bucket_cap_mb": SMALL_MB}, {"parameter_interval": 4}),
    "no parameters": ({"bucket_cap_mb": SMALL_MB}, {"parameter_interval": 0}),
    "static graph": ({"bucket_cap_mb": SMALL_MB, "static_graph": True}, {"parameter_interval": 1}),
    "accumulation": ({"bucket_cap_mb": SMALL_MB}, {"parameter_interval": 1}),
    **{name: ({"bucket_cap_mb": SMALL_MB}, {}) for name in DTYPES},
}


def _job(rank: int, _: int, folder: str) -> dict[str, int]:
    for way in WAYS:
        for case, (ddp_options, options) in CASES.items():
            dtype = DTYPES.get(case, torch.float32)
            ddp = DistributedDataParallel(branches(dtype), **ddp_options)
            with pyddpdiag.Recorder(Path(folder, way, case), capacity_mb=1, **options) as recorder:
                register(recorder, ddp, way)
                if case != "accumulation":
                    train(ddp, rank, STEPS, dtype)
                    continue
                for step in range(STEPS):
                    ddp.zero_grad()
                    for part in range(3):
                        with contextlib.nullcontext() if part == 2 else ddp.no_sync():
                            backward(ddp, rank, 10 * step + part)
    return {"thread": threading.get_native_id()}


answers = ran_once(_job, 2)


@pytest.fixture(scope="module", params=[(way, case) for way in WAYS for case in CASES], ids="-".join)
def recorded(request: pytest.FixtureRequest, answers: Answers) -> tuple[str, str, Run]:
    way, case = request.param
    run = open_run(answers[0] / way / case)
    assert run.warnings == ()
    assert [rank.rank for rank in run.ranks] == [0, 1]
    return way, case, run


def test_bucket_times_are_in_order(recorded: tuple[str, str, Run]) -> None:
    _, _, run = recorded
    for rank in run.ranks:
        buckets = complete(rank, Kind.BUCKET)
        path = (BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
        in_order(buckets, *path)
        assert not buckets["times"][:, BucketTime.CONSUMED].any()  # only a native hook sees that
        in_order(buckets, BucketTime.ENQUEUED, BucketTime.RETURNED)
        assert not buckets["times"][:, BucketTime.DEVICE_READY].any()
        # Within the run, by the same clock as the header's.
        assert times(buckets, BucketTime.READY).min() >= rank.header.monotonic_ns


def test_bucket_sizes_and_flags(recorded: tuple[str, str, Run], answers: Answers) -> None:
    way, case, run = recorded
    for rank in run.ranks:
        buckets = complete(rank, Kind.BUCKET)
        dtype = DTYPE_NAMES.index(case if case in DTYPES else "float32")
        assert set(buckets["dtype"].tolist()) == {dtype}
        assert set(buckets["reduce_op"].tolist()) == {1}
        for step in range(STEPS):
            mine = buckets[buckets["step"] == step]
            size = torch.empty(0, dtype=DTYPES.get(case, torch.float32)).element_size()
            assert int(mine["bytes"].sum()) == BRANCHES_NUMBERS * size
            last = (mine["flags"] & Flag.LAST_BUCKET) > 0
            assert last.tolist() == [False] * (len(mine) - 1) + [True]
            assert mine["index"].tolist() == list(range(len(mine)))
        native = (buckets["flags"] & Flag.NATIVE) > 0
        assert native.all() if way == "native" else not native.any()
        # Values of 16 bits are read in watched passes only.
        finite = (buckets["flags"] & Flag.FINITE) > 0
        seen = set(range(STEPS)) if DTYPE_NAMES[dtype] in ("float32", "float64") else {0}
        assert set(buckets["step"][finite].tolist()) == seen
        assert not (buckets["flags"] & ~np.uint32(Flag.LAST_BUCKET | Flag.NATIVE | Flag.FINITE)).any()
        assert set(buckets["thread"].tolist()) == {answers[1][rank.rank]["thread"]}


def test_ranks_number_and_name_alike(recorded: tuple[str, str, Run]) -> None:
    _, _, run = recorded
    first, second = (complete(rank, Kind.BUCKET) for rank in run.ranks)
    assert first["sequence"].tolist() == list(range(len(first)))
    for field in ("sequence", "reference", "group", "bytes", "step", "index", "module"):
        assert first[field].tolist() == second[field].tolist(), field


def test_steps_are_distinguished_from_the_buckets(recorded: tuple[str, str, Run]) -> None:
    _, _, run = recorded
    for rank in run.ranks:
        assert sorted(set(complete(rank, Kind.BUCKET)["step"].tolist())) == list(range(STEPS))
        assert complete(rank, Kind.BACKWARD)["step"].tolist() == list(range(STEPS))
        assert len(rank.of_kind(Kind.STEP)) == 0


def test_identity_over_the_rebuild(recorded: tuple[str, str, Run]) -> None:
    """DDP begins with one bucket of everything and splits it after the first pass."""
    _, case, run = recorded
    for rank in run.ranks:
        buckets = complete(rank, Kind.BUCKET)
        by_step = [buckets["reference"][buckets["step"] == step].tolist() for step in range(STEPS)]
        # A static graph is known, and its buckets rebuilt, one pass later.
        rebuilt = 2 if case == "static graph" else 1
        assert by_step[:rebuilt] == [by_step[0]] * rebuilt
        assert by_step[rebuilt:] == [by_step[rebuilt]] * (STEPS - rebuilt)
        if case == "one bucket":
            assert by_step[0] == by_step[-1]
            # The rebuild did happen: DDP asked the other ranks for the new order.
            assert len(rank.of_kind(Kind.COLLECTIVE)) > 0
        else:
            assert len(by_step[0]) == 1
            assert len(by_step[-1]) >= 2
            assert not set(by_step[0]) & set(by_step[-1])
        for reference in {*by_step[0], *by_step[-1]}:
            layout = rank.sidecar.layouts[reference]
            assert layout.dtype == (case if case in DTYPES else "float32")
        named = sorted(
            index for reference in by_step[-1] for index in rank.sidecar.layouts[reference].parameters
        )
        assert named == list(range(len(BRANCHES_NAMES)))
        assert rank.sidecar.modules[0].parameters == tuple(BRANCHES_NAMES)


def test_both_ways_name_alike(answers: Answers) -> None:
    for case in CASES:
        native, timed = (open_run(answers[0] / way / case).ranks[0] for way in WAYS)
        for field in ("reference", "group", "bytes", "step"):
            assert native.of_kind(Kind.BUCKET)[field].tolist() == timed.of_kind(Kind.BUCKET)[field].tolist()
        assert native.sidecar.layouts == timed.sidecar.layouts
        assert native.header.run_id != timed.header.run_id


def test_backward_times(recorded: tuple[str, str, Run]) -> None:
    way, case, run = recorded
    for rank in run.ranks:
        passes = complete(rank, Kind.BACKWARD)
        in_order(passes, BackwardTime.FINALIZE_BEGIN, BackwardTime.FINALIZE_END)
        if way == "timed":
            assert not passes["times"][:, [BackwardTime.BEGIN, BackwardTime.FIRST_GRADIENT]].any()
            continue
        in_order(
            passes,
            BackwardTime.FORWARD_BEGIN,
            BackwardTime.FORWARD_END,
            BackwardTime.BEGIN,
            BackwardTime.FIRST_GRADIENT,
            BackwardTime.FINALIZE_BEGIN,
        )
        buckets = complete(rank, Kind.BUCKET)
        for step in range(STEPS):
            mine, this = buckets[buckets["step"] == step], passes[passes["step"] == step][0]
            assert times(mine, BucketTime.READY).min() >= this["times"][BackwardTime.FIRST_GRADIENT]
            if case == "static graph" and step == 0:
                # DDP reduces the first pass of a static graph in its finalisation, when the graph is done.
                continue
            assert times(mine, BucketTime.READY).max() <= this["times"][BackwardTime.FINALIZE_BEGIN]


def test_parameters_in_sampled_passes_only(recorded: tuple[str, str, Run]) -> None:
    way, case, run = recorded
    interval = CASES[case][1].get("parameter_interval", 16)
    expected = [step for step in range(STEPS) if interval and step % interval == 0] if way == "native" else []
    for rank in run.ranks:
        parameters, passes = complete(rank, Kind.PARAMETER), complete(rank, Kind.BACKWARD)
        assert sorted(set(parameters["step"].tolist())) == expected
        sampled = (passes["flags"] & Flag.SAMPLED) > 0
        assert passes["step"][sampled].tolist() == expected
        for step in expected:
            mine, this = parameters[parameters["step"] == step], passes["times"][passes["step"] == step][0]
            assert sorted(mine["index"].tolist()) == list(range(len(BRANCHES_NAMES)))
            size = torch.empty(0, dtype=DTYPES.get(case, torch.float32)).element_size()
            assert int(mine["bytes"].sum()) == BRANCHES_NUMBERS * size
            ready = times(mine, 0)
            assert ready.min() == this[BackwardTime.FIRST_GRADIENT]
            assert ready.max() <= this[BackwardTime.FINALIZE_BEGIN]
            assert (np.diff(ready.astype(np.int64)) >= 0).all()


def _sparse_job(rank: int, _: int, folder: str) -> None:
    embedding = torch.nn.Embedding(100, 8, sparse=True)
    ddp = DistributedDataParallel(torch.nn.Sequential(embedding, torch.nn.Linear(8, 2)))
    with pyddpdiag.Recorder(Path(folder), capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in range(STEPS):
            ddp.zero_grad()
            # Another number of words on each rank, and in each step.
            ddp(torch.arange(3 + 10 * rank + step)).pow(2).mean().backward()


def test_ranks_may_bring_sparse_gradients_of_unlike_size(tmp_path: Path) -> None:
    run_ranks(_sparse_job, 2, tmp_path, str(tmp_path / "run"))
    sizes = []
    for rank in open_run(tmp_path / "run").ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        sparse = buckets["flags"] & Flag.SPARSE > 0
        assert sparse.sum() == STEPS == (~sparse).sum()
        sizes.append(buckets["bytes"][sparse].tolist())
    assert sizes[0] != sizes[1]
    report = load_report(tmp_path / "run")
    assert report.mismatches == ()
    assert "mismatched_all_reduce" not in {finding.kind for finding in report.verdict.findings}
