"""The site adds the whole catalog to docs/doctor.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pyddpdiag.messages.explain import CATALOG

DOCS = Path(__file__).parents[3] / "docs"


def test_the_site_adds_role_cause_and_fix_of_each_message() -> None:
    spec = importlib.util.spec_from_file_location("completed", DOCS / "completed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "doctor.md").read_text(encoding="utf-8")
    assert f"lists its {len(CATALOG)} messages" in written
    page = module.messages(written)
    message = next(message for message in CATALOG if message.kind == "peer_gone")
    assert f"| `peer_gone` | victim | {message.cause} {message.fix} |" in page
    assert all(f"| `{message.kind}` |" in page for message in CATALOG)
