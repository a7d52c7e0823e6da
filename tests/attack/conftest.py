"""The attacks in long form: `python3 dev.py attack`. What they came to is printed at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LINES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An attack ends by its own clock."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Takes what an attack came to, to be printed at the end under the test's name."""
    lines = request.config.stash.setdefault(LINES, [])

    def add(figure: object) -> None:
        lines.append(f"{request.node.name}: {figure}")

    return add


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what all attacks came to."""
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("attacks")
        for line in lines:
            terminalreporter.write_line(line)
