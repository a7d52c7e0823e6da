"""A machine that promised something fails the tests that miss it."""

import pytest
from support.promised import need


def test_what_is_missing_skips_and_what_was_promised_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDDPDIAG_PROMISED", "tcp-info")
    need("namespaces", "")
    with pytest.raises(pytest.skip.Exception, match="no tool"):
        need("namespaces", "no tool")
    monkeypatch.setenv("PYDDPDIAG_PROMISED", "tcp-info,namespaces")
    with pytest.raises(pytest.fail.Exception, match="'namespaces' is promised here, but: no tool"):
        need("namespaces", "no tool")
