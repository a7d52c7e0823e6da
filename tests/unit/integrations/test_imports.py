"""A module that is watched from its import on looks as any other."""

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from pyddpdiag.integrations.imports import Finder


def test_a_watched_module_has_its_own_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a_module_that_is_watched"
    (tmp_path / f"{name}.py").write_text("SEEN = type(__loader__), type(__spec__.loader)\n", encoding="utf-8")
    loaded: list[ModuleType] = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sys, "meta_path", [Finder((name,), lambda _, one: loaded.append(one)), *sys.meta_path]
    )
    module = importlib.import_module(name)
    del sys.modules[name]
    assert loaded == [module] and set(module.SEEN) == {SourceFileLoader}
    assert module.__spec__ is not None
    assert type(module.__loader__) is type(module.__spec__.loader) is SourceFileLoader
