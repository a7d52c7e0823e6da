"""The table of formats: what is listed there exists, is documented and writes something."""

from __future__ import annotations

from pathlib import Path

from support.pages import skip_without
from support.shown_run import write_shown

from pyddpdiag.export.format import FORMATS
from pyddpdiag.export.run import read_run

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def test_every_format_is_documented_and_writes(tmp_path: Path) -> None:
    write_shown(tmp_path)
    run = read_run(tmp_path)
    documented = PAGE.read_text(encoding="utf-8")
    for known in FORMATS:
        assert f"`--{known.name}`" in documented
        if known.name == "parquet":
            skip_without("pyarrow")
        outputs = known.outputs(run)
        assert outputs and all(output.content() for output in outputs)
        assert not any(output.path.is_absolute() for output in outputs)
