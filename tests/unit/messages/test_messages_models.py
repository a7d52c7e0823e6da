"""Advice about the model that DDP wraps: one text of DDP's stands for several cases, each with its own way out."""

import pytest

from pyddpdiag.messages.explain import explain

UNUSED = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your "
)
LOSS = (
    f"{UNUSED}module has parameters that were not used in producing loss. You can enable unused parameter detection by "
    "passing the keyword argument `find_unused_parameters=True`.\n"
    "Parameter indices which did not receive grad for rank 0: 2 3"
)
CHANGED = (
    f"{UNUSED}training graph has changed in this iteration, e.g., one parameter is used in first iteration, but then "
    "got unused in the second iteration. this is not compatible with static_graph set to True."
)


def test_a_changed_graph_is_no_matter_of_unused_parameters_alone() -> None:
    """Beside static_graph=True, find_unused_parameters=True raises the same error again."""
    found = explain(CHANGED)
    assert found.kind == "graph_changed"
    assert found.fix.startswith("Pass static_graph=False")
    assert found.lines and all("static_graph=False" in line for line in found.lines)


@pytest.mark.parametrize(
    "where", ["", '  File "/x/site-packages/transformers/trainer.py", line 2118, in train\n']
)
def test_a_head_that_was_replaced_after_wrapping_is_a_matter_of_the_order(where: str) -> None:
    """With find_unused_parameters=True the run goes on, and the ranks drift apart."""
    found = explain(f"{where}{LOSS}")
    assert found.kind.startswith("unused_parameters")
    assert "replaced after" in found.fix and "does not reduce" in found.fix
    # Right where they are left out on purpose.
    assert "find_unused_parameters=True" in found.fix


def test_unused_parameters_are_no_matter_of_a_static_graph() -> None:
    assert "static_graph" not in explain(LOSS).fix


def test_parameters_without_a_gradient_are_named_where_the_log_names_them() -> None:
    text = (
        "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n"
        "[rank1]: Parameters which did not receive grad for rank 1: head.aux.weight, head.aux.bias\n"
    )
    found = explain(text)
    assert found.kind == "unused_parameters_named" and found.cause.startswith(
        "Parameters of rank 1, head.aux.weight among"
    )
    assert not found.lines and "TORCH_DISTRIBUTED_DEBUG" not in found.fix


def test_a_loader_worker_that_crashes_is_not_one_that_ran_out_of_memory() -> None:
    found = explain("RuntimeError: DataLoader worker (pid 19) is killed by signal: Segmentation fault. ")
    assert found.kind == "loader_worker_crashed" and "native code" in found.cause
