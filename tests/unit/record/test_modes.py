"""In which mode modules are trained."""

import weakref

import pytest
from torch import nn

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.modes import Mode
from pyddpdiag.record.modes import Modes, layers_without_effect


class Wrapper(nn.Module):
    """As DDP, it has the script's module as `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_looks_count_since_the_mode_changed() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.BatchNorm1d(2))
    wrapper = Wrapper(net)
    found: list[int] = []
    modes = Modes(lambda: found.append(1))
    owner = weakref.ref(wrapper)
    for step in range(3):
        modes.look(0, owner, step)
    net.eval()  # not the wrapper
    for step in range(3, 7):
        modes.look(0, owner, step)
    assert modes.modes() == (Mode(0, looks=7, before=3, since_step=3, dropouts=1, norms=1),)
    assert found == [1]
    wrapper.train()
    modes.look(0, owner, 7)
    assert modes.modes() == (Mode(0, looks=8, before=8),)
    for one in modes.modes():
        assert from_json(Mode, to_json(one)) == one


class OddDropout(nn.Dropout):
    """Its probability is not known before it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.p = None  # type: ignore[assignment]


def test_what_is_gone_or_no_module_or_odd_is_not_looked_at() -> None:
    modes = Modes(lambda: None)
    odd = Wrapper(OddDropout().eval())
    modes.look(2, weakref.ref(odd), 1)
    wrapper = Wrapper(nn.Linear(1, 1))
    owner = weakref.ref(wrapper)
    del wrapper
    modes.look(0, owner, 1)
    modes.look(1, None, 1)
    assert modes.modes() == ()


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Dropout(0.1), (1, 0)),
        (nn.Dropout(0.0), (0, 0)),
        (nn.Dropout2d(0.5), (1, 0)),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), (1, 0)),
        (nn.LSTM(2, 2), (0, 0)),
        (nn.MultiheadAttention(2, 1, dropout=0.1), (1, 0)),
        (nn.BatchNorm2d(2), (0, 1)),
        (nn.BatchNorm2d(2, track_running_stats=False), (0, 0)),
        (nn.SyncBatchNorm(2), (0, 1)),
        (nn.LayerNorm(2), (0, 0)),
        (nn.TransformerEncoderLayer(4, 2, 4, 0.1), (4, 0)),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else None,
)
def test_layers_that_do_something_else_in_evaluation_mode(
    layer: nn.Module, expected: tuple[int, int]
) -> None:
    assert layers_without_effect(layer) == (0, 0)
    assert layers_without_effect(layer.eval()) == expected


def test_a_layer_that_is_frozen_by_itself_is_not_counted_beside_others() -> None:
    net = nn.Sequential(nn.Dropout(0.1), nn.BatchNorm1d(2))
    net[1].eval()
    assert layers_without_effect(net) == (0, 1)
