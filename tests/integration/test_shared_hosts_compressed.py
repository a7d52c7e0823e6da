"""Several hosts whose sums travel in 16 bits: the bits, the stated error bound, the trace, and what goes wrong."""

import io
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models import batch, branches
from support.own_hosts import only_own_host
from support.ranks import run_ranks
from support.trained import off_by_rounding, train
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace

# Rank R is on host hosts[R]. Not in order, as a launcher need not have it.
TWO = (0, 1, 1, 0)
THREE = (0, 1, 1, 2, 0, 2)
UNIT = {"bf16": 2.0**-8, "fp16": 2.0**-11}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
KINDS = [(dtype, compress) for dtype in (torch.float32, torch.float64) for compress in DTYPES]
STEPS = 3
WIDTHS = (301, 301, 701, 5)  # odd: the ranks' parts and the hosts' shards differ in size


def _gradients(rank: int, hosts: tuple[int, ...], dtype: torch.dtype, step: int) -> list[torch.Tensor]:
    """What a rank brings, of each of the parameters; very different sizes, so that the order of additions shows."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    shapes = [shape for a, b in itertools.pairwise(WIDTHS) for shape in ((b, a), (b,))]
    scale = 7.0 ** (rank - len(hosts) // 2)
    return [torch.randn(shape, generator=generator, dtype=dtype) * scale for shape in shapes]


class _Given(torch.nn.Module):
    """A model whose gradients are those that it is given."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros_like(g) for g in _gradients(0, TWO, dtype, 0))

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(p * g).sum() for p, g in zip(self.all, gradients, strict=True)]).sum()


def _averages(
    rank: int, hosts: tuple[int, ...], dtype: torch.dtype, folder: str, **options: Any
) -> list[torch.Tensor]:
    """Of each step, all gradients in one vector."""
    ddp = DistributedDataParallel(_Given(dtype), bucket_cap_mb=0.5)
    found = []
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, shared_memory="require", **options)
        for step in range(STEPS):
            ddp.zero_grad()
            ddp(_gradients(rank, hosts, dtype, step)).backward()
            found.append(torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None]))
    return found


def _bits(averages: list[torch.Tensor]) -> list[bytes]:
    return [step.numpy().tobytes() for step in averages]


def _job(rank: int, _: int, folder: str, hosts: tuple[int, ...]) -> dict[tuple[torch.dtype, str], Any]:
    only_own_host(rank, hosts)
    found = {}
    for dtype, compress in KINDS:
        first, again = (
            _averages(rank, hosts, dtype, f"{folder}/{dtype}-{compress}-{turn}", compress=compress)
            for turn in range(2)
        )
        assert _bits(first) == _bits(again), "the same from run to run"
        found[dtype, compress] = [step.numpy() for step in first]
    return found


@pytest.mark.parametrize("hosts", [TWO, THREE], ids=["2 hosts", "3 hosts"])
def test_equal_bits_on_all_ranks_and_the_stated_error(tmp_path: Path, hosts: tuple[int, ...]) -> None:
    answers = run_ranks(_job, len(hosts), tmp_path, str(tmp_path), hosts)
    for kind in KINDS:
        for other in answers[1:]:
            for ours, theirs in zip(answers[0][kind], other[kind], strict=True):
                assert ours.tobytes() == theirs.tobytes()
        dtype, compress = kind
        for step, average in enumerate(map(torch.from_numpy, answers[0][kind])):
            everyone = torch.stack(
                [
                    torch.cat([g.flatten() for g in _gradients(rank, hosts, dtype, step)]).double()
                    for rank in range(len(hosts))
                ]
            )
            put_in = everyone.abs().mean(0)
            bound = 2 * UNIT[compress] * put_in * (1 + 2**-6) + (max(hosts) + 2) * 2.0**-25
            error = (average.double() - everyone.mean(0)).abs()
            assert (error <= bound).all(), float((error / bound).max())
            assert torch.equal(average, average.to(DTYPES[compress]).to(dtype)), "all values are of 16 bits"
            assert error.max() > 0, "nothing was rounded: it did not travel in 16 bits"


def _ways(rank: int, _: int, folder: str) -> dict[str, list[list[bytes]]]:
    only_own_host(rank, TWO)
    bits = {}
    for way in ("attach", "hook"):
        for mode in ("auto", "require"):
            name = f"{way}-{mode}"
            bits[name], values, paths = train(
                rank, way, f"{folder}/{name}", shared_memory=mode, compress="bf16"
            )
            assert paths == {(True, True)}
        _, expected, _ = train(rank, way, f"{folder}/{way}-gloo")
        torch.testing.assert_close(values, expected, rtol=0.02, atol=1e-3)
    # Of a type that is small already.
    ddp = DistributedDataParallel(branches(torch.bfloat16))
    with pyddpdiag.Recorder(f"{folder}/small", capacity_mb=1) as recorder:
        recorder.attach(ddp, shared_memory="require", compress="bf16")
        ddp(batch(rank, 0, torch.bfloat16)).square().mean().backward()
        recorder.close()
        flags = read_trace(recorder.path).of_kind(Kind.BUCKET)["flags"]
        assert ((flags & Flag.SHARED != 0) & (flags & Flag.COMPRESSED == 0)).all()
    return bits


def test_attach_and_hook_hold_the_same_bits_and_the_trace_tells_what_travelled(tmp_path: Path) -> None:
    answers = run_ranks(_ways, 4, tmp_path, str(tmp_path))
    assert all(answer == answers[0] for answer in answers)
    assert len({str(bits) for bits in answers[0].values()}) == 1
    report = load_report(tmp_path / "attach-require")
    assert {(b.dtype, b.gradient_dtype, b.shared_memory) for b in report.buckets} == {
        ("bfloat16", "float32", True)
    }
    out = io.StringIO()
    print_text(report, out, tables=True)
    words = " ".join(out.getvalue().split())
    assert " in shared memory" in words
    assert "In bfloat16, " in words and " travel between hosts in place of " in words
    buckets = read_trace(tmp_path / "attach-require" / "rank_0.ddptrace").of_kind(Kind.BUCKET)
    total = sum(p.numel() for p in branches(torch.float32).parameters())
    assert buckets["bytes"][buckets["step"] == 0].sum() == 2 * total


def _alone(rank: int, _: int, folder: str) -> tuple[list[list[bytes]], list[list[bytes]]]:
    exact = train(rank, "attach", f"{folder}/exact", shared_memory="require")
    for number, compress in enumerate(("bf16", "fp16")):
        found = train(
            rank,
            "attach",
            f"{folder}/{number}",
            shared_memory="require",
            compress=compress,
            error_feedback=True,
        )
        assert found[2] == {(True, False)}
        assert found[0] == exact[0]
    return exact[0], found[0]


def test_on_one_host_nothing_is_compressed(tmp_path: Path) -> None:
    for exact, compressed in run_ranks(_alone, 2, tmp_path, str(tmp_path)):
        assert compressed == exact


def _feedback(rank: int, _: int, folder: str) -> dict[bool, float]:
    only_own_host(rank, TWO)
    return off_by_rounding(folder, shared_memory="require")


def test_error_feedback_makes_up_for_rounding(tmp_path: Path) -> None:
    for off in run_ranks(_feedback, 4, tmp_path, str(tmp_path)):
        assert off[False] > 1e-3, "the same rounding in every step adds up"
        assert off[True] < off[False] / 5


def _different(rank: int, _: int, folder: str, compress: tuple[str | None, str | None]) -> str:
    only_own_host(rank, TWO)
    try:
        train(rank, "attach", folder, shared_memory="require", compress=compress[TWO[rank]])
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("compress", "words"),
    [
        (("bf16", None), ("of float32, in bfloat16 between hosts;", "of float32;")),
        (("bf16", "fp16"), ("in bfloat16 between hosts;", "in float16 between hosts;")),
    ],
)
def test_hosts_that_compress_differently_are_both_named(
    tmp_path: Path, compress: tuple[str | None, str | None], words: tuple[str, str]
) -> None:
    for text in run_ranks(_different, 4, tmp_path, str(tmp_path / "run"), compress):
        assert "the ranks do not bring the same bucket" in text
        for side in words:
            assert side in text.replace(".", ";")
