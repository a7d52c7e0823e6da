"""GradientReducer in memory that the ranks of one host share."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.models import batch, branches, gradient_bytes
from support.ranks import run_ranks
from torch import nn

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.errors import ReductionError, UsageError
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace
from pyddpdiag.trace.sidecar import read_sidecar

STEPS = 4
SMALL_MB = 0.002
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}


def _odd(dtype: torch.dtype) -> nn.Module:
    """Sizes that no number of ranks divides, and one above Gloo's segments."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(12, 701), nn.Tanh(), nn.Linear(701, 907), nn.Tanh(), nn.Linear(907, 13)
    ).to(dtype)


MODELS = {"branches": branches, "odd": _odd}


def _train(
    rank: int,
    way: str,
    model: nn.Module,
    dtype: torch.dtype,
    recorder: pyddpdiag.Recorder | None,
    **options: Any,
) -> list[list[bytes]]:
    """Each step's gradients as bytes. The second half runs without the recorder, which this rank closes early."""
    bits = []
    with pyddpdiag.GradientReducer(
        model.named_parameters(), recorder=recorder, shared_memory=way, **options
    ) as reducer:
        for step in range(STEPS):
            if recorder is not None and step == STEPS // 2 + rank:
                recorder.close()
            model.zero_grad()
            with reducer.no_sync():
                model(batch(rank, step, dtype)).square().mean().backward()
            model(batch(rank, step + 100, dtype)).square().mean().backward()
            reducer.all_reduce()
            bits.append(gradient_bytes(model))
    return bits


def _all_ways(rank: int, _: int, folder: str) -> dict[tuple[str, str, str], list[list[bytes]]]:
    found = {}
    for name, model in MODELS.items():
        for kind, dtype in DTYPES.items():
            cap = SMALL_MB if name == "branches" else 3.0
            for way in ("off", "require"):
                found[name, kind, way] = _train(rank, way, model(dtype), dtype, None, bucket_cap_mb=cap)
            recorder = pyddpdiag.Recorder(f"{folder}/{name}-{kind}", capacity_mb=1)
            found[name, kind, "recorded"] = _train(
                rank, "require", model(dtype), dtype, recorder, bucket_cap_mb=cap
            )
            flags = read_trace(recorder.path).of_kind(Kind.BUCKET)["flags"]
            assert {bool(f & Flag.SHARED) for f in flags} == {True}
            assert {bool(f & Flag.REDUCER) for f in flags} == {True}
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_same_bits_as_over_gloo(tmp_path: Path, ranks: int) -> None:
    answers = run_ranks(_all_ways, ranks, tmp_path, str(tmp_path))
    for (name, kind, way), steps in answers[0].items():
        assert any(any(gradient) for gradient in steps[0])
        assert steps[0] != steps[1]
        for answer in answers:
            assert answer[name, kind, way] == steps, "the ranks differ"
        # Gloo rounds 16-bit sums after each addition, and we once: the same only for two ranks.
        if kind in ("f32", "f64") or ranks == 2:
            assert steps == answers[0][name, kind, "off"], (name, kind, way)


def _outcomes(rank: int, _: int, folder: str, refused: bool) -> dict[str, str]:
    """What each mode comes to where rank 1 has no access to the memory of the others, or has."""
    if rank == 1 and refused:

        def refuse(name: str, process: int) -> Any:
            raise OSError(13, "not allowed here")

        _native.SharedPeer = refuse  # type: ignore[assignment,misc]
    outcome = {}
    for mode in ("auto", "require", "off"):
        with pyddpdiag.Recorder(f"{folder}/{mode}", capacity_mb=1) as recorder:
            model = branches(torch.float32)
            try:
                _train(rank, mode, model, torch.float32, recorder)
            except ReductionError as error:
                outcome[mode] = str(error)
                continue
            recorder.close()
            sidecar, _ = read_sidecar(recorder.path.with_suffix(".json"))
            [group] = sidecar.groups.values()
            outcome[mode] = group.shared_memory
    return outcome


def test_the_sidecar_says_what_each_mode_came_to(tmp_path: Path) -> None:
    for outcome in run_ranks(_outcomes, 3, tmp_path, f"{tmp_path}/refused", True):
        assert outcome["auto"] == (
            "rank 1 of the group cannot use the memory of rank 0: not allowed here "
            "(hosts of 2, 1 ranks; the numbers must be equal)"
        )
        assert "cannot average gradients in shared memory: rank 1 of the group" in outcome["require"]
        assert outcome["off"] == ""
    for outcome in run_ranks(_outcomes, 2, tmp_path, f"{tmp_path}/allowed", False):
        assert outcome == {"auto": "used", "require": "used", "off": ""}


def _skips_a_pass(rank: int, _: int) -> str:
    """In the second pass rank 1 fails before its first bucket, and goes on."""
    parameter = torch.nn.Parameter(torch.ones(5))
    with pyddpdiag.GradientReducer([parameter], shared_memory="require") as reducer:
        (parameter.sum() * (rank + 1)).backward()
        reducer.all_reduce()
        if rank == 1:
            with reducer.no_sync():
                parameter.sum().backward()
            parameter.requires_grad_(False)
            with pytest.raises(UsageError):
                reducer.all_reduce()
            parameter.requires_grad_(True)
        try:
            parameter.sum().backward()
            reducer.all_reduce()
        except ReductionError as error:
            return str(error)
    return ""


def test_ranks_in_different_passes_are_reported(tmp_path: Path) -> None:
    for text in run_ranks(_skips_a_pass, 2, tmp_path):
        assert "the ranks do not bring the same bucket" in text


def _different(rank: int, _: int) -> str:
    mode: Any = "auto" if rank == 0 else "off"
    try:
        pyddpdiag.GradientReducer([torch.nn.Parameter(torch.ones(5))], shared_memory=mode)
    except ReductionError as error:
        return str(error)
    return ""


def test_ranks_that_differ_in_the_mode_are_reported_at_once(tmp_path: Path) -> None:
    for text in run_ranks(_different, 2, tmp_path):
        assert "disagree" in text
        assert "shared_memory" in text
