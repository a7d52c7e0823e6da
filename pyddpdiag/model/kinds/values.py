"""Kinds about what the model learns: gradients, weights, data, modes, checkpoints. They cost no time."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.kinds.kind import Kind

VALUES: Final = (
    Kind(
        "non_finite_gradient",
        ("error", "note"),
        "gradients of {ranks} are not finite{when}",
        many="some rank",
        part="gradients",
    ),
    Kind(
        "different_sums",
        ("error",),
        "the ranks held different gradients after an all-reduce",
        part="gradients",
        leads_to=("different_weights",),
    ),
    Kind(
        "unreduced_parameters",
        ("error", "warning"),
        "the optimizer steps with gradients that were not averaged",
        leads_to=("different_weights",),
    ),
    Kind("not_reduced", ("error",), "each rank trains a model of its own"),
    Kind("weights_unchanged", ("error",), "the weights do not change"),
    Kind(
        "different_weights",
        ("error", "note"),
        "the weights differ between the ranks",
        explained_by=("different_sums", "unreduced_parameters"),
    ),
    Kind("schedule_ended", ("error", "warning"), "the learning rate's schedule does not fit the training"),
    Kind("gradients_cleared", short="gradients are cleared at the wrong moment"),
    Kind("different_splits", ("error",), "the ranks divide different data"),
    Kind("same_data", ("error", "warning"), "ranks train on the same data"),
    Kind("epoch_not_set", short="DistributedSampler.set_epoch was never called"),
    Kind("left_in_eval", ("warning", "note"), "the model is trained in evaluation mode"),
    Kind("same_checkpoint", ("warning", "note"), "ranks save into the same file"),
)
