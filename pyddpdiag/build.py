"""What the installed native module was built with."""

from __future__ import annotations

from pyddpdiag._loader import load

_native = load()


def build_config() -> dict[str, str | int]:
    """Facts of the build, as they also stand in every trace.

    Returns:
        `torch` (the minor version the module is bound to, such as "2.13"), `torch_version`, `compiler`,
        `build_type`, `trace_format` ("major.minor") and `record_bytes`.
    """
    config: dict[str, str | int] = _native.build_config()
    return config
