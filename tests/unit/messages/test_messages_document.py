"""docs/doctor.md lists the whole catalog, and the site adds what the catalog says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from pyddpdiag.messages.catalog import CATALOG

DOCS = Path(__file__).parents[3] / "docs"


def test_the_document_lists_the_catalog() -> None:
    text = (DOCS / "doctor.md").read_text(encoding="utf-8").partition("### The catalog")[2]
    rows = re.findall(r"^- `(\w+)`: ", text, re.MULTILINE)
    assert rows == [message.kind for message in CATALOG]


def test_the_site_adds_role_cause_and_fix() -> None:
    spec = importlib.util.spec_from_file_location("completed", DOCS / "completed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    message = next(message for message in CATALOG if message.kind == "peer_gone")
    page = module.messages("- `peer_gone`: Connection closed by peer\n")
    assert page.startswith("| kind | printed as | role |")
    assert f"| victim | {message.cause} {message.fix} |" in page
