"""The last line of defence of a trial: weights that were equal on all ranks before it stay equal, or nobody goes on.

A program may change the weights of single ranks itself. So only those count that were equal when the trial began, and
still were at the end of each block with the script's own setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from pyddpdiag import _native
from pyddpdiag.model.tried import TODAY

MOST_BYTES: Final = 2**26
"""Of weights that are compared after every block, in some 10 ms. Larger ones are compared when the trial ends."""


class Weights:
    """Those of one rank that its reducer reduces; on rank 0 also what is known of all ranks'.

    Args:
        parameters: by name, in the same order on all ranks.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = dict(parameters)
        self._equal: list[bool] | None = None

    @property
    def few(self) -> bool:
        """Whether they can be compared after every block."""
        return sum(one.nbytes for one in self._parameters.values()) <= MOST_BYTES

    def marks(self) -> list[str]:
        """A checksum of each; empty for one that cannot be read, as on an accelerator."""
        found = _native.weight_marks([one.detach() for one in self._parameters.values()])
        return ["" if one is None else f"{one[0]:x}" for one in found]

    def compared(self, brought: Sequence[Mapping[str, Any]], on: str) -> str:
        """On rank 0: what is wrong, in words that go on a sentence; empty: nothing.

        Args:
            brought: each rank's `marks`, and which parameters its reducer is `lacking`.
            on: as in `judge`.
        """
        for rank, one in enumerate(brought):
            if one["lacking"]:
                return f"the reducer of rank {rank} does not hold '{one['lacking'][0]}'"
        apart = self.judge([one["marks"] for one in brought], on)
        return apart and f"the weights are not the same on all ranks any more: {apart}"

    def judge(self, brought: Sequence[Sequence[str]], on: str) -> str:
        """On rank 0: which weights have come to differ while a cure was on, in a sentence; empty: none.

        Args:
            brought: what `marks` found on each rank.
            on: the name of the latest cure that was on since the last look; `TODAY`: none was.
        """
        if len({len(marks) for marks in brought}) != 1:
            return ""
        before, self._equal = self._equal, [len(set(marks)) == 1 for marks in zip(*brought, strict=True)]
        if before is None or on == TODAY:
            return ""
        for name, was, equal, marks in zip(
            self._parameters, before, self._equal, zip(*brought, strict=True), strict=True
        ):
            if was and not equal:
                return f"'{name}' is {_others(marks)}"
        return ""


def _others(marks: Sequence[Any]) -> str:
    """Which ranks have other weights than most; all of them, where no half agrees."""
    (most, number), *_ = Counter(marks).most_common(1)
    others = [str(rank) for rank, mark in enumerate(marks) if mark != most]
    if 2 * number <= len(marks):
        return "different on ranks " + ", ".join(map(str, range(len(marks))))
    return f"different on rank{'s' if len(others) > 1 else ''} {', '.join(others)}"
