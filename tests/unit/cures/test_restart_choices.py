"""What `pyddpdiag try --restart` tries, from the names that a user gives and what a first start shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyddpdiag.cures.options import Cures
from pyddpdiag.errors import UsageError
from pyddpdiag.integrations.restart_choices import Seen, seen, settings, wanted_of
from pyddpdiag.model.sidecar import Interface, Sidecar

RUN = Seen(ranks=2, cores=8, threads=1, hosts=1, interfaces=("eth0", "lo"), in_use="lo")


def tried(text: str, today: Cures = Cures(), run: Seen = RUN) -> dict[str, Cures]:  # noqa: B008
    found, _ = settings(wanted_of(text), today, run)
    return {one.name: one.cures for one in found}


def test_by_default_it_tries_what_only_another_process_can_have() -> None:
    assert tried("") == {
        "interface eth0": Cures(interfaces=("eth0",)),
        "threads 4": Cures(threads=4),
        "pin-ranks": Cures(pin_ranks=True),
    }


def test_each_cure_is_added_to_what_the_run_has() -> None:
    today = Cures(shared_memory="auto", bucket_cap_mb=4)
    assert tried("compress=fp16,buckets=1:4.5", today) == {
        "compress fp16": replace(today, compress="fp16"),
        "buckets 1:4.5": replace(today, bucket_cap_mb=None, bucket_cap_mb_list=(1, 4.5)),
    }


def test_cures_can_be_on_together() -> None:
    assert tried("shared-memory+views,interface=eth0+eth1+threads=3") == {
        "shared-memory + views": Cures(shared_memory="auto", gradient_as_bucket_view=True),
        "interface eth0+eth1 + threads 3": Cures(interfaces=("eth0", "eth1"), threads=3),
    }
    assert list(tried("views+workers")) == ["views + workers 1", "views + workers 2"]
    found, notes = settings(wanted_of("views+threads"), Cures(), replace(RUN, cores=2))
    assert not found
    assert notes == ["views+threads is not tried: threads: the ranks have the threads that fit their cores."]


def test_what_the_run_has_already_is_not_tried_and_said() -> None:
    found, notes = settings(
        wanted_of("views,threads"), Cures(gradient_as_bucket_view=True), replace(RUN, cores=2)
    )
    assert not found
    assert notes == [
        "views is not tried: today has it already.",
        "threads is not tried: the ranks have the threads that fit their cores.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo", "there is no cure 'foo'"),
        ("views,", "there is no cure ''"),
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
        wanted_of(text)


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
    assert run == Seen(1, 2, 2, 2, ("fast", "slow"), "slow")
    assert list(tried("interface", run=run)) == ["interface fast"]
    assert seen([one, replace(other, host="a")]).interfaces == ("fast", "lo", "slow")
