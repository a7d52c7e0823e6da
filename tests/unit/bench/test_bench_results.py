"""Result files: written by us, readable by pytest-benchmark and by us, and refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import python

from pyddpdiag.bench.results import Entry, article, read, save, scaling_entry, to_document
from pyddpdiag.errors import ResultError, ResultExistsError, ResultVersionError, ResultWriteError, UsageError


def step(round_s: tuple[float, ...] = (0.01, 0.02, 0.03), **more: Any) -> Entry:
    info = {
        "kind": "step",
        "world_size": 2,
        "model": "digits-cnn",
        "hook": "plain",
        "bucket_cap_mb": 25.0,
        "dtype": "float32",
    }
    return Entry("one", "step digits", {"world_size": 2}, {**info, **more}, round_s)


def scaling() -> Entry:
    return scaling_entry(
        world_size=2,
        model="resnet50",
        dataset="real",
        batch_size=64,
        duration_s=12.5,
        epochs=[{"epoch": 0, "loss": 1.5, "accuracy": 0.5, "elapsed_s": 6.0}],
        split={"compute_s": 9.0, "exposed_s": 3.0},
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "deep" / "a.json", [step(), scaling()])
    found = read(path)
    assert [entry.kind for entry in found.entries] == ["step", "scaling"]
    assert found.entries[0].round_s == (0.01, 0.02, 0.03)
    assert found.entries[0].extra_info["median_s"]["median"] == 0.02
    assert found.entries[1].extra_info["duration_s"] == 12.5
    assert found.entries[1].extra_info["split"]["wire_s"] is None
    assert found.entries[1].extra_info["epochs"][0]["loss"] == 1.5
    assert found.machine["system"] == found.entries[0].extra_info["system"] != ""


def test_pytest_benchmark_reads_our_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", [step(), scaling()])
    done = python("-m", "pytest_benchmark", "compare", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scaling[resnet50-2]" in done.stdout + done.stderr


def test_a_file_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", [step()])
    with pytest.raises(ResultExistsError, match="--force"):
        save(path, [scaling()])
    assert read(path).entries[0].kind == "step"
    save(path, [scaling()], force=True)
    assert read(path).entries[0].kind == "scaling"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultWriteError, match="cannot write"):
        save(tmp_path / "file" / "a.json", [step()])


def test_what_cannot_be_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", [step()])
    with pytest.raises(ValueError, match="not JSON compliant"):
        save(path, [step(bad=float("nan"))], force=True)
    assert len(read(path).entries) == 1


@pytest.mark.parametrize("name", ["a\0b.json", "a\ud800.json"], ids=["NUL", "half"])
def test_a_name_that_no_file_has_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultError, match="cannot read"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", ResultError, "not complete JSON"),
        ('{"benchmarks": [', ResultError, "cut off"),
        ('{"benchmarks": [' + "9" * 5000 + "]}", ResultError, "not complete JSON|not|none"),
        ("[" * 200_000, ResultError, "not complete JSON"),
        ("[]", ResultError, "not of pytest-benchmark's form"),
        ('{"benchmarks": []}', ResultError, "no benchmarks"),
        ('{"benchmarks": [{"name": "x", "extra_info": {}}]}', ResultError, "none of its benchmarks is ours"),
        ('{"pyddpdiag": {"schema_version": 99}, "benchmarks": []}', ResultVersionError, "99"),
    ],
)
def test_what_is_no_result_file_is_refused(
    tmp_path: Path, text: str, error: type[Exception], words: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(error, match=words):
        read(path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kind", "guess", "unknown kind"),
        ("model", None, "'model' is missing"),
        ("world_size", 0, "'world_size' is 0"),
        ("world_size", True, "'world_size' is missing"),
        ("round_s", [], "list of times"),
        ("round_s", [0.1, -1], "list of times"),
        ("round_s", ["x"], "list of times"),
        ("schema_version", 2, "schema version 2"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, key: str, value: object, words: str) -> None:
    document = to_document([step()])
    document["benchmarks"][0]["extra_info"][key] = value
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ResultError, match=words) as caught:
        read(path)
    assert "benchmark 0" in str(caught.value)


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ResultError, match="not text"):
        read(tmp_path / "a.json")
    with pytest.raises(ResultError, match="cannot read"):
        read(tmp_path / "none.json")


def test_a_scaling_entry_with_wrong_numbers_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be right"):
        scaling_entry(world_size=0, model="m", dataset="d", batch_size=1, duration_s=1)
    with pytest.raises(UsageError, match="unknown part"):
        scaling_entry(world_size=1, model="m", dataset="d", batch_size=1, duration_s=1, split={"x_s": 1.0})


def test_the_articles_figures_are_shipped() -> None:
    entries = article().entries
    durations = {
        (e.extra_info["system"], e.extra_info["world_size"]): e.extra_info["duration_s"] for e in entries
    }
    assert durations == {
        ("Linux", 1): 56 * 60 + 58,
        ("Linux", 2): 31 * 60 + 7,
        ("Linux", 4): 17 * 60 + 20,
        ("Windows", 1): 58 * 60 + 55,
        ("Windows", 2): 31 * 60 + 55,
        ("Windows", 4): 19 * 60 + 3,
    }
    assert "Microsoft" in article().sweep["source"]
