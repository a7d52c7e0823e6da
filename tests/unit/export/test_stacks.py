"""Stacks for tools that draw flame graphs."""

from __future__ import annotations

from pathlib import Path

from support.shown_run import write_shown

from pyddpdiag.cli import main


def test_stacks_have_rank_part_lines_and_looks(tmp_path: Path) -> None:
    folder = write_shown(tmp_path / "run", world_size=3, steps=24)
    assert main(["export", str(folder), "--stacks", "--output-dir", str(tmp_path)]) == 0
    lines = (tmp_path / "stacks.txt").read_text(encoding="utf-8").splitlines()
    looks = {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in lines)}
    assert looks["rank 1;forward;train.py:9 in load_labels;time.sleep"] >= 10
    assert not any("load_labels" in stack for stack in looks if stack.startswith(("rank 0;", "rank 2;")))
    assert sum(looks.values()) == 3 * 24
