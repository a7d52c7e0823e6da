"""The bucket layout as the cause of exposed communication, and settings that differ between ranks."""

from pathlib import Path
from typing import Any

import pytest
from support.laid_out import MB, write
from support.reported import findings, number
from support.trace_writer import write_training

from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wire_fit import fit_wire, lasting_buckets
from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run


def test_the_fit_finds_latency_and_bandwidth_again(tmp_path: Path) -> None:
    write(tmp_path, [MB // 10, MB, 4 * MB, 8 * MB], latency_ms=2.0, ms_per_mb=0.5)
    fit = fit_wire(lasting_buckets(RunView(open_run(tmp_path)).buckets))
    assert fit is not None
    assert fit.latency_ms == pytest.approx(2.0, rel=0.1)
    assert fit.ms_per_byte * MB == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("latency_ms", [0.0, 3.0])
def test_buckets_of_one_kind_of_cost_are_fitted_as_such(tmp_path: Path, latency_ms: float) -> None:
    write(tmp_path, [MB, 2 * MB, 8 * MB], latency_ms=latency_ms, ms_per_mb=0.0 if latency_ms else 1.0)
    fit = fit_wire(lasting_buckets(RunView(open_run(tmp_path)).buckets))
    assert fit is not None and fit.latency_ms >= 0 and fit.ms_per_byte >= 0
    assert fit.wire_ms(4 * MB) == pytest.approx(latency_ms or 4.0, rel=0.1)


def test_buckets_that_are_on_their_way_together_show_no_latency(tmp_path: Path) -> None:
    """Over a link with short round trips, the small one only took its part of the large one's time."""
    write(tmp_path, [MB, 8 * MB], latency_ms=20.0, ms_per_mb=1.0)
    buckets = lasting_buckets(RunView(open_run(tmp_path)).buckets)
    free = fit_wire(buckets)
    bounded = fit_wire(buckets, most_latency_ms=2.0)
    assert free is not None and free.latency_ms == pytest.approx(20.0, rel=0.1)
    assert bounded is not None and bounded.latency_ms == 2.0
    assert bounded.wire_ms(9 * MB, 2) == pytest.approx(free.wire_ms(9 * MB, 2), rel=0.05)


def test_many_buckets_may_each_wait_for_a_core(tmp_path: Path) -> None:
    sizes = [20_000 * (1 + place % 5) for place in range(40)]
    write(tmp_path, sizes, latency_ms=5.0, ms_per_mb=1.0)
    fit = fit_wire(lasting_buckets(RunView(open_run(tmp_path)).buckets), most_latency_ms=2.0)
    assert fit is not None and fit.latency_ms == pytest.approx(5.0, rel=0.1)


def test_buckets_of_equal_size_cannot_tell_latency_from_bandwidth(tmp_path: Path) -> None:
    found = write(tmp_path, [400_000] * 30, latency_ms=2.0)
    assert fit_wire(lasting_buckets(RunView(open_run(tmp_path)).buckets)) is None
    assert [finding.kind for finding in found] == ["exposed_communication"]


def test_one_bucket_for_all_gradients(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [20 * MB], parameters=4)
    assert (found.kind, found.confidence, found.rank) == ("single_bucket", "medium", None)
    # Three quarters of 20 ms could be hidden behind backward.
    assert found.cost_ms == pytest.approx(15.0, rel=0.1)
    assert found.advice == "DistributedDataParallel(model, bucket_cap_mb=4.8)"


@pytest.mark.parametrize(
    ("launch", "advice"),
    [
        ({"command": ["a.py"]}, "Make buckets of 4.8 MiB:\npyddpdiag run --bucket-cap-mb 4.8 -- a.py"),
        (None, "pyddpdiag run --bucket-cap-mb 4.8"),
    ],
)
def test_the_size_is_advised_once(tmp_path: Path, launch: dict[str, Any] | None, advice: str) -> None:
    sidecar = {"recorded_by": "run", "launch": launch, "platform": "Linux"}
    (found,) = write(tmp_path, [20 * MB], parameters=4, sidecar=sidecar)
    assert found.advice == advice


def test_a_single_bucket_of_which_backward_could_hide_a_tenth_of_the_step_is_named(tmp_path: Path) -> None:
    """27 ms of 190: the transfer takes most of the step, and would with any buckets."""
    (found,) = write(tmp_path, [20 * MB], ms_per_mb=7.5)
    assert found.kind == "single_bucket"
    assert found.cost_ms == pytest.approx(26.7, rel=0.1)


def test_a_single_bucket_that_backward_could_not_hide_is_a_matter_of_the_transfer(tmp_path: Path) -> None:
    (found,) = write(tmp_path / "slow", [20 * MB], ms_per_mb=15.0)
    assert found.kind == "exposed_communication"
    # It is said what it could hide all the same, where that is worth a word.
    assert "bucket_cap_mb=...)), backward would hide up to 26.7 ms" in found.advice
    (found,) = write(tmp_path / "slower", [20 * MB], ms_per_mb=60.0)
    assert found.kind == "exposed_communication" and "bucket_cap_mb" not in found.advice


@pytest.mark.parametrize("latency_ms", [3.0, 12.0])
@pytest.mark.parametrize("parameters", [1, 2])
def test_a_bucket_that_is_all_latency_is_neither_split_nor_rounded(
    tmp_path: Path, latency_ms: float, parameters: int
) -> None:
    """84 bytes on a busy machine."""
    (found,) = write(tmp_path, [84], latency_ms=latency_ms, compute_ms=5.0, parameters=parameters)
    assert found.kind == "exposed_communication"
    assert "synchronise less often" in found.advice
    assert "bucket" not in found.advice and "bfloat16" not in found.advice


@pytest.mark.parametrize(("parameters", "buckets"), [(1, None), (2, 2), (3, 3), (9, 4)])
def test_no_more_buckets_than_parameters(tmp_path: Path, parameters: int, buckets: int | None) -> None:
    (found,) = write(tmp_path, [20 * MB], parameters=parameters)
    if buckets is None:
        assert found.kind == "exposed_communication" and "bucket_cap_mb" not in found.advice
        return
    assert found.kind == "single_bucket" and f"{buckets} buckets would save" in found.message
    assert number(found, "saved_ms") == pytest.approx(20.0 * (1 - 1 / buckets), rel=0.1)


def test_a_large_last_bucket_of_few_bytes_is_no_matter_of_layout(tmp_path: Path) -> None:
    found = write(tmp_path, [400, 400, 4000], latency_ms=8.0, compute_ms=5.0)
    assert "large_last_bucket" not in {one.kind for one in found}


def test_many_small_buckets_pay_latency(tmp_path: Path) -> None:
    sizes = [20_000 * (1 + place % 5) for place in range(40)]
    (found,) = write(tmp_path, sizes, latency_ms=2.0, ms_per_mb=1.0)
    assert (found.kind, found.confidence) == ("small_buckets", "medium")
    assert found.evidence["buckets"] == 40 and number(found, "latency_part") > 0.9
    assert number(found, "latency_ms") == pytest.approx(2.0, rel=0.1)
    exposed = number(found, "exposed_ms")
    assert 0.8 * exposed < (found.cost_ms or 0.0) <= exposed
    assert (
        found.advice == f"DistributedDataParallel(model, bucket_cap_mb={found.evidence['bucket_cap_mb']:g})"
    )


def test_small_buckets_of_one_size_are_judged_by_an_assumed_bandwidth(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [20_000] * 30, latency_ms=2.0)
    assert (found.kind, found.confidence) == ("small_buckets", "low")
    assert "if the link carries 1 Gbit/s" in found.message and "slower" in found.change_mind
    assert number(found, "latency_ms") == pytest.approx(1.8, rel=0.1)


def test_large_buckets_over_a_slow_link_are_not_called_small(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [MB, 8 * MB, 8 * MB, 8 * MB], latency_ms=0.5, ms_per_mb=4.0)
    assert found.kind == "exposed_communication"


@pytest.mark.parametrize(
    ("parameters", "advice"), [(3, "bucket_cap_mb=4.8"), (1, "does not split a parameter")]
)
def test_a_giant_last_bucket(tmp_path: Path, parameters: int, advice: str) -> None:
    (found,) = write(tmp_path, [MB, MB, MB, 20 * MB], parameters=parameters)
    assert found.kind == "large_last_bucket"
    assert found.bucket == f"{103:016x}" and found.parameter == f"p{3 * parameters}"
    assert advice in found.advice
    assert 0 < (found.cost_ms or 0.0) < number(found, "exposed_ms")


def test_a_large_last_bucket_that_backward_could_not_hide_is_a_matter_of_the_transfer(tmp_path: Path) -> None:
    """DDP's own layout of a small model over a slow link: 600 ms of bytes do not fit into 27 ms of backward."""
    (found,) = write(tmp_path, [MB, 20 * MB], ms_per_mb=30.0)
    assert found.kind == "exposed_communication" and "bucket" not in found.advice


CROWDED, ROOMY = ({"host": "one", "torch_threads": 1, "cores": list(range(cores))} for cores in (2, 4))


@pytest.mark.parametrize("sizes", [[20 * MB], [MB, MB, MB, 20 * MB]], ids=["single", "last"])
def test_what_backward_hides_takes_processor_time_from_it(tmp_path: Path, sizes: list[int]) -> None:
    """Copies through one machine's memory: Gloo's threads compute as long as a transfer takes."""
    busy = sum(sizes) / MB
    (spare,) = write(tmp_path / "spare", sizes, gloo_ms=busy, sidecar=ROOMY)
    assert spare.kind == ("single_bucket" if len(sizes) == 1 else "large_last_bucket")
    (none,) = write(tmp_path / "none", sizes, gloo_ms=busy, sidecar=CROWDED)
    assert none.kind == "exposed_communication" and "bucket_cap_mb" not in none.advice
    # A link that needs little of it leaves backward alone.
    (idle,) = write(tmp_path / "idle", sizes, gloo_ms=0.1 * busy, sidecar=CROWDED)
    assert idle.kind == spare.kind
    assert idle.cost_ms == pytest.approx(0.9 * (spare.cost_ms or 0.0), rel=0.02)


def test_a_giant_first_bucket_is_no_giant_last_one(tmp_path: Path) -> None:
    assert [found.kind for found in write(tmp_path, [40 * MB, MB, MB])] == ["exposed_communication"]


def test_layouts_that_cost_nothing_are_no_finding(tmp_path: Path) -> None:
    assert write(tmp_path / "one", [MB]) == []
    assert write(tmp_path / "many", [20_000 * (1 + place % 5) for place in range(40)], ms_per_mb=0.1) == []


def settings(
    folder: Path, *changes: dict[str, object], late_ms: dict[int, float] | None = None
) -> list[Finding]:
    for writer, change in zip(
        write_training(folder, world_size=len(changes), steps=20, late_ms=late_ms), changes, strict=True
    ):
        writer.sidecar |= {"torch_threads": 4, "environment": {"OMP_NUM_THREADS": "4"}, **change}
        writer.write(folder)
    return findings(folder)


def test_settings_that_differ_are_a_note_with_the_ranks(tmp_path: Path) -> None:
    one = {"torch": "2.12.0", "torch_threads": 1, "environment": {"OMP_NUM_THREADS": "1"}}
    (found,) = settings(tmp_path, {}, {}, one)
    assert (found.kind, found.severity, found.rank) == ("settings_differ", "note", 2)
    assert "torch is 2.13.0 on rank 0, 1, 2.12.0 on rank 2" in found.message
    assert "torch_threads is 4 on rank 0, 1, 1 on rank 2" in found.message
    assert set(found.evidence) == {"torch", "torch_threads", "OMP_NUM_THREADS"}


def test_the_order_of_interfaces_is_not_their_set(tmp_path: Path) -> None:
    same = [{"environment": {"GLOO_SOCKET_IFNAME": names}} for names in ("eth0,eth1", "eth1,eth0")]
    assert [finding.kind for finding in settings(tmp_path / "order", *same)] == ["interface_order"]
    (found,) = settings(tmp_path / "set", same[0], {"environment": {"GLOO_SOCKET_IFNAME": "eth1"}})
    assert set(found.evidence) == {"GLOO_SOCKET_IFNAME"} and found.rank is None


def test_a_rank_without_a_sidecar_has_no_other_settings(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20)
    (tmp_path / "rank_1.json").unlink()
    assert [finding.kind for finding in load_report(tmp_path).verdict.findings] == []


def test_fewer_threads_are_why_a_rank_is_late(tmp_path: Path) -> None:
    late, note = settings(tmp_path, {}, {"torch_threads": 1}, late_ms={1: 15.0})
    assert (late.kind, late.rank, late.cause, note.kind) == ("late_rank", 1, "compute", "settings_differ")
    assert "its torch uses 1 thread, the others' 4" in late.message
    assert late.evidence["torch_threads"] == 1 and "OMP_NUM_THREADS" in late.advice


def test_more_threads_are_not_why_a_rank_is_late(tmp_path: Path) -> None:
    late, _ = settings(tmp_path, {}, {"torch_threads": 16}, late_ms={1: 15.0})
    assert (late.kind, late.cause) == ("late_rank", None)


SIZES = [MB, 8 * MB, 8 * MB, 8 * MB]


def test_a_slow_link_would_carry_half(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, ms_per_mb=4.0)
    # 100 ms of transfers, nearly all after backward.
    assert number(found, "half_saves_ms") == pytest.approx(0.4 * 100.0, rel=0.1)
    assert "less data (bfloat16, which would save about 4" in found.advice


def test_latency_stays(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, latency_ms=5.0, ms_per_mb=4.0)
    assert number(found, "half_saves_ms") == pytest.approx(0.4 * 100.0, rel=0.15)


def test_few_bytes_take_as_long_in_16_bits(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [84], latency_ms=12.0, compute_ms=5.0)
    assert found.evidence["half_saves_ms"] is None


def test_gradients_that_have_16_bits_gain_nothing(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, ms_per_mb=4.0, dtype="bfloat16")
    assert found.evidence["half_saves_ms"] is None and "bfloat16" not in found.advice
