"""At which line Python's garbage collector mostly collects, from looks that see the recorder note its end."""

from pathlib import Path

import pytest
from support.reported import findings
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.lines import COLLECTED


@pytest.mark.parametrize(("elsewhere", "named"), [(20, True), (4, False)])
def test_the_line_is_named_if_nearly_all_of_it_is_there(tmp_path: Path, elsewhere: int, named: bool) -> None:
    """One look in `elsewhere` is at another line."""
    writer = RankWriter(0, 1)
    for step in range(60):
        now = 10**9 + 60 * MS * step
        writer.step(step, now, now + MS, now + 60 * MS)
        writer.backward(step, now + MS, now + 30 * MS, now + 31 * MS)
        writer.bucket(step, now + 29 * MS, now + 30 * MS, now + 31 * MS, step=step)
        writer.usage(step, now + 31 * MS, 55 * MS * step, 0, 55 * MS * step, 25 * MS * step)
        line = 12 if step % elsewhere == 1 else 61
        writer.look(now + 40 * MS, ("train.py", line, "main"), COLLECTED)
    writer.write(tmp_path)
    (found,) = [one for one in findings(tmp_path) if one.kind == "collector_pauses"]
    assert (found.where == "train.py:61 in main") == named
    assert ("If train.py:61 in main calls gc.collect(): leave it out" in found.advice) == named
    assert "CollectorWatch" not in found.message
