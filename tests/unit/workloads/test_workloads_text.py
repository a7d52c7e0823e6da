"""Texts, character by character."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyddpdiag.errors import DataError
from pyddpdiag.workloads.text import CONTEXT, TextSamples, read_text


def test_targets_are_the_inputs_moved_on_by_one(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("abcdé" * 2000, encoding="utf-8")
    text = read_text(path)
    assert text.alphabet == "abcdé"
    assert (len(text.train), len(text.test)) == (9000, 1000)
    samples = TextSamples(text.train, seed=2)
    everything = np.arange(len(samples))
    for epoch in (None, 0, 1):
        inputs, targets = samples.fetch(everything, epoch)
        assert inputs.shape == targets.shape == (len(samples), CONTEXT)
        assert inputs[:, 1:].equal(targets[:, :-1])
        assert ((inputs + 1) % 5).equal(targets)
    assert not samples.fetch(everything, 0)[0].equal(samples.fetch(everything, 1)[0])


def test_the_shortest_text_has_something_to_test(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("ab" * 20 * CONTEXT, encoding="utf-8")
    assert len(TextSamples(read_text(path).test, 0)) >= 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"\xff\xfe" * 5000, "UTF-8"), (b"too short", "at least")],
)
def test_a_text_that_cannot_be_used_is_refused(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read_text(path)
