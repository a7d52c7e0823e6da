"""Kinds about settings and devices."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.kinds.kind import Kind

SETTINGS: Final = (
    Kind("settings_differ", ("note",), "the ranks have different settings"),
    Kind(
        "costly_settings",
        ("warning", "note"),
        "settings that cost time are on",
        cure="without these settings",
    ),
    Kind(
        "needless_unused_search",
        ("warning", "note"),
        "DDP searches for unused parameters for nothing",
        cure="without the search",
    ),
)

DEVICES: Final = (Kind("low_gpu_use", ("note",), "the GPU of {ranks} is used little"),)
