"""What CMake makes of the project: configured here in all its forms, compiled in none."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import ran

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Ninja finds MSVC only from a developer command prompt"
)


def configure(folder: Path, *options: str, generator: str = "Ninja") -> None:
    """Configures the tree in `folder`, as `cmake` would from a shell that sets no defaults."""
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", generator, *options]
    done = ran(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def cached(folder: Path, name: str) -> str | None:
    """A value of the CMake cache."""
    text = (folder / "CMakeCache.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return match[1] if match else None


@pytest.fixture
def like_msvc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for the core alone, with CMake's default for MSVC and its like: Debug."""
    monkeypatch.delenv("CMAKE_BUILD_TYPE", raising=False)
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text("set(CMAKE_BUILD_TYPE_INIT Debug)\n", encoding="utf-8")
    return [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DPYDDPDIAG_MODULE=OFF"]


def test_a_build_is_optimised_unless_it_is_asked_not_to_be(tmp_path: Path, like_msvc: list[str]) -> None:
    build = tmp_path / "build"
    configure(build, *like_msvc)
    assert cached(build, "CMAKE_BUILD_TYPE") == "Release"
    configure(build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    assert cached(build, "CMAKE_BUILD_TYPE") == "RelWithDebInfo"
    configure(build)
    assert cached(build, "CMAKE_BUILD_TYPE") == "RelWithDebInfo"


def test_the_build_type_of_the_environment_holds(
    tmp_path: Path, like_msvc: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMAKE_BUILD_TYPE", "MinSizeRel")
    configure(tmp_path / "build", *like_msvc)
    assert cached(tmp_path / "build", "CMAKE_BUILD_TYPE") == "MinSizeRel"


def test_a_generator_of_several_build_types_keeps_them_all(tmp_path: Path, like_msvc: list[str]) -> None:
    configure(tmp_path / "build", *like_msvc, generator="Ninja Multi-Config")
    assert not cached(tmp_path / "build", "CMAKE_BUILD_TYPE")
    assert "Debug" in (cached(tmp_path / "build", "CMAKE_CONFIGURATION_TYPES") or "").split(";")


@pytest.fixture(scope="module")
def module_build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tree configured as pip does it, with the module; with a torch that is imported in no time."""
    torch = tmp_path_factory.mktemp("packages") / "torch"
    for file in (
        "include/pybind11/pybind11.h",
        *(f"lib/lib{x}.so" for x in ("torch_python", "torch_cpu", "c10")),
    ):
        (torch / file).parent.mkdir(parents=True, exist_ok=True)
        (torch / file).touch()
    text = "__version__ = '2.13.0'\ndef compiled_with_cxx11_abi():\n    return True\n"
    (torch / "__init__.py").write_text(text, encoding="utf-8")
    folder = tmp_path_factory.mktemp("module")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(torch.parent))
        configure(folder, f"-DPython_EXECUTABLE={sys.executable}")
        yield folder


def commands(folder: Path) -> dict[str, str]:
    """File to command, of everything that is compiled."""
    database = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    return {Path(entry["file"]).resolve().as_posix(): entry["command"] for entry in database}


def module_sources() -> set[str]:
    return {p.as_posix() for folder in ("python", "torch") for p in (ROOT / "csrc" / folder).rglob("*.cpp")}


def test_the_module_is_compiled_in_two_units_of_about_one_size(module_build: Path) -> None:
    units = [file for file in commands(module_build) if "/_native.dir/" in file]
    included = [re.findall(r'#include "(.+)"', Path(unit).read_text(encoding="utf-8")) for unit in units]
    assert len(included) == 2
    assert sorted(included[0] + included[1]) == sorted(module_sources())
    assert abs(len(included[0]) - len(included[1])) <= 1


def test_the_kernels_are_compiled_alone_and_join_no_multiplication_with_an_addition(
    module_build: Path,
) -> None:
    every = commands(module_build)
    kernels = [f for f in every if re.search(r"/core/kernels/fused_(avx2|avx512|scalar)\.cpp$", f)]
    assert len(kernels) == 3
    assert all("-ffp-contract=off" in every[kernel] for kernel in kernels)


@pytest.fixture
def like_clang_cl(tmp_path: Path) -> Path:
    """A toolchain: everything that CMake would find out about clang-cl, which is not asked."""
    known = {
        "CMAKE_SYSTEM_NAME": "Windows",
        "CMAKE_CXX_COMPILER_ID_RUN": "1",
        "CMAKE_CXX_COMPILER_ID": "Clang",
        "CMAKE_CXX_COMPILER_VERSION": "19.1",
        "CMAKE_CXX_COMPILER_FRONTEND_VARIANT": "MSVC",
        "CMAKE_CXX_SIMULATE_ID": "MSVC",
        "CMAKE_CXX_COMPILER_FORCED": "TRUE",
        **{f"CMAKE_{tool}": sys.executable for tool in ("CXX_COMPILER", "RC_COMPILER", "MT", "LINKER", "AR")},
    }
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text("".join(f'set({k} "{v}")\n' for k, v in known.items()), encoding="utf-8")
    return toolchain


def test_clang_as_visual_studio_calls_it_joins_none_either(tmp_path: Path, like_clang_cl: Path) -> None:
    options = (f"-DCMAKE_TOOLCHAIN_FILE={like_clang_cl}", "-DPYDDPDIAG_MODULE=OFF")
    configure(tmp_path / "build", *options, "-DPYDDPDIAG_HAS_TCP_INFO_V1=ON")
    every = commands(tmp_path / "build")
    kernels = [f for f in every if re.search(r"/core/kernels/fused_(avx2|avx512|scalar)\.cpp$", f)]
    assert len(kernels) == 3
    assert all("/W4" in every[f] and "/clang:-ffp-contract=off" in every[f] for f in kernels)


def test_a_windows_sdk_that_is_too_old_is_named_before_anything_is_compiled(
    tmp_path: Path, like_clang_cl: Path
) -> None:
    options = (f"-DCMAKE_TOOLCHAIN_FILE={like_clang_cl}", "-DPYDDPDIAG_MODULE=OFF")
    with pytest.raises(AssertionError, match=r"needs the Windows SDK 10\.0\.17763 or newer"):
        configure(tmp_path / "build", *options)


def test_no_command_asks_for_openmp(module_build: Path) -> None:
    assert not [c for c in commands(module_build).values() if re.search(r"[-/]f?openmp", c)]


def test_work_on_the_module_and_clang_tidy_take_its_files_one_by_one(module_build: Path) -> None:
    configure(module_build, "-DPYDDPDIAG_UNITY=OFF")
    assert module_sources() <= set(commands(module_build))
    # Remembered: nobody who works on it says it twice.
    configure(module_build)
    assert module_sources() <= set(commands(module_build))
    configure(module_build, "-DPYDDPDIAG_UNITY=ON")
    assert not module_sources() & set(commands(module_build))
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    [tidy] = [preset for preset in presets if preset["name"] == "tidy"]
    assert tidy["cacheVariables"]["PYDDPDIAG_UNITY"] == "OFF"
