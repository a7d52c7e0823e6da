"""The ranks disagree about how many they are."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import listed


def _look(view: RunView) -> Iterator[Finding]:
    sizes = sorted({header.world_size for header in view.headers})
    if len(sizes) < 2:
        return
    listed_sizes = listed((f"rank {header.rank}: {header.world_size}" for header in view.headers), 4)
    yield Finding(
        kind="world_size_differs",
        severity="error",
        message=f"the ranks disagree about the world size ({listed_sizes}).",
        confidence="certain",
        evidence={"smallest": sizes[0], "largest": sizes[-1]},
        change_mind="The traces belong to different runs.",
        advice="Start every rank with the same world size: the first collective hangs otherwise.",
    )


CHECK = Check(("world_size_differs",), _look, rests_on="records")
