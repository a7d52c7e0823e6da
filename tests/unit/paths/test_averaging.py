"""The one table of ways to average: labels, and the names that stood for several options."""

from __future__ import annotations

import pytest

from pyddpdiag.bench.cases import HOOKS, NOT_OURS, hooks_of
from pyddpdiag.errors import UsageError
from pyddpdiag.paths.averaging import Averaging, HookKind, current_label, from_label, refuse_combined


@pytest.mark.parametrize(
    ("way", "label"),
    [
        (Averaging(), "native"),
        (Averaging(HookKind.PLAIN), "plain"),
        (Averaging(compress="bf16", shared_memory="auto"), "native+bf16+shared"),
        (Averaging(HookKind.TIMED, "fp16", True, "require"), "timed+fp16+feedback+required"),
        (Averaging(lanes=("eth0", "Ethernet 2")), "native+lanes=eth0,Ethernet 2"),
        (Averaging(HookKind.TIMED, lanes=("a+b=100", "c=2.5")), "timed+lanes=a+b=100,c=2.5"),
    ],
)
def test_a_label_names_one_way(way: Averaging, label: str) -> None:
    assert way.label == label and from_label(label) == way


def test_no_other_label_is_known() -> None:
    for wrong in ("", "noop", "native+bf16+bf16", "plain+bf16", "shared+native", "native+lanes=eth0"):
        assert from_label(wrong) is None
    for wrong in ("plain+lanes=eth0,eth1", "native+bf16+lanes=eth0,eth1", "native+lanes=eth0,eth1=7"):
        assert from_label(wrong) is None
    assert all(each in NOT_OURS or from_label(each) is not None for each in HOOKS)


def test_what_does_not_record_takes_no_options() -> None:
    for options in ({"compress": "bf16"}, {"lanes": ("eth0", "eth1")}):
        with pytest.raises(UsageError, match="--hook plain averages over Gloo"):
            Averaging(HookKind.PLAIN, **options)


def test_a_combined_name_is_read_and_refused_with_its_options() -> None:
    assert current_label("timed_bf16") == "timed+bf16" and current_label("torch_bf16") == "torch_bf16"
    with pytest.raises(UsageError) as refused:
        refuse_combined("bf16_feedback")
    assert "--hook native --compress bf16 --error-feedback" in refused.value.hint
    with pytest.raises(UsageError, match="--hook shared stands for"):
        hooks_of(["shared"])
    refuse_combined("native")


def test_axes_of_a_sweep_are_combined_for_the_hooks_that_record() -> None:
    labels = hooks_of(["plain", "native", "noop"], ["none", "bf16"], True, ["off", "auto"])
    assert labels == [
        *("plain", "native", "native+shared", "native+bf16+feedback"),
        *("native+bf16+feedback+shared", "noop"),
    ]
    several = hooks_of(["native"], ["none", "bf16"], False, ["off"], [(), ("eth0", "eth1")])
    assert several == ["native", "native+lanes=eth0,eth1", "native+bf16"]
    with pytest.raises(UsageError, match="lanes cannot be combined with compress"):
        hooks_of(["native"], ["bf16"], lanes=[("eth0", "eth1")])
    for wrong in ({"compress": ["int8"]}, {"shared_memory": ["yes"]}):
        with pytest.raises(UsageError):
            hooks_of(["native"], **wrong)
