"""Dependencies of the built wheel: the native module runs only with the torch minor it was built with.

A provider for scikit-build-core (`[[tool.dynamic-metadata]]` in pyproject.toml). The source distribution
keeps the whole range of torch versions, because its native module is still to be built.
"""

from __future__ import annotations

import importlib.metadata
import sysconfig
from collections.abc import Mapping
from typing import Any


class TorchPin:
    """Replaces torch's range in the settings' `dependencies` by the installed minor version."""

    def __init__(self) -> None:
        self._state = "wheel"

    def build_state(self, build_state: str) -> None:
        """BucketKey by the build: sdist, wheel, editable, metadata_wheel or metadata_editable."""
        self._state = build_state

    def dynamic_metadata(self, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
        """`dependencies` of this build."""
        dependencies: list[str] = list(settings["dependencies"])
        torch_range: str = settings["torch"]
        pinned = torch_range if self._state == "sdist" else f"=={_torch_minor(torch_range)}.*"
        return {"dependencies": sorted([*dependencies, f"torch{pinned}"])}

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """The wheel's dependencies differ from the source distribution's, which must say so."""
        return {"dependencies": True}


def _torch_minor(torch_range: str) -> str:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "pyddpdiag is built against an installed torch, and there is none.\n"
            "hint: install torch first and build with 'pip install --no-build-isolation'"
        ) from None
    minor = _minor(version)
    oldest = torch_range.partition(">=")[2].partition(",")[0]
    if _numbers(minor) < _numbers(oldest):
        raise SystemExit(
            f"torch {version} is too old: pyddpdiag needs {oldest} or newer.\n"
            f"hint: pip install 'torch{torch_range}', then build again"
        ) from None
    users = _users_torch()
    if users is not None and _minor(users) != minor:
        raise SystemExit(
            f"pip builds pyddpdiag against torch {version} here, and would replace your torch {users} by it.\n"
            "hint: build it for the torch that you have: pip install scikit-build-core cmake ninja && "
            "pip install --no-build-isolation .\n"
            f"or take the newer one first: pip install 'torch=={minor}.*'"
        ) from None
    return minor


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor.split("."))


def _users_torch() -> str | None:
    """The torch of the environment that is installed into. pip's isolated build hides it, but not its folder."""
    folders = [sysconfig.get_paths()[name] for name in ("purelib", "platlib")]
    found = importlib.metadata.distributions(name="torch", path=list(dict.fromkeys(folders)))
    return next((distribution.version for distribution in found), None)
