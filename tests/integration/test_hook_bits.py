"""`attach` keeps the bits of plain DDP, a registered hook those of torch's builtin one, at every number of ranks."""

import contextlib
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.models import batch, branches, gradient_bytes
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

HOOKS = ("plain", "builtin", "native", "timed")
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
OPTIONS = {
    "one big bucket": {"bucket_cap_mb": 25},
    "find_unused_parameters": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "no_sync": {},
}
STEPS = 4


def _train(rank: int, hook: str, case: str) -> list[list[bytes]]:
    dtype = DTYPES.get(case, torch.float32)
    options = {"bucket_cap_mb": 0.002, **OPTIONS.get(case, {})}
    ddp = DistributedDataParallel(branches(dtype, alternate=case == "find_unused_parameters"), **options)
    bits = []
    with tempfile.TemporaryDirectory() as folder, pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        if hook == "builtin":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        elif hook == "native":
            recorder.attach(ddp)
        elif hook == "timed":
            ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
        for step in recorder.steps(range(STEPS)):
            ddp.zero_grad()
            if case == "no_sync":
                with ddp.no_sync():
                    ddp(batch(rank, 100 + step, dtype)).square().mean().backward()
            ddp(batch(rank, step, dtype)).square().mean().backward()
            bits.append(gradient_bytes(ddp))
    return bits


def _all_cases(
    rank: int, _: int, cases: list[str], hooks: tuple[str, ...]
) -> dict[tuple[str, str], list[list[bytes]]]:
    return {(case, hook): _train(rank, hook, case) for case in cases for hook in hooks}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], list[list[bytes]]]]:
    return run_ranks(_all_cases, 2, tmp_path_factory.mktemp("bits"), [*DTYPES, *OPTIONS], HOOKS)


@pytest.mark.parametrize("case", [*DTYPES, *OPTIONS])
@pytest.mark.parametrize("hook", ["native", "timed"])
def test_two_ranks_same_bits(two_ranks, case: str, hook: str) -> None:
    for answers in two_ranks:
        assert answers[case, hook] == answers[case, "builtin"]
        assert answers[case, hook] == answers[case, "plain"]
    assert two_ranks[0][case, hook] == two_ranks[1][case, hook]
    # Gradients that are all zero or never change would prove nothing.
    steps = two_ranks[0][case, hook]
    assert any(any(gradient) for gradient in steps[0])
    assert steps[0] != steps[2]


@pytest.mark.parametrize("ranks", [3, 5])
def test_more_ranks_same_bits(tmp_path: Path, ranks: int) -> None:
    cases = [*DTYPES, *OPTIONS] if ranks == 3 else ["f32", "bf16", "gradient_as_bucket_view"]
    all_answers = run_ranks(_all_cases, ranks, tmp_path, cases, HOOKS)
    for answers in all_answers:
        for case in cases:
            assert answers[case, "native"] == answers[case, "plain"], case
            assert answers[case, "timed"] == answers[case, "builtin"], case
    if ranks == 3:  # or the two comparisons above would be one
        assert all_answers[0]["f32", "plain"] != all_answers[0]["f32", "builtin"]


def _two_modules(rank: int, _: int, folder: str, register: str) -> list[list[bytes]]:
    """Two modules in one loss, the second in a group of its own, and once more without any hook."""
    group = dist.new_group([0, 1])
    results = []
    for hooked in (False, True):
        first = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
        second = DistributedDataParallel(branches(torch.float64), bucket_cap_mb=0.004, process_group=group)
        with contextlib.ExitStack() as stack:
            if hooked:
                recorder = stack.enter_context(pyddpdiag.Recorder(folder))
                for ddp in (first, second):
                    if register == "attach":
                        recorder.attach(ddp)
                    else:
                        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
            for step in range(3):
                first.zero_grad()
                second.zero_grad()
                loss = first(batch(rank, step, torch.float32)).square().mean()
                (loss.double() + second(batch(rank, step, torch.float64)).square().mean()).backward()
        results.append(gradient_bytes(first) + gradient_bytes(second))
    return results


@pytest.mark.parametrize("register", ["attach", "register_comm_hook"])
def test_two_modules_in_two_groups(tmp_path: Path, register: str) -> None:
    for plain, hooked in run_ranks(_two_modules, 2, tmp_path, str(tmp_path / "trace"), register):
        assert plain == hooked
    from pyddpdiag.trace.layout import Kind
    from pyddpdiag.trace.run import open_run

    run = open_run(tmp_path / "trace")
    for rank in run.ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        assert sorted(set(buckets["module"].tolist())) == [0, 1]
        assert len(set(buckets["group"].tolist())) == 2
        for group in set(buckets["group"].tolist()):
            sequence = buckets["sequence"][buckets["group"] == group]
            assert sorted(sequence.tolist()) == list(range(len(sequence)))
        assert len(rank.sidecar.groups) == 2
        assert {m.name for m in rank.sidecar.modules.values()} == {"Branches"}
