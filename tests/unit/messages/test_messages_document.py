"""docs/doctor.md lists the whole catalog."""

from __future__ import annotations

import re
from pathlib import Path

from pyddpdiag.messages.catalog import CATALOG


def test_the_document_lists_the_catalog() -> None:
    text = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\w+) \| [^|]+ \|$", text, re.MULTILINE)
    assert rows == [(message.kind, message.role.name.lower()) for message in CATALOG]
