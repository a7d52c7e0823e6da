import json
import os
import subprocess
from pathlib import Path

import pytest
from support.commands import python
from support.trace_writer import write_training

from pyddpdiag.cli import main

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user runs it."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return python(
        "-m",
        "pyddpdiag",
        *arguments,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **environment},
    )


def test_healthy_run_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert "Healthy" in capsys.readouterr().out


def test_findings_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path, late_ms={1: 15.0})
    assert main(["report", str(tmp_path)]) == 1
    assert "Rank 1 is late" in capsys.readouterr().out


def test_too_little_to_judge_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path, steps=2)
    assert main(["report", str(tmp_path)]) == 2
    assert "Cannot tell" in capsys.readouterr().out


def test_one_ranks_trace_stands_for_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_training(tmp_path, late_ms={1: 15.0})
    file = tmp_path / "rank_0.ddptrace"
    assert main(["report", str(file), "--html", str(tmp_path / "page.html")]) == 1
    assert "Rank 1 is late" in capsys.readouterr().out
    assert main(["hang", "--json", "--no-stacks", str(file)]) in (0, 2)
    assert main(["export", "--openmetrics", str(file)]) == 0
    assert (tmp_path / "export" / "pyddpdiag.prom").is_file()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["report", "rank_1.ddptrace"]) == 1
    assert "Rank 1 is late" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_wrong_folder_exits_with_2_and_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["report", str(tmp_path / "nowhere"), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err.startswith("error: ") and "no such folder" in captured.err and "hint: " in captured.err
    )


def test_garbage_exits_with_2_and_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank_0.ddptrace").write_bytes(os.urandom(10_000))
    assert main(["report", str(tmp_path)]) == 2
    assert "rank_0.ddptrace: not a trace" in capsys.readouterr().err


def test_json_is_all_there_is_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path, late_ms={1: 15.0})
    assert main(["report", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema_version"] == 1
    assert captured.err == ""


def test_step_and_bucket_narrow_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training(tmp_path)
    assert main(["report", str(tmp_path), "--json", "--step", "3", "--bucket", "layer1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in report["steps"]] == [3]
    assert [bucket["parameters"] for bucket in report["buckets"]] == [["layer1.weight"]]
    assert (report["only_step"], report["only_bucket"]) == (3, "layer1")


@pytest.mark.parametrize(
    "arguments",
    [["--step", "77"], ["--bucket", "nope"], ["--step", "-1"], ["--nonsense"], ["--top", "x"]],
    ids=" ".join,
)
def test_wrong_arguments_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    write_training(tmp_path, steps=6)
    assert main(["report", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_unknown_command_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repotr"]) == 2
    assert "repotr" in capsys.readouterr().err


def test_mistake_in_the_program_is_not_mistaken_for_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("pyddpdiag.pipeline.print_report", broken)
    assert main(["report", str(tmp_path)]) == 2
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_as_a_process_with_a_legacy_code_page(tmp_path: Path) -> None:
    write_training(tmp_path, late_ms={1: 15.0})
    found = run("report", str(tmp_path), PYTHONIOENCODING="cp437", PYTHONUTF8="0")
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.isascii() and "Rank 1 is late" in found.stdout


def test_help_and_report_need_no_torch(tmp_path: Path) -> None:
    write_training(tmp_path)
    program = (
        "import sys; from pyddpdiag.cli import main; code = main(sys.argv[1:]); found = sorted(name for name "
        "in ('torch', 'numpy') if name in sys.modules); print(found, code, file=sys.stderr)"
    )
    for arguments, loaded in ((["report", "--help"], "[] 0"), (["report", str(tmp_path)], "['numpy'] 0")):
        found = python(
            "-c",
            program,
            *arguments,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        )
        assert found.stderr.strip().endswith(loaded), found.stderr
