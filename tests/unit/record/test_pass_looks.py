"""Of what gradients an optimizer's steps consist, by how their backward passes began; and who sees the looks."""

import weakref
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pyddpdiag import _native
from pyddpdiag.model.clearing import Clearing
from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.modes import Modes
from pyddpdiag.record.optimizers import Optimizers
from pyddpdiag.record.pass_looks import Begun, PassLooks
from pyddpdiag.record.reduced import Reduced

FRESH, ADDS = Begun(True, False, "a"), Begun(False, False, None)
LOCAL = Begun(True, True, "a")


@pytest.mark.parametrize(
    ("passes", "seen"),
    [
        ([FRESH], (1,)),
        ([ADDS], (1, 1)),  # zero_grad is missing
        ([LOCAL, Begun(False, True, None), ADDS], (1,)),  # accumulates
        ([Begun(False, True, None), ADDS], (1, 1)),
        ([LOCAL, LOCAL, FRESH], (1, 0, 1)),  # zero_grad in each pass
        ([LOCAL, Begun(True, False, "b")], (1,)),  # SAM: the weights are elsewhere
        ([FRESH, FRESH], (1, 0, 0, 1)),  # each average is used
        ([ADDS, FRESH, ADDS], (1, 0, 0, 1)),  # a discriminator, after the generator's pass
        ([FRESH, None], ()),  # not all of its passes were looked at
    ],
)
def test_how_gradients_were_cleared(passes: list[Begun | None], seen: tuple[int, ...]) -> None:
    looks, reduced = PassLooks(), 0
    for times in (1, 2):
        for one in passes:
            if one is not None:
                looks.note(one)
            if one is not None and one.local:
                looks.note_local(reduced)
            else:
                reduced += 1
        looks.steps(reduced)
        assert looks.clearing == Clearing(*(times * each for each in seen))


def test_a_pass_begins_without_gradients_that_it_could_add_to() -> None:
    """By those that have been there, small and dense: others say nothing."""
    used, unused = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    rows, wide = torch.nn.EmbeddingBag(9, 4, sparse=True, mode="sum"), torch.nn.Linear(4, 5000)
    parameters = [*unused.parameters(), *rows.parameters(), *wide.parameters(), *used.parameters()]
    looks = PassLooks()
    seen = [looks.begins(local=False)]
    for clears in (False, None, False, True):
        between = used(rows(torch.tensor([[1, 2]]))).sum() + wide(torch.ones(4)).sum()
        between.backward()
        looks.steps(1, map(weakref.ref, parameters))
        if clears is not None:
            for one in (used, rows, wide):
                one.zero_grad(set_to_none=clears)
        seen.append(looks.begins(local=False))
    assert seen == [None, True, False, True, True]


def test_nothing_is_known_where_no_gradient_can_be_read_in_no_time() -> None:
    wide, looks = torch.nn.Linear(100, 50, bias=False), PassLooks()
    wide(torch.ones(100)).sum().backward()
    looks.steps(1, map(weakref.ref, wide.parameters()))
    assert looks.begins(local=False) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("dense", [True, False])
def test_a_gradient_of_zeros_is_none(dtype: torch.dtype, dense: bool) -> None:
    """Also one of -0; read in place, whatever lies between its values."""
    parameter = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    parameter.grad = (
        (torch.zeros(6, 8, dtype=dtype)[::2, ::2] if not dense else torch.zeros(3, 4, dtype=dtype)).t().t()
    )
    gradient = parameter.grad
    assert gradient.is_contiguous() is dense
    assert _native.are_without_gradients([parameter])
    gradient.fill_(-0.0)
    assert _native.are_without_gradients([parameter])
    for value in (1e-30, float("nan"), -1.0):
        gradient.zero_()[2, 3] = value
        assert not _native.are_without_gradients([parameter])


class Calls(TorchFunctionMode):
    """Counts what a mode of functions sees."""

    seen = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what a mode of operations sees."""

    seen = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return function(*args, **(kwargs or {}))


def test_no_mode_of_the_script_sees_the_looks() -> None:
    """Neither at passes nor at an optimizer's steps: also one that goes on with a loaded state."""

    def trained(watched: bool) -> tuple[int, int]:
        model = torch.nn.Linear(3, 2)
        looks = PassLooks()
        parameters: list[weakref.ref[torch.Tensor]] = [weakref.ref(one) for one in model.parameters()]
        core: Any = MagicMock(paused=False, current_step=0)
        core.layouts.return_value = []
        native = MagicMock(index=0, passes=0, names=["weight", "bias"])
        watch = Optimizers(core, lambda: None, Modes(lambda: None), AveragedAgain())
        if watched:
            watch.add(Reduced(native, parameters, looks=looks))
        try:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.state[model.weight] = {"step": torch.tensor(4.0)}
            with Calls() as calls, Operations() as operations:  # type: ignore[no-untyped-call]
                for step in range(3):
                    model(torch.ones(1, 3)).sum().backward()
                    if watched:
                        looks.begins(local=False)
                    native.passes += step != 1
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=False)
        finally:
            watch.close()
        assert not watched or (looks.clearing.steps and watch.unreduced() and watch.stepped()[0].settings)
        return calls.seen, operations.seen

    assert trained(watched=True) == trained(watched=False)
