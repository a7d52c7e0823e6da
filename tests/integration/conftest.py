"""What tests of several files ask for."""

from types import SimpleNamespace

import pytest
from support.forks import context

from pyddpdiag.ranks import process


@pytest.fixture
def forked_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """`launch` spawns its ranks, each of which imports torch; where a test asks what they do there, they are forked."""
    monkeypatch.setattr(process, "multiprocessing", SimpleNamespace(get_context=lambda _: context()))


@pytest.fixture
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is a new one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))
