"""A real SLURM: whatever its tasks are, ranks or machines, they record into one folder and show one verdict."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import pasted, slurm
from support.promised import need
from train_support import TIMEOUT_S, environment

from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.notes import read_nodes
from pyddpdiag.trace.run import open_run


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    need("slurm", slurm.why_not())
    # The path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm.cluster(Path(folder), 2) as found:
        yield found


@pytest.mark.parametrize(
    ("heading", "block", "ranks"),
    [
        ("SLURM, a task for each rank", 0, 4),
        ("SLURM, a task for each machine", 0, 4),
        ("SLURM, a task for each machine", 1, 4),
        ("SLURM, one machine", 0, 2),
    ],
)
def test_a_job_gives_one_folder_and_one_verdict(
    tmp_path: Path, variables: dict[str, str], heading: str, block: int, ranks: int
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(pasted.here(pasted.lines(heading, block)), encoding="utf-8")
    state, said = slurm.submitted(script, environment(**pasted.bed(tmp_path), **variables), TIMEOUT_S)
    assert state == "COMPLETED", said
    assert len(re.findall(r"rank \d of \d trained", said)) == ranks
    [folder] = tmp_path.glob("ddptrace-*")
    assert said.count(f"pyddpdiag: {folder.name}") == 1, said
    run = open_run(folder)
    assert [trace.rank for trace in run.ranks] == list(range(ranks)) and not run.missing_count
    # Each task's `pyddpdiag run` noted how it ended.
    assert {note.exit_code for note in read_nodes(folder).notes} == {0}
    assert not any("mixed" in text or "not closed" in text for text in load_report(folder).warnings)


def test_a_step_that_fails_says_so_and_does_not_wait_for_ranks_that_never_close(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """One rank is killed: the first task's verdict names it, and the job has the exit code."""
    lines = pasted.here(pasted.lines("SLURM, a task for each rank"))
    script = tmp_path / "job.sh"
    script.write_text(lines.replace("train.py'", "train.py --killed 2'"), encoding="utf-8")
    state, said = slurm.submitted(script, environment(**pasted.bed(tmp_path), **variables), TIMEOUT_S)
    assert state == "FAILED", said
    assert said.count("pyddpdiag: ddptrace-") == 1 and "ank 2" in said.partition("pyddpdiag: ddptrace-")[2], (
        said
    )
