"""What is called in an optimizer's next step leaves the optimizer as it was."""

import copy
import pickle

import torch

from pyddpdiag.integrations import alone


class Whole(torch.optim.SGD):
    """One whose pickle has its hooks."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__.copy()


def test_it_is_called_once_and_removed_while_other_hooks_stay() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer, order = Whole([weight], 0.1), list[str]()
    alone.at_next_step(optimizer, lambda: order.append("ours"))
    optimizer.register_step_post_hook(lambda *_: order.append("own"))
    optimizer.step()
    alone.forget_called()
    optimizer.step()
    assert order == ["ours", "own", "own"] and not alone.called
    assert len(optimizer._optimizer_step_post_hooks) == 1


def test_an_optimizer_can_be_copied_before_the_call() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer, called = Whole([weight], 0.1), list[int]()
    alone.at_next_step(optimizer, lambda: called.append(1))
    pickled = pickle.dumps(optimizer)
    assert b"pyddpdiag" not in pickled
    for each in (pickle.loads(pickled), copy.deepcopy(optimizer)):
        each.step()
    assert called == [] and not alone.called


def test_an_error_of_what_is_called_ends_no_step() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Whole([weight], 0.1)
    alone.at_next_step(optimizer, lambda: [][1])
    optimizer.step()
    alone.forget_called()
    assert not optimizer._optimizer_step_post_hooks
