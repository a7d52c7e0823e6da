"""What can be asked of a trial, and which cures a module allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pyddpdiag
from pyddpdiag.cures.options import Cures, from_options
from pyddpdiag.cures.trial_candidates import Run, bucket_sizes, candidates, wanted_of
from pyddpdiag.cures.trial_options import from_text, to_text
from pyddpdiag.errors import UsageError
from pyddpdiag.integrations.restart_trial import seen
from pyddpdiag.model.sidecar import Interface, Sidecar
from pyddpdiag.model.tried import TriedCure

RUN = Run(ranks=2, in_run=True, gradient_bytes=100 * 2**20, dtypes=frozenset({"float32"}), keeps_layout=False)
STARTS = Run(ranks=2, here=2, cores=8, threads=1, interfaces=("eth0", "lo"), in_use="lo")


@pytest.mark.parametrize(
    "options",
    [
        {"cures": ["magic"]},
        {"cures": ["views+magic"]},
        {"cures": ["views+views"]},
        {"cures": ["compress+compress-fp16"]},
        *[{"cures": ["buckets=x"]}, {"cures": ["buckets=-1"]}, {"cures": ["buckets=1:0"]}],
        *[{"cures": ["views=2"]}, {"cures": ["threads=2"]}, {"cures": "views"}, {"minutes": 0}],
        *[{"minutes": float("nan")}, {"keep": "all"}],
    ],
)
def test_what_cannot_be_right_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        pyddpdiag.Trial(**options)


def test_options_reach_the_ranks() -> None:
    trial = pyddpdiag.Trial(["views+buckets=1:4", "compress"], minutes=0.5, keep="none", stop=True)
    assert from_text(to_text(trial)) == trial


def of(names: str, run: Run) -> list[TriedCure]:
    wanted = [wanted_of(name, in_run=run.in_run) for name in names.split(",") if names]
    return candidates(wanted, run)


def tried(names: str, run: Run = RUN) -> dict[str, Cures]:
    return {each.name: from_options(each.options) for each in of(names, run) if not each.left}


def left(names: str, run: Run = RUN) -> dict[str, str]:
    return {each.name: each.left for each in of(names, run) if each.left}


def test_defaults_at_two_ranks() -> None:
    assert tried("") == {
        "shared memory": Cures(shared_memory="auto"),
        "buckets of 110 MiB": Cures(bucket_cap_mb=110),
        "buckets of 50 MiB": Cures(bucket_cap_mb=50),
        "buckets of 6.3 MiB": Cures(bucket_cap_mb=6.3),
    }


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"ranks": 4}, {"shared memory"}),
        ({"ranks": 3}, set()),  # a hook divides by 3, DDP multiplies by a third
        ({"one_host": False, "ranks": 4}, set()),
        ({"dtypes": frozenset({"bfloat16"}), "ranks": 4}, set()),
        ({"no_rebuild": "static"}, {"shared memory"}),
        ({"today": Cures(shared_memory="auto"), "no_rebuild": "static"}, set()),
    ],
)
def test_defaults_keep_the_bits(change: dict[str, Any], names: set[str]) -> None:
    run = replace(RUN, **change)
    assert set(tried("", run)) == names
    assert all(each.same_bits or "; --cures" in each.left for each in of("", run))


@pytest.mark.parametrize(
    ("ranks", "keeps_layout", "same"),
    [(2, False, True), (4, False, False), (4, True, True), (3, True, False)],
)
def test_views_keep_the_bits_where_the_layout_stays(ranks: int, keeps_layout: bool, same: bool) -> None:
    [views] = of("views", replace(RUN, ranks=ranks, keeps_layout=keeps_layout))
    assert views.same_bits is same


def test_values_are_named_and_cures_are_on_together() -> None:
    assert tried("buckets=4,buckets=1:4:25,shared-memory+views,compress+buckets=0.5,error-feedback") == {
        "buckets of 4 MiB": Cures(bucket_cap_mb=4),
        "buckets of 1, 4, 25 MiB": Cures(bucket_cap_mb_list=(1, 4, 25)),
        "shared memory + views": Cures(shared_memory="auto", gradient_as_bucket_view=True),
        "bf16 + buckets of 0.5 MiB": Cures(compress="bf16", bucket_cap_mb=0.5),
        "bf16 with error feedback": Cures(compress="bf16", error_feedback=True),
    }
    assert not of("compress+views", RUN)[0].same_bits
    # Each size that fits the module, and views with it.
    assert len(tried("views+buckets")) == 3
    assert tried("interface=eth0+eth1+threads=3", STARTS) == {
        "interface eth0, eth1 + threads 3": Cures(interfaces=("eth0", "eth1"), threads=3)
    }
    assert list(tried("views+workers", STARTS)) == ["views + workers 1", "views + workers 2"]


def test_by_starts_it_tries_what_only_another_process_can_have() -> None:
    assert tried("", STARTS) == {
        "interface eth0": Cures(interfaces=("eth0",)),
        "threads 4": Cures(threads=4),
        "pin-ranks": Cures(pin_ranks=True),
    }


def test_each_cure_is_added_to_what_the_run_has() -> None:
    today = Cures(shared_memory="auto", bucket_cap_mb=4)
    assert tried("compress=fp16,buckets=1:4.5", replace(STARTS, today=today)) == {
        "fp16": replace(today, compress="fp16"),
        "buckets of 1, 4.5 MiB": replace(today, bucket_cap_mb=None, bucket_cap_mb_list=(1, 4.5)),
    }


@pytest.mark.parametrize(("ranks", "same"), [(2, True), (3, False), (4, True)])
def test_connections_keep_the_bits_where_a_division_is_exact(ranks: int, same: bool) -> None:
    run = replace(RUN, ranks=ranks, one_host=False)
    (cure,) = candidates([wanted_of("connections", in_run=True)], run)
    assert (cure.left, cure.options, cure.same_bits) == ("", {"--connections": "4"}, same)


def test_what_cannot_be_tried_says_why() -> None:
    assert left("compress+views", replace(RUN, views=True)) == {
        "compress + views": "views: gradients are views of the buckets already"
    }
    assert left("compress+views", replace(RUN, no_rebuild="static")) == {"compress + views": "static"}
    run = replace(STARTS, today=Cures(compress="bf16"), cores=2)
    assert left("compress,threads", run) == {
        "compress": "the run has it already",
        "threads": "the ranks have the threads that fit their cores",
    }
    assert "the ranks are on one host" in left("connections", replace(RUN, one_host=True))["connections"]
    assert (
        "lanes cannot be combined"
        in left("compress", replace(RUN, today=Cures(lanes=("a", "b"))))["compress"]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo", "there is no cure 'foo'"),
        ("", "there is no cure ''"),
        ("threads=many", "no value of threads"),
        ("threads=0", "no value of threads"),
        ("compress=int8", "compress=int8: that is no value of compress"),
        ("views=1", "no value of views"),
        ("buckets=1:x", "no value of buckets"),
        ("workers=0", "no value of workers"),
        ("views+foo", "there is no cure 'foo'"),
        ("threads=2+threads=3", "names one thing twice"),
    ],
)
def test_a_wrong_name_or_value_is_said_before_anything_starts(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        wanted_of(text, in_run=False)


def test_of_several_hosts_only_common_interfaces_are_tried_and_no_loopback() -> None:
    faces = {
        "lo": Interface(("127.0.0.1/8",)),
        "fast": Interface(("10.0.0.1/24",)),
        "slow": Interface(("10.0.1.1/24",)),
        "down": Interface(("10.0.2.1/24",), up=False),
    }
    environment = {"GLOO_SOCKET_IFNAME": "slow"}
    one = Sidecar(host="a", cores=(0, 1), torch_threads=2, interfaces=faces, environment=environment)
    other = replace(one, host="b", interfaces={**faces, "own": Interface(("10.0.3.1/24",))})
    run = seen([one, other])
    assert (run.ranks, run.here, run.cores, run.threads, run.one_host) == (2, 1, 2, 2, False)
    assert run.interfaces == ("fast", "slow") and list(tried("interface", run)) == ["interface fast"]
    assert seen([one, replace(other, host="a")]).interfaces == ("fast", "lo", "slow")


@pytest.mark.parametrize(
    ("parameters", "sizes"),
    [
        ((900 * 2**10,), []),  # one parameter is one bucket, whatever the cap
        ((450 * 2**10,) * 2, [0.22]),  # 0.44 MiB holds a little more than one of them: one bucket, as today
    ],
)
def test_each_bucket_layout_is_offered_once(parameters: tuple[int, ...], sizes: list[float]) -> None:
    run = replace(RUN, gradient_bytes=sum(parameters), parameter_bytes=parameters)
    assert bucket_sizes(run) == sizes
