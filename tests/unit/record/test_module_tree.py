"""A module's tree is read as torch's own methods tell it."""

from __future__ import annotations

from torch import nn

from pyddpdiag.record.module_tree import inside, modules_in, parameters_in, trains


def _net() -> nn.Module:
    net = nn.Sequential(
        nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2, bias=False), nn.Dropout()), nn.Linear(2, 2)
    )
    net[1].again = net[0]
    net[2].weight = net[0].weight
    net.register_module("none", None)
    net.own = nn.Parameter(net[0].bias[:1].detach())
    return net


def test_modules_and_parameters_come_as_from_torch() -> None:
    net = _net()
    assert list(modules_in(net)) == list(net.named_modules())
    ours, torchs = list(parameters_in(net)), list(net.named_parameters())
    assert [name for name, _ in ours] == [name for name, _ in torchs]
    assert all(one is other for (_, one), (_, other) in zip(ours, torchs, strict=True))


def test_modes_are_those_that_are_held() -> None:
    net = _net()
    net[1].eval()
    assert trains(net) and not trains(net[1])
    assert inside(net) is net
    assert trains(type("Own", (nn.Module,), {"training": property(lambda _: 1 / 0, lambda *_: None)})())
