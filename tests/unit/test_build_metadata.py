"""The build's numbers are kept in several files; these tests hold them together."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANGE = ">=2.11,<2.14"


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def dependencies(state: str) -> list[str]:
    provider = load("cmake/torch_pin.py").TorchPin()
    provider.build_state(state)
    result: dict[str, Any] = provider.dynamic_metadata(
        {"torch": RANGE, "dependencies": ["typer>=1", "numpy>=1"]}, {}
    )
    assert list(result) == ["dependencies"]
    found: list[str] = result["dependencies"]
    return found


@pytest.mark.parametrize("state", ["wheel", "editable", "metadata_wheel", "metadata_editable"])
def test_a_wheel_is_pinned_to_the_minor_version_it_was_built_with(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.12.1+cpu"}[name])
    assert dependencies(state) == ["numpy>=1", "torch==2.12.*", "typer>=1"]


def test_the_source_distribution_keeps_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.12.1+cpu"}[name])
    assert dependencies("sdist") == ["numpy>=1", f"torch{RANGE}", "typer>=1"]
    assert load("cmake/torch_pin.py").TorchPin().dynamic_wheel({}) == {"dependencies": True}


def test_a_build_without_torch_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(SystemExit, match="no-build-isolation"):
        dependencies("wheel")


def test_the_installed_package_requires_the_torch_it_runs_with() -> None:
    try:
        requires = importlib.metadata.requires("pyddpdiag") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pyddpdiag is on the path and not installed; dev.py installs it")
    minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    assert [r for r in requires if re.match(r"torch\b", r)] == [f"torch=={minor}.*"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_the_range_of_torch_is_one_range() -> None:
    import tomllib

    project = tomllib.loads(read("pyproject.toml"))
    [provider] = project["tool"]["dynamic-metadata"]
    assert provider["torch"] == RANGE
    assert f"torch{RANGE}" in project["build-system"]["requires"]
    assert "torch_minor VERSION_LESS 2.11" in read("cmake/module.cmake")
    for file, line in (
        ("noxfile.py", r"^TORCH_VERSIONS = \((.*)\)$"),
        (".github/workflows/wheels.yml", r"^ +torch: \[(.*)\]$"),
    ):
        match = re.search(line, read(file), re.MULTILINE)
        assert match is not None, file
        minors = [v.strip(' "').rpartition(".")[0] for v in match[1].split(",")]
        assert minors == ["2.11", "2.12", "2.13"], file


def test_every_preset_that_is_used_exists() -> None:
    presets = json.loads(read("CMakePresets.json"))
    configured = {p["name"] for p in presets["configurePresets"]}
    tested = {p["name"] for p in presets["testPresets"]}
    assert {"dev", "asan", "tsan", "coverage", "tidy"} <= configured
    used = set(re.findall(r'native_tests\([^"]*?"(\w+)"', read("noxfile.py")))
    assert used == {"dev", "asan", "tsan", "windows"}
    assert used <= configured & tested
    for preset in presets["configurePresets"]:
        # Without torch, unless the whole point is the module.
        module = preset.get("cacheVariables", {}).get("PYDDPDIAG_MODULE", "OFF")
        assert (module == "ON") == (preset["name"] == "tidy")


def test_every_native_source_is_built() -> None:
    built = read("cmake/module.cmake") + read("csrc/CMakeLists.txt")
    for path in sorted((ROOT / "csrc").rglob("*.cpp")):
        assert f"{path.parent.name}/{path.name}" in built, f"{path.name} is in no CMake file"
    tested = read("tests/native/CMakeLists.txt")
    for path in sorted((ROOT / "tests" / "native").glob("*_test.cpp")):
        assert re.search(rf"\b{path.stem.removesuffix('_test')}\b", tested), f"{path.name} is not built"
