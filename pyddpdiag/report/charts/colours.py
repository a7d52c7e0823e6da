"""Colours by what they stand for: the same in every chart, distinguishable with any kind of colour vision.

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
    "phase": "#a0522d",
    "core": "#999933",
    "blocked": "#6b7079",
    "other": "#56b4e9",
    "optimizer": "#b59f6b",
    "rest": "#8a8f98",
    "good": "#009e73",
    "bad": "#d55e00",
    "same": "#8a8f98",
    "unsure": "#e69f00",
    "accent": "#0072b2",
    "ideal": "#8a8f98",
    "imports": "#a3b8a0",
    "set_up": "#c7b8d8",
    "tail": "#5f8a8b",
    "calls": "#8fd0ee",
    "between": "#e39a6d",
}

SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9b7fd1", "#8a8f98")


def colour(role: str) -> str:
    """The colour of a role, or of the series number `role`, as #rrggbb."""
    return ROLES[role] if role in ROLES else SERIES[int(role) % len(SERIES)]


def ink_on(background: str) -> str:
    """Black or white, whichever is read better on a colour."""
    # Against either of them, every colour has a contrast of 4.5 to 1 at least with one.
    return "#000000" if (brightness(background) + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def brightness(colour_: str) -> float:
    """Relative luminance of #rrggbb, 0 to 1, as the contrast of WCAG is made of."""
    parts = [int(colour_[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
