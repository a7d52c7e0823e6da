"""The doctor runs every check that there is."""

import importlib
import pkgutil

from pyddpdiag.doctor import checks, local


def test_every_file_is_a_check_in_the_list_once() -> None:
    files = [found.name for found in pkgutil.iter_modules(checks.__path__)]
    assert len(files) > 5
    there = [importlib.import_module(f"{checks.__name__}.{name}").check for name in files]
    assert sorted(map(id, there)) == sorted(id(check) for _, check in local.CHECKS)
