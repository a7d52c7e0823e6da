"""Colours by what they stand for: the same in every chart, told apart by people with any kind of colour vision.

Most are those of Okabe and Ito, of middle brightness: readable on white and on a dark page.
"""

from __future__ import annotations

from typing import Final

ROLES: Final = {
    "data": "#cc79a7",
    "forward": "#7a9cc6",
    "compute": "#4477aa",
    "late": "#e69f00",
    "queue": "#9b7fd1",
    "wire": "#009e73",
    "other": "#56b4e9",
    "optimizer": "#b59f6b",
    "rest": "#8a8f98",
    "good": "#009e73",
    "bad": "#d55e00",
    "same": "#8a8f98",
    "unsure": "#e69f00",
    "accent": "#0072b2",
    "ideal": "#8a8f98",
}

SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9b7fd1", "#8a8f98")


def colour(role: str) -> str:
    """The colour of a role, or of the series number `role`, as #rrggbb."""
    return ROLES[role] if role in ROLES else SERIES[int(role) % len(SERIES)]
