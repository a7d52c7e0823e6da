"""The build's numbers are kept in several files; these tests hold them together."""

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": "none", "platlib": "none"})
    assert dependencies(state) == ["numpy>=1", "torch==2.12.*", "typer>=1"]


def test_the_source_distribution_keeps_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.12.1+cpu"}[name])
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": "none", "platlib": "none"})
    assert dependencies("sdist") == ["numpy>=1", f"torch{RANGE}", "typer>=1"]
    assert load("cmake/torch_pin.py").TorchPin().dynamic_wheel({}) == {"dependencies": True}


def test_a_build_without_torch_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(SystemExit, match="no-build-isolation"):
        dependencies("wheel")


def test_a_torch_that_is_too_old_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.9.1"}[name])
    with pytest.raises(SystemExit) as refused:
        dependencies("metadata_wheel")
    first, hint = str(refused.value).splitlines()
    assert first == "torch 2.9.1 is too old: pyddpdiag needs 2.11 or newer."
    assert f"pip install 'torch{RANGE}'" in hint


def test_the_users_torch_is_not_replaced_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in pip's isolated build: another torch is imported than the environment has."""
    info = tmp_path / "torch-2.12.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1\n", encoding="utf-8")
    paths = {"purelib": str(tmp_path), "platlib": str(tmp_path)}
    monkeypatch.setattr("sysconfig.get_paths", lambda: paths)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.13.0"}[name])
    with pytest.raises(SystemExit, match=r"would replace your torch 2\.12\.1") as refused:
        dependencies("wheel")
    assert "--no-build-isolation" in str(refused.value)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.12.1"}[name])
    assert "torch==2.12.*" in dependencies("wheel")
    # Nothing is installed by a source distribution.
    assert f"torch{RANGE}" in dependencies("sdist")


def test_the_release_page_is_one_address() -> None:
    """`pip --find-links` reads the page of a release's files, and no other of it."""
    import pyddpdiag

    text = read("docs/wheels.md")
    pages = re.findall(r"https://\S+/releases/\S*", text)
    form = r"https://github\.com/[\w-]+/pyddpdiag/releases/expanded_assets/v(\d+\.\d+\.\d+)"
    assert len(pages) == 1
    match = re.fullmatch(form, pages[0])
    assert match is not None and match[1] == pyddpdiag.__version__
    newest = re.search(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None and newest[1] in (pyddpdiag.__version__, "Unreleased")
    assert text.count("--find-links $RELEASE_PAGE") == text.count("--find-links") > 0


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
    _, provider = project["tool"]["dynamic-metadata"]
    assert provider["torch"] == RANGE
    assert f"torch{RANGE}" in project["build-system"]["requires"]
    assert "torch_minor VERSION_LESS 2.11" in read("cmake/module.cmake")


def torch_versions(file: str, line: str) -> list[str]:
    match = re.search(line, read(file), re.MULTILINE)
    assert match is not None, f"{file} has no line like {line}"
    return [version.strip(' "') for version in match[1].split(",")]


def test_every_list_of_torch_versions_is_one_list() -> None:
    """One patch release of each minor in the range, the same ones everywhere."""
    oldest, beyond = (int(bound) for bound in re.findall(r"2\.(\d+)", RANGE))
    minors = [f"2.{minor}" for minor in range(oldest, beyond)]
    versions = torch_versions("noxfile.py", r"^TORCH_VERSIONS = \((.*)\)$")
    assert [version.rpartition(".")[0] for version in versions] == minors
    assert torch_versions(".github/workflows/wheels.yml", r"^ +torch: \[(.*)\]$") == versions
    assert torch_versions(".github/workflows/benchmarks.yml", r"^ +PYDDPDIAG_TORCH: (.*)$") == versions[-1:]
    span = f"{minors[0]} to {minors[-1]}"
    for file, words in (
        ("docs/wheels.md", f"torch {span} with cibuildwheel"),
        ("README.md", f"the headers of torch {span}"),
        (
            "README.md",
            f"torch {minors[0]} is the oldest supported version; pyddpdiag is developed with {minors[-1]}",
        ),
        ("csrc/torch/compat.hpp", f"the supported torch minors, {span}."),
    ):
        assert words in " ".join(read(file).split()), f"{file} does not say '{words}'"
    # Nowhere else may an exact version of torch go its own way.
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        exact = set(re.findall(r"torch==([\d.]+)", path.read_text(encoding="utf-8")))
        assert exact <= set(versions), path.name


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_every_list_of_python_versions_is_one_list() -> None:
    import tomllib

    project = tomllib.loads(read("pyproject.toml"))
    assert project["project"]["requires-python"] == ">=3.10"
    built = re.findall(r"cp3(\d+)-", project["tool"]["cibuildwheel"]["build"])
    assert built == [str(minor) for minor in range(10, 15)]
    for file in ("README.md", "docs/wheels.md"):
        assert re.search(r"3\.10 to 3\.14", read(file)), file


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


def test_pre_commit_takes_the_linters_of_the_lint_group() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    wanted = re.findall(r'additional_dependencies: \["([^"]+)"\]', text)
    assert wanted and set(wanted) <= set(re.findall(r'"([^"]+)"', read("pyproject.toml")))
