"""Every text of a page can be read in light, in dark and on paper: WCAG's AA, a contrast of 4.5 to 1 at least."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from pyddpdiag.model.account import PARTS
from pyddpdiag.report.charts.chart import ROLES, brightness, colour, ink_on
from pyddpdiag.report.life import LIFE

CSS = files("pyddpdiag.report").joinpath("page.css").read_text(encoding="utf-8")
AA = 4.5


def palettes() -> dict[str, dict[str, str]]:
    """The colours by name, in each of the page's looks."""
    light, dark, paper = (
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root[^{]*\{([^}]*--paper:[^}]*)\}", CSS)
    )
    return {"light": light, "dark": {**light, **dark}, "paper": {**light, **paper}}


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def named(what: str) -> set[str]:
    """The names of colours that are given to texts, or to what is below them."""
    return set(re.findall(rf"(?<![-\w]){what}: var\(--([a-z]+)\)", CSS))


@pytest.mark.parametrize("look", ["light", "dark", "paper"])
def test_texts_stand_out_from_every_background(look: str) -> None:
    colours = palettes()[look]
    inks, backgrounds = named("color"), named("background")
    assert {"ink", "dim", "link", "warning", "good"} <= inks and {"paper", "soft"} <= backgrounds
    weak = {
        (ink, background): round(contrast(colours[ink], colours[background]), 2)
        for ink in inks
        for background in backgrounds
        if contrast(colours[ink], colours[background]) < AA
    }
    assert not weak
    # What is faint by being transparent has another contrast than its colour says.
    assert not re.search(r"(?<![-\w])opacity:", CSS)


@pytest.mark.parametrize("look", ["light", "dark", "paper"])
def test_numbers_on_a_heat_map_can_be_read_on_all_its_colours(look: str) -> None:
    colours = palettes()[look]
    ends = [[int(colours[end][at : at + 2], 16) for at in (1, 3, 5)] for end in ("low", "high")]
    for part in range(11):
        cell = "#" + "".join(f"{round(a + (b - a) * part / 10):02x}" for a, b in zip(*ends, strict=True))
        assert contrast(colours["ink"], cell) >= AA, cell


def test_texts_in_bars_can_be_read() -> None:
    for role in ROLES:
        assert contrast(colour(role), ink_on(colour(role))) >= AA, role


def test_the_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast(
        "#777777", "#ffffff"
    ) == pytest.approx(4.48, abs=0.01)


def test_no_two_parts_of_a_life_have_one_colour() -> None:
    taken = [colour(LIFE[part][1]) for part in PARTS]
    assert len(set(taken)) == len(taken)
