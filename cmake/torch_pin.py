"""Dependencies of the built wheel: the native module runs only with the torch minor it was built with.

A provider for scikit-build-core (`[[tool.dynamic-metadata]]` in pyproject.toml). The source distribution
keeps the whole range of torch versions, because its native module is still to be built.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any


class TorchPin:
    """Replaces torch's range in the settings' `dependencies` by the installed minor version."""

    def __init__(self) -> None:
        self._state = "wheel"

    def build_state(self, build_state: str) -> None:
        """Told by the build: sdist, wheel, editable, metadata_wheel or metadata_editable."""
        self._state = build_state

    def dynamic_metadata(self, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
        """`dependencies` of this build."""
        dependencies: list[str] = list(settings["dependencies"])
        torch_range: str = settings["torch"]
        pinned = torch_range if self._state == "sdist" else f"=={_torch_minor()}.*"
        return {"dependencies": sorted([*dependencies, f"torch{pinned}"])}

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """The wheel's dependencies differ from the source distribution's, which must say so."""
        return {"dependencies": True}


def _torch_minor() -> str:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "pyddpdiag is built against an installed torch, and there is none.\n"
            "hint: install torch first and build with 'pip install --no-build-isolation'"
        ) from None
    return ".".join(version.split(".")[:2])
