"""What `pyddpdiag run` is asked to apply, on its way to the ranks."""

import pytest

from pyddpdiag.cures.options import Cures, from_options, sizes_of
from pyddpdiag.errors import UsageError


@pytest.mark.parametrize(
    "cures",
    [
        Cures(),
        Cures(shared_memory="require", compress="bf16", error_feedback=True, bucket_cap_mb=0.25),
        Cures(bucket_cap_mb_list=(1, 4.5), interfaces=("eth0", "eth1"), threads=3),
        Cures(gradient_as_bucket_view=True, pin_ranks=True),
        Cures(num_workers=4),
        Cures(connections=8),
    ],
)
def test_they_reach_the_ranks_as_they_were_given(cures: Cures) -> None:
    assert from_options(cures.options()) == cures


def test_the_environment_has_what_is_read_before_python_runs() -> None:
    assert Cures().environment() == {}
    assert Cures(interfaces=("a", "b"), threads=2).environment() == {
        "GLOO_SOCKET_IFNAME": "a,b",
        "OMP_NUM_THREADS": "2",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bucket_cap_mb": 1, "bucket_cap_mb_list": (1,)}, "exclude each other"),
        ({"bucket_cap_mb": 0}, "--bucket-cap-mb 0 cannot be right"),
        ({"bucket_cap_mb_list": (1, float("nan"))}, "--bucket-cap-mb-list nan"),
        ({"threads": 0}, "--threads is 0"),
        ({"num_workers": 0}, "--num-workers is 0"),
        ({"error_feedback": True}, "needs compress"),
        ({"connections": 4, "lanes": ("a", "b")}, "--lanes and --connections exclude"),
        ({"connections": 4, "compress": "bf16"}, "cannot be combined with compress"),
    ],
)
def test_what_cannot_be_right_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Cures(**options)  # type: ignore[arg-type]


def test_connections_are_a_number_or_chosen() -> None:
    assert from_options({"--connections": "auto"}) == Cures(connections=4)
    assert Cures(connections=2).request.lanes == ("*", "*")
    for text in ("", "1", "65", "-2", "many"):
        with pytest.raises(UsageError, match="--connections"):
            from_options({"--connections": text})


def test_sizes_that_are_no_numbers_are_refused() -> None:
    assert sizes_of("1,0.5") == (1, 0.5) and sizes_of("") == ()
    with pytest.raises(UsageError, match="no number"):
        sizes_of("1,a")


def test_it_is_said_where_bits_change() -> None:
    exact = Cures(shared_memory="auto", gradient_as_bucket_view=True, pin_ranks=True, interfaces=("eth0",))
    assert exact.changed_bits(8) == []
    layout = Cures(bucket_cap_mb=1)
    assert layout.changed_bits(2) == [] and "layout" in layout.changed_bits(3)[0]
    assert "16 bits" in Cures(compress="fp16").changed_bits(2)[0]
    assert "threads" in Cures(threads=1).changed_bits(2)[0]
