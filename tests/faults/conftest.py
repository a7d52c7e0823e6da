"""The fault bed: what its tests need of the machine, and that a machine which promised it cannot skip them."""

import pytest
from support.links import why_not
from support.promised import need


@pytest.fixture(scope="session")
def links() -> None:
    """Shaped links between two hosts can be made here; else the test is skipped, or fails if that was promised."""
    need("namespaces", why_not())
