"""Loads the native module, or says in one clear error what to install instead."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from pyddpdiag.errors import NativeModuleError


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def check_torch_minor(torch_version: str, built_with: str) -> None:
    """Compares the running torch with the one that the native module was built with.

    Args:
        torch_version: `torch.__version__`, such as "2.13.0+cpu".
        built_with: the minor version of the build, such as "2.13".

    Raises:
        NativeModuleError: they differ in major or minor version.
    """
    running = _minor(torch_version)
    if running != built_with:
        raise NativeModuleError(
            f"pyddpdiag's native module was built for torch {built_with}, but torch {torch_version} is installed.",
            hint=f"install a matching pair: 'pip install torch=={built_with}.*', or the pyddpdiag wheel for torch "
            f"{running}, or build it here with 'pip install --no-build-isolation --no-binary pyddpdiag pyddpdiag'.",
        )


def built_with() -> str:
    """The torch minor version of the installed native module, such as "2.13".

    Raises:
        NativeModuleError: this installation has no native module.
    """
    if (
        importlib.util.find_spec("pyddpdiag._native") is None
        or importlib.util.find_spec("pyddpdiag._build") is None
    ):
        raise NativeModuleError(
            "this installation of pyddpdiag has no native module (pyddpdiag._native)"
            f" for Python {sys.version_info.major}.{sys.version_info.minor}.",
            hint="if this is a source tree, build it with 'pip install --no-build-isolation .' and run from "
            "elsewhere; otherwise reinstall the wheel for your Python, system and torch version.",
        )
    build = importlib.import_module("pyddpdiag._build")
    return str(build.TORCH_MINOR)


def load() -> ModuleType:
    """Imports torch, then the native module, which needs torch's libraries to be loaded.

    Raises:
        NativeModuleError: torch is missing or has another minor version, or the module does not load.
    """
    minor = built_with()
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise _no_torch(f" {minor}", f"which cannot be imported: {error}", f"=={minor}.*") from error
    check_torch_minor(torch.__version__, minor)
    try:
        return importlib.import_module("pyddpdiag._native")
    except ImportError as error:
        raise NativeModuleError(
            f"the native module does not load under torch {torch.__version__}: {error}",
            hint="it was probably built against another build of torch; reinstall or rebuild pyddpdiag.",
        ) from error


def build_config() -> dict[str, str | int]:
    """Facts of the build, as they also stand in every trace.

    Returns:
        `torch` (the minor version the module is bound to, such as "2.13"), `torch_version`, `compiler`,
        `build_type`, `trace_format` ("major.minor") and `record_bytes`.

    Raises:
        NativeModuleError: as in `load`.
    """
    config: dict[str, str | int] = load().build_config()
    return config


def require_torch() -> None:
    """Finds out whether torch is installed, without importing it, which takes seconds.

    Raises:
        NativeModuleError: it is not.
    """
    try:
        found = "torch" in sys.modules or importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        found = False
    if found:
        return
    reason = f"which is not installed for {sys.executable}."
    try:
        minor = built_with()
    except NativeModuleError:
        raise _no_torch("", reason, "") from None
    raise _no_torch(f" {minor}", reason, f"=={minor}.*")


def _no_torch(minor: str, reason: str, wanted: str) -> NativeModuleError:
    return NativeModuleError(
        f"recording and training need torch{minor}, {reason}",
        hint=f"pip install 'torch{wanted}' (reading traces works without it).",
    )


def check_early() -> None:
    """Fails at `import pyddpdiag` if torch is already loaded and is not the one of the build.

    Without torch in the process nothing is checked: reading traces must work on machines that have none.
    """
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if version is not None:
        check_torch_minor(str(version), built_with())
